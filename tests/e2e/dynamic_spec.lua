-- SPDX-License-Identifier: MIT
-- Dynamic relaying: what becomes of a datagram from an address that has no relay, by the shipped policy.
--
-- What is held here, and by which test:
--   an address with a session here is admitted            an_address_with_a_session_is_admitted_by_default
--   ... or had one in the last 10 minutes                 an_address_that_had_a_session_is_still_admitted
--   ... by its UDP address too                            the_registered_udp_address_counts_as_well
--   ... in either family                                  a_known_address_is_known_on_a_dual_stack_socket
--   others are not                                        a_stranger_is_not_admitted_by_default
--   from = "anyone"                                       three_strangers_are_relayed_within_the_range
--   paired with the port it knocked at                    a_dynamic_relay_is_paired_with_the_port_it_knocked_at
--   what came meanwhile is kept in order                  what_a_stranger_sent_first_arrives_in_order
--   bounded                                               only_so_much_is_held_and_the_rest_is_counted
--   twenty strangers at a range of eight                  strangers_leave_ports_for_players
--   half of the ports                                     strangers_get_half_of_the_ports_at_most
--   per source and per target                             strangers_are_capped_per_address_and_per_target
--   an exhausted pool is a counted drop                   (the three above)
--   never to an unknown target                            a_free_port_admits_nobody
--   never to a low port                                   a_source_below_port_1024_is_never_relayed_to
--   policies = {}                                         without_policies_strangers_are_dropped
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local uv = require "luv"
local daemon = require "daemon"
local loop = require "loop"
local player = require "player"
local udp = require "udp"

local ANYONE = [[return { policies = { { "dynamic", from = "anyone" } } }]]

