-- SPDX-License-Identifier: MIT
-- Open ports and flows to targets: a UDP service behind the relay, over real sockets, with a resolver of the
-- test's own (resolver.lua).
--
-- What is held here, and by which test:
--   replies byte for byte, one port a client              what_clients_send_arrives_and_answers_find_their_way_back
--   a thousand flows, one lookup each, none a datagram    a_thousand_flows_have_one_lookup_each
--   the server's address changes                          new_flows_follow_a_changed_name_and_old_ones_stay
--   idle ends a flow, the next datagram begins one        an_idle_flow_ends_and_begins_anew
--   hostile targets                                       a_hostile_target_gets_nothing
--   a stranger at a flow's port                           nobody_but_the_server_reaches_a_client
--   a lookup fails, hangs                                 a_name_that_hangs_costs_its_flow_alone
--   a reload adds and removes ports under traffic         a_reload_changes_open_ports_and_loses_no_datagram
--   block and close end flows                             a_block_and_a_close_end_flows
--   an end while policies wait                            a_daemon_ends_with_everything_under_way
--   what cannot be had is named                           a_start_that_cannot_have_an_open_port_says_which
--   the cookbook's balancer                               the_balancer_of_the_cookbook_runs_as_it_is
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local daemon = require "daemon"
local loop = require "loop"
local resolver = require "resolver"
local udp = require "udp"

local HOST = daemon.HOST

-- A server that sends back what it gets, and knows from where it came.
local function echo(ip)
  local self = udp.open(ip or "127.0.0.1")
  self.seen, self.ports, self.got = {}, 0, 0
  self.handle:recv_stop()
  self.handle:recv_start(function(_, data, from)
    if not from then return end
    if not self.seen[from.port] then
      self.seen[from.port] = from.ip
      self.ports = self.ports + 1
    end
    self.got = self.got + 1
    self.last = from
    if data ~= "mute" then self.handle:try_send(data, from.ip, from.port) end
  end)
  return self
end

local function config(drop, more)
  return ([[return { policies = { "./p.lua" }, ports = { [0] = {} }, %s }]]):format(more or ""),
    { ["p.lua"] = ("local relay = require 'relay' return { drop = function(ev) %s end }"):format(drop) }
end

-- A daemon with one open port of the kernel's choice, whose flows the body of `drop` decides about.
local function with_port(drop, opts, fn)
  local text, files = config(drop, opts.config)
  opts.set = opts.set or {}
  opts.set.dynamic_per_address = opts.set.dynamic_per_address or "65536"
  opts.set.dynamic_share = opts.set.dynamic_share or "90"
  opts.set.udp_host = HOST
  opts.set.hold_time = opts.set.hold_time or "8s" -- a machine that stalls loses nothing
  opts.config, opts.files = text, files
  daemon.with(opts, function(server) fn(server, server.open_ports[1]) end)
end

local function fixed(target, idle)
  return ("return { target = %q, idle = %d }"):format(target, idle or 60)
end

