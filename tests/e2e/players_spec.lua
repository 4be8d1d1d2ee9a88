-- SPDX-License-Identifier: MIT
-- Players whom policies and operators refuse, end or count, in the running daemon.
--
-- What is held here, and by which test:
--   quota, ticket                                         refused_tickets_leave_no_slot_behind
--   kick, then go on and register again                   who_is_kicked_gets_nothing_through_until_he_registers_anew
--   block by tag                                          who_is_blocked_by_tag_is_out_and_his_neighbour_plays_on
--   block by address                                      a_blocked_address_is_refused_everywhere_until_it_ends
--   one address                                           thirty_players_on_one_address_play
--   4 KiB of dots                                         meta_of_dots_against_a_pattern_delays_nobody
local daemon = require "daemon"
local loop = require "loop"
local operator = require "operator"
local player = require "player"
local tcp = require "tcp"
local traffic = require "traffic"
local udp = require "udp"

-- HS256 with the key "sesame": { sub = "alice" }, { sub = "bob" }.
local ALICE = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbGljZSJ9.e1ljKpCSxG38M_78Nfi_JUkzGHbtlTeK-iCqpFt-2H4"

local USERS = [[return { register = function(ev) return { tags = { user = ev.meta.user } } end }]]

local function connect(server, from)
  return assert(tcp.connect(server.command.ip, server.command.port, { from = from }))
end

local function with(opts, fn)
  opts = operator.options(opts)
  daemon.with(opts, function(server)
    local game = opts.control_pair ~= false and traffic.start(player.pair(server, opts.game))
    fn(server)
    if game then game:stop() end
  end)
end

-- Goes on sending for a while; whether anything came through to the other side.
local function keeps_sending(from, pair, port, to)
  to:drain()
  for i = 1, 50 do
    from:send("still here " .. i, pair.ip, port)
    loop.turn()
  end
  return to:try_recv(0.5) ~= nil
end