describe("dynamic relaying", function()
  local function inside(server, port)
    for _, own in ipairs(server.relay_ports) do if own == port then return true end end
    return false
  end

  -- What a host receives from somebody who knocks: the port it comes from. nil: nothing came of it.
  local function knock(pair, socket, text)
    socket:send(text, pair.ip, pair.host_port)
    local datagram = pair.host.udp:recv()
    assert.equal(text, datagram.data)
    return datagram.port
  end

  local function answer(pair, port, socket, text)
    pair.host.udp:send(text, pair.ip, port)
    socket:expect(text, pair.ip, pair.host_port)
  end

  local function dropped(server)
    return server:metrics():sum("moonrelay_drops_total")
  end

  it("an_address_with_a_session_is_admitted_by_default", function()
    daemon.with({}, function(server)
      local pair = player.pair(server)
      player.join(server, { tcp_ip = "127.0.0.61", udp = false })
      local socket = udp.open("127.0.0.61")
      answer(pair, knock(pair, socket, "I came by TCP"), socket, "welcome")
    end)
  end)

  it("an_address_that_had_a_session_is_still_admitted", function()
    daemon.with({}, function(server)
      local pair = player.pair(server)
      local gone = player.join(server, { tcp_ip = "127.0.0.62", udp = false })
      local hosts = server:metric("noray_active_hosts")
      gone:leave()
      server:await_metric("noray_active_hosts", {}, hosts - 1)
      local socket = udp.open("127.0.0.62")
      answer(pair, knock(pair, socket, "I was here"), socket, "welcome back")
    end)
  end)

  it("the_registered_udp_address_counts_as_well", function()
    daemon.with({}, function(server)
      local pair = player.pair(server)
      player.join(server, { udp_ip = "127.0.0.63" })
      local socket = udp.open("127.0.0.63")
      answer(pair, knock(pair, socket, "from another port"), socket, "welcome")
    end)
  end)

  it("a_known_address_is_known_on_a_dual_stack_socket", function()
    daemon.with({ set = { socket_host = "::", udp_host = "::", http_host = "::" } }, function(server)
      local host = player.join(server, { ip = "::1", udp_ip = "::1" })
      local pair = player.relay(player.join(server), host)
      pair.client.udp:send("it is me", pair.ip, pair.host_port)
      host.udp:expect("it is me", "::1", pair.client_port)
      -- A v4 player from another port, to a host over v6.
      local socket = udp.open("127.0.0.1")
      socket:send("from v4", pair.ip, pair.host_port)
      local port = host.udp:expect("from v4", "::1").port
      assert.is_true(inside(server, port))
      host.udp:send("from v6", "::1", port)
      socket:expect("from v6", pair.ip, pair.host_port)
      local stranger = udp.open("127.66.1.2")
      stranger:send("let me in", pair.ip, pair.host_port)
      server:await_metric("moonrelay_drops_total", { reason = "unknown_sender" }, 1)
      assert.equal(0, host.udp:waiting())
    end)
  end)

  it("a_stranger_is_not_admitted_by_default", function()
    daemon.with({}, function(server)
      local pair = player.pair(server)
      local stranger = udp.open("127.66.1.1")
      local relays = server:metric("noray_relay_count")
      for i = 1, 5 do stranger:send("let me in " .. i, pair.ip, pair.host_port) end
      server:await_metric("moonrelay_drops_total", { reason = "unknown_sender" }, 5)
      player.exchange(pair)
      assert.equal(0, pair.host.udp:waiting())
      assert.equal(relays, server:metric("noray_relay_count"))
    end)
  end)

  it("three_strangers_are_relayed_within_the_range", function()
    daemon.with({ set = { udp_relay_ports = "0+7" }, config = ANYONE, control_pair = false }, function(server)
      local pair = player.pair(server)
      player.exchange(pair)
      local seen = { [pair.host_port] = true, [pair.client_port] = true }
      local strangers = {}
      for i = 1, 3 do
        local socket = udp.open("127.66.2." .. i)
        local port = knock(pair, socket, "stranger " .. i)
        assert.is_true(inside(server, port))
        assert.is_nil(seen[port])
        seen[port] = true
        strangers[i] = { socket = socket, port = port }
      end
      for i, stranger in ipairs(strangers) do
        answer(pair, stranger.port, stranger.socket, "hello " .. i)
        stranger.socket:send("again", pair.ip, pair.host_port)
        pair.host.udp:expect("again", pair.ip, stranger.port)
      end
      player.exchange(pair)
      assert.equal(5, server:metric("noray_relay_count"))
      assert.equal(3, server:metric("moonrelay_relays", { kind = "dynamic" }))
    end)
  end)

  it("a_dynamic_relay_is_paired_with_the_port_it_knocked_at", function()
    daemon.with({ config = ANYONE }, function(server)
      local one, two = player.pair(server), player.pair(server)
      local socket = udp.open("127.66.3.1")
      local port = knock(one, socket, "to one")
      -- The second game knows nothing of it: to them it is a player of another game.
      local before = server:metric("moonrelay_drops_total", { reason = "not_paired" })
      two.client.udp:send("not yours", two.ip, port)
      server:await_metric_at_least("moonrelay_drops_total", { reason = "not_paired" }, before + 1)
      assert.equal(0, socket:waiting())
      answer(one, port, socket, "yours")
      player.exchange(two)
    end)
  end)

  it("what_a_stranger_sent_first_arrives_in_order", function()
    daemon.with({ config = ANYONE }, function(server)
      local pair = player.pair(server)
      for round = 1, 10 do
        local socket = udp.open("127.66.4." .. round)
        for i = 1, 8 do socket:send(string.format("%d of round %d", i, round), pair.ip, pair.host_port) end
        local port
        for i = 1, 8 do
          port = pair.host.udp:expect(string.format("%d of round %d", i, round), pair.ip, port).port
        end
      end
      assert.equal(0, server:metric("moonrelay_held"))
    end)
  end)

  it("only_so_much_is_held_and_the_rest_is_counted", function()
    daemon.with({ set = { hold_datagrams = "2" }, config = ANYONE }, function(server)
      local pair = player.pair(server)
      local before = dropped(server)
      local sent, arrived = 0, 0
      for round = 1, 10 do
        local socket = udp.open("127.66.5." .. round)
        for i = 1, 50 do
          sent = sent + 1
          socket:send(string.format("%d %d", round, i), pair.ip, pair.host_port)
        end
      end
      loop.wait(function()
        for _, datagram in ipairs(pair.host.udp:drain()) do
          assert.is_truthy(datagram.data:find("^%d+ %d+$"))
          arrived = arrived + 1
        end
        return arrived + dropped(server) - before == sent
      end, function() return "that all are accounted for: " .. arrived .. " of " .. sent end)
      -- The first two of each are never lost.
      assert.is_true(arrived >= 20)
    end)
  end)

  it("strangers_leave_ports_for_players", function()
    daemon.with({ set = { udp_relay_ports = "0+7" }, config = ANYONE, control_pair = false }, function(server)
      local pair = player.pair(server)
      local before = dropped(server)
      for i = 1, 20 do udp.open("127.66.6." .. i):send("stranger " .. i, pair.ip, pair.host_port) end
      loop.wait(function()
        return dropped(server) - before + pair.host.udp:waiting() == 20
      end, "that all twenty are relayed or counted")
      local dynamic = server:metric("moonrelay_relays", { kind = "dynamic" })
      assert.equal(pair.host.udp:waiting(), dynamic)
      assert.is_true(dynamic >= 1 and dynamic <= 4, dynamic .. " dynamic relays of 8 ports")
      assert.is_true(server:metric("moonrelay_ports", { state = "free" }) >= 2)
      pair.host.udp:drain()
      player.exchange(pair)
      player.exchange(player.pair(server))
    end)
  end)

  it("strangers_get_half_of_the_ports_at_most", function()
    for _, case in ipairs { { share = "50", most = 8 }, { share = "25", most = 4 }, { share = "100", most = 12 } } do
      daemon.with({ set = { udp_relay_ports = "0+15", dynamic_share = case.share }, config = ANYONE,
        control_pair = false }, function(server)
        local pair = player.pair(server)
        local before = dropped(server)
        for i = 1, 30 do udp.open("127.66.7." .. i):send("stranger " .. i, pair.ip, pair.host_port) end
        loop.wait(function()
          return dropped(server) - before + pair.host.udp:waiting() == 30
        end, "that all thirty are relayed or counted")
        -- Two ports are the pair's and the last two free ones are nobody's but players'.
        assert.equal(case.most, server:metric("moonrelay_relays", { kind = "dynamic" }))
        assert.equal(case.most, pair.host.udp:waiting())
      end)
    end
  end)

  it("strangers_are_capped_per_address_and_per_target", function()
    daemon.with({ set = { dynamic_per_address = "2", dynamic_per_target = "3" }, config = ANYONE }, function(server)
      local one, two = player.pair(server), player.pair(server)
      local before = dropped(server)
      for _ = 1, 5 do udp.open("127.66.8.1"):send("one address", one.ip, one.host_port) end
      loop.wait(function() return dropped(server) - before == 3 end, "three refused")
      for _ = 1, 2 do one.host.udp:expect("one address") end
      for i = 2, 5 do udp.open("127.66.8." .. i):send("one target", one.ip, one.host_port) end
      loop.wait(function() return dropped(server) - before == 6 end, "three more refused")
      one.host.udp:expect("one target")
      udp.open("127.66.8.6"):send("another target", two.ip, two.host_port)
      two.host.udp:expect("another target")
      assert.equal(0, one.host.udp:waiting())
    end)
  end)

  it("a_free_port_admits_nobody", function()
    daemon.with({ config = ANYONE, set = { udp_relay_ports = "0+7" }, control_pair = false }, function(server)
      local pair = player.pair(server)
      local stranger = udp.open("127.66.9.1")
      for _, port in ipairs(server.relay_ports) do
        if port ~= pair.host_port and port ~= pair.client_port then stranger:send("hello", pair.ip, port) end
      end
      server:await_metric("moonrelay_drops_total", { reason = "unknown_target" }, 6)
      assert.equal(2, server:metric("noray_relay_count"))
      assert.equal(0, stranger:waiting())
    end)
  end)

  it("a_source_below_port_1024_is_never_relayed_to", function()
    if uv.getuid() ~= 0 then return pending("a low port needs root") end
    daemon.with({ config = ANYONE }, function(server)
      local pair = player.pair(server)
      local before, relays = dropped(server), server:metric("noray_relay_count")
      local low
      for port = 1022, 512, -1 do
        local ok, socket = pcall(udp.open, "127.66.9.3", port)
        if ok then
          low = socket
          break
        end
      end
      low:send("answer a service", pair.ip, pair.host_port)
      loop.wait(function() return dropped(server) == before + 1 end, "a drop")
      player.exchange(pair)
      assert.equal(0, pair.host.udp:waiting())
      assert.equal(relays, server:metric("noray_relay_count"))
    end)
  end)

  it("without_policies_strangers_are_dropped", function()
    daemon.with({ config = "return { policies = {} }" }, function(server)
      local pair = player.pair(server)
      player.exchange(pair) -- else one on his IP might be the client, seen through his NAT
      local known = udp.open("127.0.0.1")
      known:send("hello", pair.ip, pair.host_port)
      udp.open("127.66.9.2"):send("hello", pair.ip, pair.host_port)
      server:await_metric("moonrelay_drops_total", { reason = "unknown_sender" }, 2)
      player.exchange(pair)
      assert.equal(0, pair.host.udp:waiting())
    end)
  end)
end)