describe("a flow to a target", function()
  it("what_clients_send_arrives_and_answers_find_their_way_back", function()
    local game = echo()
    loop.keep(game)
    local opts = { set = { udp_relay_max_individual_traffic = "100mb" } }
    with_port(fixed(game.text), opts, function(server, port)
      local clients, sizes = {}, { 0, 1, 1472, 1473, 2048, 9000, 60000 }
      for i = 1, 8 do clients[i] = udp.open("127.0.0." .. 10 + i) end
      for round, size in ipairs(sizes) do
        for i, client in ipairs(clients) do
          local data = string.rep(string.char(64 + i), size)
          client:send(data, HOST, port)
          client:expect(data, HOST, port)
        end
        assert.equal(8, game.ports, "round " .. round)
      end
      for from in pairs(game.seen) do
        local is_ours = false
        for _, own in ipairs(server.relay_ports) do is_ours = is_ours or own == from end
        assert.is_true(is_ours)
      end
      assert.equal(8, server:metric("moonrelay_relays", { kind = "target" }))
      assert.equal(1, server:metric("moonrelay_ports", { state = "open" }))
    end)
    game:close()
  end)

  it("a_thousand_flows_have_one_lookup_each", function()
    local names = resolver.new { ["a.fleet"] = "127.0.0.1" }
    local game = echo()
    loop.keep(game)
    local opts = names:options { set = { udp_relay_ports = "0+1199" } }
    with_port(fixed("a.fleet:" .. game.port), opts, function(server, port)
      local flows = 0
      for _ = 1, 20 do
        local clients = {}
        for i = 1, 50 do
          clients[i] = udp.open()
          clients[i]:send("first", HOST, port)
        end
        for _, client in ipairs(clients) do
          client:expect("first", HOST, port)
          flows = flows + 1
          for k = 1, 5 do client:send("more " .. k, HOST, port) end
        end
        for _, client in ipairs(clients) do
          for k = 1, 5 do client:expect("more " .. k, HOST, port) end
          client:close()
        end
      end
      assert.equal(1000, flows)
      assert.equal(1000, game.ports)
      assert.equal(6000, game.got)
      assert.equal(1000, names:calls("a.fleet"))
      assert.equal(1000, server:metric("moonrelay_relays", { kind = "target" }))
    end)
    game:close()
    names:close()
  end)

  it("new_flows_follow_a_changed_name_and_old_ones_stay", function()
    local names = resolver.new { ["a.fleet"] = "127.0.0.31" }
    local old = echo("127.0.0.31")
    loop.keep(old)
    local new = udp.open("127.0.0.32", old.port)
    loop.keep(new)
    with_port(fixed("a.fleet:" .. old.port), names:options {}, function(_, port)
      local first, second = udp.open(), udp.open()
      first:send("one", HOST, port)
      first:expect("one", HOST, port)
      names:set("a.fleet", "127.0.0.32")
      second:send("two", HOST, port)
      local got = new:recv()
      assert.equal("two", got.data)
      new:send("answer", got.ip, got.port)
      second:expect("answer", HOST, port)
      first:send("still", HOST, port)
      first:expect("still", HOST, port)
    end)
    old:close()
    new:close()
    names:close()
  end)

  it("an_idle_flow_ends_and_begins_anew", function()
    local game = echo()
    loop.keep(game)
    with_port(fixed(game.text, 3), {}, function(server, port)
      local client = udp.open()
      client:send("one", HOST, port)
      client:expect("one", HOST, port)
      local before = game.last.port
      server:await_metric("moonrelay_relays", { kind = "target" }, 0)
      client:send("two", HOST, port)
      client:expect("two", HOST, port)
      assert.not_equal(before, game.last.port) -- the old port rests
    end)
    game:close()
  end)

  it("a_hostile_target_gets_nothing", function()
    local names = resolver.new { ["zero.fleet"] = "0.0.0.0", ["many.fleet"] = "224.0.0.5" }
    with_port("return { target = ev:peek(64) }", names:options {}, function(server, port)
      local targets = { "0.0.0.0:7777", "224.0.0.1:7777", "255.255.255.255:7777", "127.0.0.1:22", "zero.fleet:7777",
        "many.fleet:7777", "nobody.fleet:7777", HOST .. ":" .. port, HOST .. ":" .. server.registrar.port,
        HOST .. ":" .. server.relay_ports[1], "[::1]:7777" }
      server:allow("hook failed")
      for _, target in ipairs(targets) do udp.open():send(target, HOST, port) end
      server:await_metric("moonrelay_drops_total", { reason = "new_flow" }, #targets)
      udp.open():send("127.0.0.1:0", HOST, port) -- none at all: the policy's error
      server:await_log("host:port or [IPv6]:port is expected")
      server:await_metric("moonrelay_drops_total", { reason = "new_flow" }, #targets + 1)
      assert.equal(0, server:metric("moonrelay_relays", { kind = "target" }))
      for _, why in ipairs { "own-address", "address-class", "low-port", "not-found", "family" } do
        server:await_log("why=" .. why)
      end
    end)
    names:close()
  end)

  it("nobody_but_the_server_reaches_a_client", function()
    local game = echo()
    loop.keep(game)
    with_port(fixed(game.text), {}, function(server, port)
      local client, stranger, neighbour = udp.open(), udp.open("127.0.0.77"), udp.open(game.ip)
      client:send("one", HOST, port)
      client:expect("one", HOST, port)
      local egress = game.last.port
      for _ = 1, 100 do
        stranger:send("I am the server", HOST, egress)
        neighbour:send("so am I", HOST, egress)
      end
      loop.wait(function() return server:metrics():sum("moonrelay_drops_total") >= 200 end, "200 drops")
      assert.is_true(server:metric("moonrelay_drops_total", { reason = "unknown_sender" }) > 0)
      client:send("two", HOST, port)
      client:expect("two", HOST, port)
      assert.equal(0, client:waiting())
      assert.equal(0, stranger:waiting() + neighbour:waiting())
      assert.equal(1, server:metric("moonrelay_relays", { kind = "target" }))
    end)
    game:close()
  end)

  it("a_name_that_hangs_costs_its_flow_alone", function()
    local names = resolver.new { ["h.fleet"] = "hang", ["a.fleet"] = "127.0.0.1" }
    local game = echo()
    loop.keep(game)
    local opts = names:options { set = { hold_time = "3s" } }
    with_port("return { target = ev:peek(64) }", opts, function(server, port)
      local lost, client = udp.open(), udp.open()
      lost:send("h.fleet:" .. game.port, HOST, port)
      loop.wait(function() return names:calls("h.fleet") == 1 end, "the lookup that hangs")
      client:send("a.fleet:" .. game.port, HOST, port)
      client:expect("a.fleet:" .. game.port, HOST, port)
      server:await_metric("moonrelay_drops_total", { reason = "hold_expired" }, 1)
      names:set("h.fleet", "127.0.0.1")
      server:await_metric("moonrelay_held", {}, 0)
      assert.equal(1, server:metric("moonrelay_relays", { kind = "target" }))
      assert.equal(0, lost:waiting())
    end)
    game:close()
    names:close()
  end)

  it("a_block_and_a_close_end_flows", function()
    local game = echo()
    loop.keep(game)
    local opts = { set = { udp_host = HOST } }
    local text, files = config("")
    files["p.lua"] = ([[local relay = require "relay"
      return { drop = function() return { target = %q, idle = 60 } end,
        commands = {
          block = function(what) return tostring(relay.block(what, 60, "bad")) end,
          close = function()
            local n = 0
            for _, r in ipairs(relay.relays()) do
              if r.kind == "target" and r.target.text == %q and relay.close(r) then n = n + 1 end
            end
            return tostring(n)
          end } }]]):format(game.text, game.text)
    opts.config, opts.files, opts.set.control = text, files, "control.sock"
    daemon.with(opts, function(server)
      local port = server.open_ports[1]
      local blocked, closed = udp.open("127.0.0.41"), udp.open("127.0.0.42")
      local function call(...)
        local r = daemon.run({ "call", "--control", server.dir .. "/control.sock", "p", ... })
        return (r.stdout:gsub("%s+$", ""))
      end
      for _, client in ipairs { blocked, closed } do
        client:send("one", HOST, port)
        client:expect("one", HOST, port)
      end
      local r = daemon.run({ "relays", "--control", server.dir .. "/control.sock" })
      assert.truthy(r.stdout:find("target +127%.0%.0%.4%d:%d+ +" .. game.text:gsub("%.", "%%.")), r.stdout)
      assert.equal("1", call("block", "127.0.0.41"))
      server:await_metric("moonrelay_relays", { kind = "target" }, 1)
      blocked:send("two", HOST, port)
      server:await_metric("moonrelay_drops_total", { reason = "blocked" }, 1)
      assert.equal("1", call("close"))
      server:await_metric("moonrelay_relays", { kind = "target" }, 0)
      closed:send("three", HOST, port)
      closed:expect("three", HOST, port)
      assert.equal(0, blocked:waiting())
    end)
    game:close()
  end)

  it("a_daemon_ends_with_everything_under_way", function()
    local names = resolver.new { ["h.fleet"] = "hang" }
    with_port([[
      relay.after(0, function() relay.open { peer = "127.0.0.9:4000", port = ev.port, target = "h.fleet:7000" } end)
      relay.after(0, function() relay.open { peer = "127.0.0.9:4001" } end)
      relay.after(0, function() relay.resolve "h.fleet" end)
      relay.after(0, function() relay.udp():send("x", "h.fleet", 7000) end)
      relay.open { peer = "127.0.0.9:4002", port = ev.port, target = "h.fleet:7000" }
      return { target = "h.fleet:7000" }]], names:options {}, function(server, port)
      server.base_fds = server.base_fds + 1 -- the endpoint
      udp.open():send("x", HOST, port)
      loop.wait(function() return names:calls("h.fleet") == 4 end, "four lookups that hang")
    end)
    names:close()
  end)

  it("the_balancer_of_the_cookbook_runs_as_it_is", function()
    local one, two = echo("127.0.0.51"), echo("127.0.0.52")
    loop.keep(one)
    loop.keep(two)
    local number = udp.free_port()
    local proxy = ([[local relay = require "relay"
local servers
return {
  load = function(cfg) servers = cfg.servers end,
  drop = function(ev)
    if ev.port ~= 7777 then return end
    local n = tonumber(relay.crypto.hex(relay.crypto.hmac_sha256("pick", ev.sender.net)):sub(1, 6), 16)
    return { target = servers[n %% #servers + 1], idle = 60, slots = { ["ip/" .. ev.sender.net] = 16 } }
  end,
}]]):gsub("7777", number)
    local text = ("return { policies = { { './proxy.lua', servers = { %q, %q } } }, ports = { [%d] = {} } }")
      :format(one.text, two.text, number)
    daemon.with({ config = text, files = { ["proxy.lua"] = proxy:gsub("%%%%", "%%") },
      set = { udp_host = HOST } }, function()
      for i = 1, 24 do
        local client = udp.open("127.0.1." .. i)
        client:send("hello " .. i, HOST, number)
        client:expect("hello " .. i, HOST, number)
      end
      assert.equal(24, one.ports + two.ports)
      assert.is_true(one.ports > 0 and two.ports > 0)
    end)
    one:close()
    two:close()
  end)
end)

describe("open ports", function()
  it("a_reload_changes_open_ports_and_loses_no_datagram", function()
    local game = echo()
    loop.keep(game)
    local number = udp.free_port()
    local function ports(list) return ("return { policies = {}, ports = { %s } }"):format(list) end
    local to = ("{ target = %q, idle = 4 }"):format(game.text)
    local set = { control = false, hold_time = "8s", udp_host = HOST }
    daemon.with({ config = ports("[0] = " .. to), set = set }, function(server)
      local first, client, late = server.open_ports[1], udp.open(), udp.open()
      local sent = 0
      local function play(port)
        sent = sent + 1
        client:send("ping " .. sent, HOST, port)
        client:expect("ping " .. sent, HOST, port)
      end
      play(first)
      local file = assert(io.open(server.dir .. "/moonrelay.lua", "w"))
      file:write(ports(("[%d] = %s"):format(number, to)))
      file:close()
      server:signal_with("sighup")
      loop.wait(function()
        play(first) -- all the while
        return server:stdout():find("reload: open ports[^\n]*opened=1 closed=0 draining=1")
      end, "the end of the reload")
      late:send("nobody takes this", HOST, first)
      server:await_metric("moonrelay_drops_total", { reason = "new_flow" }, 1)
      for _ = 1, 20 do play(first) end
      late:send("new", HOST, number)
      late:expect("new", HOST, number)
      assert.equal(2, server:metric("moonrelay_ports", { state = "open" }))
      server:await_metric("moonrelay_ports", { state = "open" }, 1) -- with its last flow
      server:await_metric("moonrelay_relays", { kind = "target" }, 0)
    end)
    game:close()
  end)

  it("a_start_that_cannot_have_an_open_port_says_which", function()
    local other = udp.open("0.0.0.0")
    local function start(ports, set)
      local args = { "serve", "--config", "m.lua" }
      for key, value in pairs { socket_port = "0", http_port = "0", udp_registrar_port = "0", control = "",
        udp_relay_ports = set or "0+3" } do
        args[#args + 1] = "--set"
        args[#args + 1] = key .. "=" .. value
      end
      return daemon.run(args, { files = { ["m.lua"] = "return { policies = {},\n ports = {\n" .. ports .. " } }" } })
    end
    local r = start(("[%d] = {}"):format(other.port))
    assert.equal(1, r.code)
    assert.truthy(r.stderr:find(("moonrelay: m.lua:3: ports[%d]: 0.0.0.0:%d/udp cannot be opened: "):format(other.port,
      other.port), 1, true), r.stderr)
    r = start("[40000] = {}", "40000-40001")
    assert.equal(2, r.code)
    assert.truthy(r.stderr:find("m.lua:3: ports[40000] is among udp_relay_ports", 1, true), r.stderr)
    r = start("[7777] = { idel = 3 }")
    assert.equal(2, r.code)
    assert.truthy(r.stderr:find("m.lua:3: ports[7777]: the unknown key idel; did you mean idle?", 1, true), r.stderr)
  end)
end)