describe("players", function()
  it("refused_tickets_leave_no_slot_behind", function()
    with({ env = { TICKET_KEY = "sesame" }, control_pair = false, config = [[return { policies = {
      { "quota", per_ip = 2, sessions_per_ip = 2 }, { "ticket", key = env "TICKET_KEY" } } }]] }, function(server)
      local client = connect(server)
      for _ = 1, 100 do
        client:send("register-host ticket=bad\n")
        client:expect("error register-host:rejected:ticket-malformed")
      end
      for _ = 1, 3 do
        local one = player.join(server, { words = "ticket=" .. ALICE })
        local two = player.join(server, { words = "ticket=" .. ALICE })
        client:send("register-host ticket=" .. ALICE .. "\n")
        client:expect("error register-host:full:sessions/127.0.0.1")
        player.exchange(player.relay(two, one))
        one:leave()
        two:leave()
        -- Their slots are free at once, those of their relays when these end.
        server:await_metric("noray_active_hosts", {}, 0)
        server:await_metric("noray_relay_count", {}, 0)
      end
    end)
  end)

  it("who_is_kicked_gets_nothing_through_until_he_registers_anew", function()
    with({ files = { ["users.lua"] = USERS }, config = [[return { policies = { "./users.lua", "dynamic" } }]] },
      function(server)
        local host, bad = player.join(server), player.join(server, { words = "user=bad", udp_ip = "127.66.70.1" })
        local pair = player.relay(bad, host)
        player.exchange(pair)
        local listed, ids = operator.does(server, "sessions", "--json"), {}
        for id, oid in listed:gmatch('"id": "(%d+)",%s+"oid": "([^"]+)"') do ids[oid] = id end
        assert.is_string(ids[bad.oid], listed)
        operator.does(server, "kick", ids[bad.oid])
        bad.tcp:expect_match("^error session:kicked")
        assert.is_false(keeps_sending(bad.udp, pair, pair.host_port, host.udp))
        -- He may come again: only a block keeps him out.
        local again = player.join(server, { words = "user=bad" })
        player.exchange(player.relay(again, host))
      end)
  end)

  it("who_is_blocked_by_tag_is_out_and_his_neighbour_plays_on", function()
    with({ files = { ["users.lua"] = USERS }, config = [[return { policies = { "./users.lua", "dynamic" } }]] },
      function(server)
        local host = player.join(server)
        local alice, bob = player.join(server, { words = "user=alice" }), player.join(server, { words = "user=bob" })
        local one, two = player.relay(alice, host), player.relay(bob, host)
        player.exchange(one)
        player.exchange(two)
        local relays = server:metric("noray_relay_count")
        operator.does(server, "block", "user=alice", "3s")
        alice.tcp:expect("error session:blocked")
        assert.is_false(keeps_sending(alice.udp, one, one.host_port, host.udp))
        assert.is_true(server:metric("noray_relay_count") < relays)
        player.exchange(two)
        local client = connect(server)
        client:send("register-host user=alice\n")
        client:expect("error register-host:blocked")
        relays = server:metric("noray_relay_count")
        -- Her client goes on: from the same socket, and with the id that it has.
        alice.udp:send(alice.pid, server.registrar.ip, server.registrar.port)
        assert.is_false(keeps_sending(alice.udp, one, one.host_port, host.udp))
        assert.is_true(server:metric("noray_relay_count") <= relays)
        player.exchange(two)
        loop.wait(function()
          client:send("register-host user=alice\n")
          return client:line():find("^set%-oid ")
        end, "the end of the block")
        player.exchange(two)
      end)
  end)

  it("a_blocked_address_is_refused_everywhere_until_it_ends", function()
    with({}, function(server)
      local host = player.join(server)
      local bad = player.join(server, { tcp_ip = "127.66.71.1" })
      local pair = player.relay(bad, host)
      player.exchange(pair)
      operator.does(server, "block", "127.66.71.0/24", "1h")
      bad.tcp:expect("error session:blocked")
      assert.is_false(keeps_sending(bad.udp, pair, pair.host_port, host.udp))
      local fresh = udp.open("127.66.71.9")
      assert.is_false(keeps_sending(fresh, pair, pair.host_port, host.udp))
      local ok, client = pcall(connect, server, "127.66.71.2")
      if ok then
        client:send("register-host\n")
        loop.wait(function() return client.ended or client:line():find("blocked", 1, true) end, "a refusal")
      end
      assert.is_true(server:metric("moonrelay_blocks") >= 1)
      operator.does(server, "unblock", "127.66.71.0/24")
      player.exchange(player.relay(player.join(server, { tcp_ip = "127.66.71.3" }), host))
    end)
  end)

  it("thirty_players_on_one_address_play", function()
    with({ set = { udp_relay_ports = "0+127" } }, function(server)
      local host, players, TRIES = player.join(server), {}, 3
      for i = 1, 30 do players[i] = player.join(server) end
      -- More wrong codes than an address has in a minute: some of the answers are late, none is another one.
      for try = 1, TRIES do
        for _, p in ipairs(players) do p:send("connect " .. host.oid:sub(1, -1 - try)) end
      end
      for _, p in ipairs(players) do
        for _ = 1, TRIES do p.tcp:expect("error connect:unknown-oid", 30) end
      end
      assert.is_true(server:metric("moonrelay_limit_hits_total", { kind = "failed-oids" }) > 0)
      for _, p in ipairs(players) do
        local pair = player.relay(p, host)
        player.exchange(pair)
      end
    end)
  end)

  it("meta_of_dots_against_a_pattern_delays_nobody", function()
    with({ files = { ["dots.lua"] = [[return { register = function(ev)
        if ev.meta.t then
          local a, b = ev.meta.t:match("^(.-)%.(.-)%.(.+)=$")
          if not a then return false, "no-ticket" end
        end
      end }]] }, config = [[return { policies = { "./dots.lua", "dynamic" } }]], allow_log = { "dots" } },
      function(server)
        local clients, dots = {}, "t=" .. ("."):rep(4096 - 2)
        for i = 1, 64 do clients[i] = connect(server) end
        for _, client in ipairs(clients) do client:send("register-host " .. dots .. "\n") end
        -- The registrar answers in between, and whoever comes is let in.
        for _ = 1, 5 do player.join(server) end
        for _, client in ipairs(clients) do
          assert.truthy(client:line():find("^error register%-host:rejected:"))
          client:send("echo here\n")
          client:expect("echo here")
        end
      end)
  end)
end)
