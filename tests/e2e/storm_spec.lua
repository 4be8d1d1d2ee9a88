-- SPDX-License-Identifier: MIT
-- Players who come, go, move, join and shout at random, all at once: whatever happens, the figures add up and
-- nothing of it is left. What a test of one thing at a time does not meet is met here, under the sanitizers.
-- TEST_SEED repeats what is drawn, though not how the processes take turns.
--
-- What is held here, and by which test:
--   shared ports, dynamic relays, exhaustion, life        a_storm_of_players_leaves_nothing_behind
--   slots, refusals, relays that end by policy            a_storm_against_policies_gives_every_slot_back
--   hooks that wait, kicks, blocks, timers, reloads       a_storm_of_reloads_and_waits_gives_every_slot_back
--   pairing = open                                        a_storm_with_open_pairing_leaves_nothing_behind
--   lookups, endpoints, flows to targets, relay.open,     a_storm_of_lookups_targets_and_endpoints_leaves_nothing
--     drains, reloads that add and take ports, latches
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local control = require "control"
local daemon = require "daemon"
local loop = require "loop"
local resolver = require "resolver"
local seed = require "seed"
local tcp = require "tcp"
local udp = require "udp"

local PLAYERS = 24
local STEPS = 4000

describe("a storm", function()
  local function settings(more)
    more.udp_host, more.udp_relay_ports, more.udp_relay_timeout = daemon.HOST, "0+23", "1s"
    return more
  end

  local function pick(list) return list[math.random(#list)] end

  local Actor = {}
  Actor.__index = Actor

  function Actor:enter()
    self.tcp = assert(tcp.connect(self.server.command.ip, self.server.command.port))
    self.oids, self.pids, self.ports, self.lines = {}, {}, {}, 0
  end

  -- Takes in what the server has said; every line must be one of those that there are.
  function Actor:listen()
    for line in function() return self.tcp:take_line() end do
      self.lines = self.lines + 1
      local word, value = line:match("^(%S+) (.*)$")
      if word == "set-oid" then
        self.oids[#self.oids + 1] = value
        self.all_oids[#self.all_oids + 1] = value
      elseif word == "set-pid" then
        self.pids[#self.pids + 1] = value
      elseif word == "connect-relay" then
        self.ports[#self.ports + 1] = tonumber(value)
        assert(self.is_relay_port[tonumber(value)], line)
      elseif word == "connect" then
        assert(value:find("^127%.%d+%.%d+%.%d+:%d+$"), line)
      elseif word ~= "echo" then
        assert(word == "error" and value:find("^[a-z-]+:[a-z0-9-]+:?[a-z0-9._/:-]*$")
          or (word == "limit" or word == "notice") and value:find("^[a-z-]+:?%d*$"), line)
      end
    end
  end

  local ACTIONS = {
    function(self) self.tcp:send "register-host who=a\n" end,
    function(self) self.tcp:send "register-host who=b x\n" end,
    function(self) self.tcp:send("connect-relay " .. (pick(self.all_oids) or "nope") .. "\n") end,
    function(self) self.tcp:send("connect-relay " .. (pick(self.all_oids) or "nope") .. "\n") end,
    function(self) self.tcp:send("connect-relay " .. (pick(self.oids) or "nope") .. "\n") end,
    function(self) self.tcp:send("connect " .. (pick(self.all_oids) or "nope") .. "\n") end,
    function(self)
      self.udp:send(pick(self.pids) or "junk", self.server.registrar.ip, self.server.registrar.port)
    end,
    function(self)
      self.udp:send(pick(self.pids) or "junk", self.server.registrar.ip, self.server.registrar.port)
    end,
    function(self) -- another socket, so another port or address
      self.udp:close()
      loop.keep(self.udp)
      self.udp = udp.open("127.70.0." .. math.random(8))
      self.udp:send(pick(self.pids) or "junk", self.server.registrar.ip, self.server.registrar.port)
    end,
    function(self) -- the socket of somebody else
      local other = pick(self.all)
      other.udp:send(pick(self.pids) or "junk", self.server.registrar.ip, self.server.registrar.port)
    end,
    function(self)
      for _ = 1, math.random(12) do
        local port = math.random(2) == 1 and pick(self.ports) or pick(self.server.relay_ports)
        self.udp:send(string.rep("d", math.random(0, 1400)), self.server.registrar.ip, port)
        self.sent.n = self.sent.n + 1
      end
    end,
    function(self)
      for _, port in ipairs(self.ports) do
        self.udp:send("play", self.server.registrar.ip, port)
        self.sent.n = self.sent.n + 1
      end
    end,
    function(self)
      if math.random(3) > 1 then return end
      if math.random(2) == 1 then self.tcp:reset() else self.tcp:close() end
      loop.keep(self.tcp)
      self:enter()
    end,
    function(self) self.tcp:send(pick { "echo", "\n", "nonsense\n", "connect\n", "connect-relay x y z\n" }) end,
  }

  -- Runs the storm and checks the sums of every page on the way. Another storm may be done at each step, and be
  -- over at the end; what others send is not counted.
  local function run(server, step_of_another, end_of_another, others_send)
    local drawn = seed.begin()
    local all, all_oids, sent, is_relay_port = {}, {}, { n = 0 }, {}
    for _, port in ipairs(server.relay_ports) do is_relay_port[port] = true end
    for i = 1, PLAYERS do
      all[i] = setmetatable({ server = server, all = all, all_oids = all_oids, sent = sent,
        is_relay_port = is_relay_port, udp = udp.open("127.70.0." .. i % 8 + 1) }, Actor)
      all[i]:enter()
    end
    local ok, err = pcall(function()
      for step = 1, STEPS do
        local actor = pick(all)
        if actor.tcp.ended then -- it was kicked or blocked
          actor:listen()
          actor.tcp:close()
          loop.keep(actor.tcp)
          actor:enter()
        end
        pick(ACTIONS)(actor)
        if step_of_another then step_of_another(step) end
        if step % 7 == 0 then loop.turn() end
        for _, one in ipairs(all) do
          one:listen()
          if step % 50 == 0 then one.udp:drain() end
        end
        if #all_oids > 64 then table.remove(all_oids, math.random(#all_oids)) end
        if step % 200 == 0 then
          local page = server:metrics()
          local into = page:value("moonrelay_packets_total", { direction = "in" })
          local out = page:value("moonrelay_packets_total", { direction = "out" })
          assert.equal(into, out + page:sum("moonrelay_drops_total") + page:value("moonrelay_held"))
          local open = page:value("moonrelay_ports", { state = "open" }) or 0
          assert.equal(#server.relay_ports, page:sum("moonrelay_ports") - open)
          assert.is_true(page:value("noray_active_hosts") == page:sum("moonrelay_sessions"))
        end
      end
      if end_of_another then end_of_another() end
      for _, actor in ipairs(all) do
        actor.tcp:close()
        actor.udp:close()
      end
      server:await_metric("noray_tcp_connections", {}, 0)
      server:await_metric("noray_active_hosts", {}, 0)
      server:await_metric("noray_relay_count", {}, 0)
      server:await_metric("moonrelay_held", {}, 0)
      local page = server:metrics()
      assert.equal(page:value("moonrelay_packets_total", { direction = "in" }),
        page:value("moonrelay_packets_total", { direction = "out" }) + page:sum("moonrelay_drops_total"))
      assert.equal(0, page:sum("moonrelay_relays"))
      -- What the kernel could not keep is the only loss.
      assert.is_true(others_send or page:value("moonrelay_packets_total", { direction = "in" })
        + page:value("moonrelay_kernel_drops_total") <= sent.n)
      assert.is_true(page:value("moonrelay_packets_total", { direction = "out" }) > 0)
    end)
    if not ok then error(("TEST_SEED=%.17g: %s"):format(drawn, type(err) == "table" and err.message or err), 0) end
  end

  -- Every slot is free again: as many as its maximum come in, one more does not.
  local function check_slots(server)
    local clients, taken = {}, 0
    for i = 1, 20 do
      clients[i] = assert(tcp.connect(server.command.ip, server.command.port))
      local line
      repeat
        clients[i]:send "register-host who=a\n"
        line = clients[i]:line()
      until line ~= "error register-host:rejected:unlucky"
      if line:find("^set%-oid ") then
        taken = taken + 1
      else
        assert.equal("error register-host:full:who/a", line)
      end
    end
    assert.equal(15, taken)
  end

  it("a_storm_of_players_leaves_nothing_behind", function()
    daemon.with({ set = settings { max_sessions_per_connection = "4" },
      config = [[return { policies = { { "dynamic", from = "anyone" } } }]], control_pair = false }, run)
  end)

  it("a_storm_with_open_pairing_leaves_nothing_behind", function()
    daemon.with({ set = settings { pairing = "open", connect = "relay",
      workers = "3", hold_datagrams = "2" }, control_pair = false }, run)
  end)

  it("a_storm_against_policies_gives_every_slot_back", function()
    daemon.with({ set = settings {}, control_pair = false, files = {
      ["door.lua"] = [[
        local n = 0
        return {
          register = function(ev)
            n = n + 1
            if n % 11 == 0 then return false, "unlucky" end
            return { slots = { ["who/" .. (ev.meta.who or "nobody")] = 15 }, tags = { who = ev.meta.who } }
          end,
          connect = function(ev) if ev.from.joins > 50 then return { via = "relay" } end end,
          create = function(ev)
            n = n + 1
            if n % 13 == 0 then return false, "unlucky" end
            return { slots = { ["ip/" .. ev.addr.ip] = 3 }, max_bytes = 20000, ttl = 2, rate = { pps = 200 } }
          end,
          drop = function(ev)
            n = n + 1
            if n % 5 == 0 then return false, "unlucky", { mute = 1 } end
            if n % 3 == 0 then return { idle = 0.5 } end
          end,
          destroyed = function(ev) assert(ev.reason ~= nil and ev.relay.port ~= nil) end,
        }]] },
      config = [[return { policies = { "./door.lua", "dynamic" } }]] }, function(server)
      run(server)
      check_slots(server)
    end)
  end)

  -- Every hook waits, timers kick, close, block and unblock, and each generation ends in the middle of it.
  local MISCHIEF = [[
    local relay = require "relay"
    local n, is_calm = 0, %s
    local function think()
      n = n + 1
      if n %% 3 > 0 then relay.sleep(math.random() * 0.02) end
      if n %% 5 == 0 then relay.await(function(done) relay.after(math.random() * 0.02, done) end) end
      if n %% 97 == 0 and not is_calm then relay.sleep(1) end
    end
    local function pick(list) return list[math.random(math.max(1, #list))] end
    local function mischief()
      local session, peer = pick(relay.sessions()), pick(relay.relays())
      if session then relay.notify(session, "hello") end
      if session and math.random(4) == 1 then relay.kick(session, "unlucky") end
      if peer and math.random(4) == 1 then relay.close(peer, "unlucky") end
      if peer and math.random(16) == 1 then relay.block(peer.addr.text, 0.1, "unlucky") end
      if math.random(16) == 1 then relay.block("127.70.0." .. math.random(8), 0.05, "unlucky") end
      if math.random(16) == 1 then relay.block({ who = "b" }, 0.05, "unlucky") end
      for _, block in ipairs(relay.blocks()) do
        if math.random(4) == 1 then relay.unblock(block.what) end
      end
      think()
    end
    return {
      load = function()
        if math.random(2) == 1 then relay.sleep(0.01) end
        if not is_calm then relay.every(0.02, mischief) end
        relay.blocklist(relay.cidr { "192.0.2.0/24" }, "listed")
      end,
      register = function(ev)
        think()
        if n %% 11 == 0 then return false, "unlucky" end
        return { slots = { ["who/" .. (ev.meta.who or "nobody")] = 15 }, tags = { who = ev.meta.who } }
      end,
      connect = function() think() end,
      create = function(ev)
        think()
        if n %% 13 == 0 then return false, "unlucky" end
        return { slots = { ["ip/" .. ev.addr.ip] = 3 }, max_bytes = 20000, ttl = 2, hold = { packets = 4 } }
      end,
      drop = function()
        think()
        if n %% 5 == 0 then return false, "unlucky", { mute = 1 } end
        if n %% 3 == 0 then return { idle = 0.5, hold = { packets = 2, ms = 50 } } end
      end,
      connected = think, created = think, destroyed = think, left = think,
    }]]

  it("a_storm_of_reloads_and_waits_gives_every_slot_back", function()
    daemon.with({ set = settings { control = "control.sock" },
      control_pair = false, files = { ["door.lua"] = MISCHIEF:format("false") }, allow_log = { "hook failed" },
      config = [[return { policies = { "./door.lua", "dynamic" } }]] }, function(server)
      local line, reloads = control.connect(server), 0
      run(server, function(step)
        if step % 20 == 0 and (reloads == 0 or line:take()) then
          reloads = reloads + 1
          line:send("POST", "/v1/reload")
        end
      end, function()
        loop.wait(function() return line:take() end, "the last reload")
        local file = assert(io.open(server.dir .. "/door.lua", "wb"))
        file:write(MISCHIEF:format("true"))
        file:close()
        line:reload()
      end)
      assert.is_true(reloads >= 3, reloads .. " reloads")
      assert.equal(reloads + 1, server:metric("moonrelay_reloads_total", { result = "ok" }))
      server:await_metric("moonrelay_blocks", {}, 1) -- the listed net
      check_slots(server)
      line:close()
    end)
  end)

  -- Every hook looks up, sends, opens, closes and waits; endpoints are dropped with calls under way; names hang.
  local ERRANDS = [[
    local relay = require "relay"
    local port, game, is_calm = %d, %d, %s
    local function pick(list) return list[math.random(math.max(1, #list))] end
    local NAMES = { "a.fleet", "b.fleet", "none.fleet", "again.fleet", "h.fleet", "six.fleet", "127.0.0.1", "::1",
      "127.1" }
    local depth, us, errand = 0, {}, nil
    local function own_lookup(host, family)
      local r = math.random(8)
      if r == 1 then error "own" elseif r == 2 then return nil, "no", "nope" elseif r == 3 then return 7 end
      if r == 4 then relay.sleep(0.01) end
      if r == 5 then errand() end
      if host == "0.0.0.0" then return nil end
      if family == 4 and r > 5 then return "127.0.0.1" end
    end
    local ERRANDS = {
      function() relay.resolve(pick(NAMES), pick { 4, 6 }) end,
      function() relay.resolve(pick(NAMES)) end,
      function()
        us[math.random(6)] = relay.udp { family = pick { 4, 4, 6 }, lookup = math.random(2) == 1 and own_lookup or nil }
      end,
      function() us[math.random(6)] = nil end,
      function() local u = us[math.random(6)] if u then u:bind(pick(NAMES), pick { nil, port, game }) end end,
      function() local u = us[math.random(6)] if u then u:bind("127.0.0.1") end end,
      function()
        local u = us[math.random(6)]
        if u then u:send(("x"):rep(math.random(0, 2000)), pick(NAMES), pick { game, port }) end
      end,
      function()
        local u = us[math.random(6)]
        if u then u:connect("127.0.0.1", pick { game, port }) u:send "connected" end
      end,
      function() local u = us[math.random(6)] if u then u:close() end end,
      function()
        local u = us[math.random(6)]
        if u then
          u:on_message(pick { function() end, function() errand() end, function() error "message" end,
            function() u:close() end })
        end
      end,
      function() local u = us[math.random(6)] if u then u:on_message(nil) end end,
      function()
        relay.open { peer = "127.70.0." .. math.random(8) .. ":" .. math.random(1024, 65535), idle = 0.5, port = port,
          target = pick { "a.fleet", "b.fleet", "h.fleet", "127.0.0.1", "none.fleet" } .. ":" .. pick { game, port } }
      end,
      function() relay.open { peer = "127.70.0." .. math.random(8) .. ":" .. math.random(1024, 65535), idle = 0.5 } end,
      function()
        local a, b = pick(relay.relays()), pick(relay.sessions())
        if a and b then relay.open { peer = b.addr or "127.70.0.1:4000", pair = a, ttl = 1 } end
      end,
      function() local one = pick(relay.relays()) if one then relay.close(one, "unlucky") end end,
      function()
        local one = pick(relay.sessions())
        if one and not one.tags.keeper and math.random(8) == 1 then relay.kick(one, "unlucky") end
      end,
      function() if math.random(8) == 1 then relay.block("127.70.0." .. math.random(8), 0.05, "unlucky") end end,
      function() relay.sleep(math.random() * 0.02) end,
      function() collectgarbage() end,
    }
    errand = function()
      if is_calm or depth > 3 then return end
      depth = depth + 1
      pcall(pick(ERRANDS))
      depth = depth - 1
    end
    local function notice() if math.random(3) == 1 then errand() end end
    return {
      load = function()
        if math.random(2) == 1 then errand() end
        if not is_calm then relay.every(0.02, errand) relay.every(0.05, errand) end
      end,
      register = function(ev)
        if ev.meta.who == "keeper" then return { tags = { keeper = "yes" } } end
        errand()
      end,
      connect = function() errand() end,
      create = function() errand() if math.random(13) == 1 then return false, "unlucky" end return { ttl = 3 } end,
      drop = function(ev)
        errand()
        local r = math.random(8)
        if r == 1 then return false, "unlucky", { mute = 0.2 } end
        if r == 2 then error "dropped" end
        if r < 6 then
          return { target = pick { "a.fleet:", "b.fleet:", "h.fleet:", "none.fleet:", "127.0.0.1:" }
            .. pick { game, game, port }, idle = 0.5, hold = { ms = 200 } }
        end
        if r == 6 then return { idle = 0.5 } end
      end,
      lookup = function(host, family, ev)
        if ev.op == "listen" then return end
        errand()
        local r = math.random(12)
        if r == 1 then error "looked up" elseif r == 2 then return nil, "no", "nope" elseif r == 3 then return 7 end
        if r == 4 then return "127.0.0.1" elseif r == 5 then return "::1" end
        if r == 6 then return pick { "0.0.0.0", "224.0.0.1" } end
      end,
      connected = notice, created = function(ev) notice() if math.random(6) == 1 then relay.close(ev.relay) end end,
      destroyed = notice, left = notice,
    }]]

  it("a_storm_of_lookups_targets_and_endpoints_leaves_nothing", function()
    local names = resolver.new { ["a.fleet"] = "127.0.0.1", ["b.fleet"] = { "::1", "127.0.0.2" }, ["h.fleet"] = "hang",
      ["again.fleet"] = "again", ["six.fleet"] = "::1" }
    finally(function() names:close() end)
    local game = udp.open()
    loop.keep(game)
    game.handle:recv_stop()
    game.handle:recv_start(function(_, data, from)
      if from then game.handle:try_send(data, from.ip, from.port) end
    end)
    local first, second = udp.free_port(), udp.free_port()
    local function policy(port, is_calm) return ERRANDS:format(port, game.port, tostring(is_calm)) end
    local function config(ports)
      return ([[return { policies = { "./door.lua", "dynamic" }, ports = { %s } }]]):format(ports)
    end
    local function write(server, name, text)
      local file = assert(io.open(server.dir .. "/" .. name .. ".new", "wb"))
      file:write(text)
      file:close()
      assert(os.rename(server.dir .. "/" .. name .. ".new", server.dir .. "/" .. name))
    end
    local tables = { ("[%d] = {}"):format(first), ("[%d] = {}"):format(second), "",
      ("[%d] = {}, [%d] = { target = 'a.fleet:%d', idle = 1 }"):format(first, second, game.port) }
    daemon.with(names:options { set = settings { control = "control.sock",
      hold_time = "500ms", dynamic_per_address = "16", dynamic_share = "75", workers = "2" }, control_pair = false,
      files = { ["door.lua"] = policy(first, false) }, config = config(tables[1]),
      allow_log = { "hook failed", "timer failed", "reload: ", "failed" } }, function(server)
      local line, drain, reloads, drains = control.connect(server), control.connect(server), 0, 0
      local sockets, keeper = {}, assert(tcp.connect(server.command.ip, server.command.port)) -- else a drain is over
      loop.keep(keeper)
      keeper:send "register-host who=keeper\n"
      keeper:expect_match "^set%-oid"
      for i = 1, 16 do sockets[i] = udp.open("127.70.0." .. i % 8 + 1) end
      run(server, function(step)
        for _ = 1, 2 do
          pick(sockets):send("x", server.registrar.ip, pick { first, second })
        end
        if step % 20 == 0 then
          for _, one in ipairs(sockets) do one:drain() end
          if reloads == 0 or line:take() then
            reloads = reloads + 1
            write(server, "door.lua", policy(pick { first, second }, false))
            write(server, "moonrelay.lua", config(pick(tables)))
            line:send("POST", "/v1/reload")
          end
        end
        if step % 10 == 0 and (drains == 0 or drain:take()) then
          drains = drains + 1
          drain:send("POST", "/v1/drain", drains % 2 == 1 and '{"seconds": 600}' or '{"cancel": true}')
        end
        if step % 100 == 0 then names:set("h.fleet", step % 200 == 0 and "127.0.0.1" or "hang") end
      end, function()
        names:set("h.fleet", "127.0.0.1")
        loop.wait(function() return line:take() end, "the last reload")
        loop.wait(function() return drain:take() end, "the last drain")
        if drains % 2 == 1 then drain:request("POST", "/v1/drain", '{"cancel": true}') end
        for _, one in ipairs(sockets) do one:close() end
        keeper:close()
        write(server, "door.lua", policy(first, true))
        write(server, "moonrelay.lua", config(tables[1]))
        -- An endpoint of the policy before may have that port until its last hook has ended.
        loop.wait(function() return line:reload().body:find '"warnings":%s*%[%s*%]' end, "the port of the last reload")
      end, true)
      assert.is_true(reloads >= 3, reloads .. " reloads")
      server:await_metric("moonrelay_ports", { state = "open" }, 1)
      assert.equal(0, server:metric("moonrelay_latches"))
      line:close()
      drain:close()
    end)
    game:close()
  end)
end)
