-- SPDX-License-Identifier: MIT
-- How long a relay lives, and what becomes of its port.
--
-- What is held here, and by which test:
--   ends when idle for the timeout, not before            an_idle_relay_ends_and_not_before_its_timeout
--   one-way traffic keeps both alive                      one_way_traffic_keeps_both_relays_alive
--   a refused datagram keeps its sender's relay alive     a_refused_datagram_keeps_its_senders_relay_alive
--   connect-relay refreshes                               connect_relay_refreshes_a_quiet_pair
--   a port rests before it is used again                  a_stale_peer_does_not_reach_the_next_player
--                                                         a_freed_port_rests_for_twice_the_timeout
--   ... unless there is none                              a_resting_port_is_taken_early_when_there_is_none_else
--   drawn at random                                       ports_are_drawn_at_random
--   dynamic relays end as well                            a_dynamic_relay_ends_with_its_traffic
--   sessions do not end relays                            (registration_spec)
--   a relay's end frees its owner for another             a_player_whose_relay_ended_gets_a_new_one
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local daemon = require "daemon"
local loop = require "loop"
local player = require "player"
local udp = require "udp"

describe("a relay's life", function()
  -- Lets `seconds` pass while what the loop holds goes on.
  local function pass(seconds)
    loop.try(function() return false end, seconds)
  end

  it("an_idle_relay_ends_and_not_before_its_timeout", function()
    daemon.with({ set = { udp_relay_timeout = "1s" }, control_pair = false }, function(server)
      for _ = 1, 3 do
        local pair = player.pair(server)
        local last = loop.now()
        player.exchange(pair)
        server:await_metric("noray_relay_count", {}, 0)
        assert.is_true(loop.now() - last >= 1, "it lived for " .. loop.now() - last .. " s")
      end
      assert.equal(6, server:metric("noray_relay_expired"))
    end)
  end)

  it("one_way_traffic_keeps_both_relays_alive", function()
    local set = { udp_relay_timeout = "2s", udp_relay_max_individual_traffic = "0" }
    daemon.with({ set = set, control_pair = false }, function(server)
      local pair = player.pair(server)
      local ends = loop.now() + 6.5
      loop.wait(function()
        pair.client.udp:send("on and on", pair.ip, pair.host_port)
        return loop.now() >= ends
      end, "three timeouts", 20)
      assert.equal(2, server:metric("noray_relay_count"))
      player.flush(pair)
    end)
  end)

  it("a_refused_datagram_keeps_its_senders_relay_alive", function()
    daemon.with({ set = { udp_relay_timeout = "2s", udp_relay_max_lifetime_traffic = "100" }, control_pair = false },
      function(server)
        local pair = player.pair(server)
        local ends = loop.now() + 4.5
        loop.wait(function()
          pair.client.udp:send(string.rep("x", 100), pair.ip, pair.host_port)
          pair.host.udp:send(string.rep("x", 100), pair.ip, pair.client_port)
          return loop.now() >= ends
        end, "two timeouts", 20)
        assert.equal(0, pair.host.udp:waiting() + pair.client.udp:waiting())
        assert.equal(2, server:metric("noray_relay_count"))
        player.exchange(pair)
      end)
  end)

  it("connect_relay_refreshes_a_quiet_pair", function()
    daemon.with({ set = { udp_relay_timeout = "2s" }, control_pair = false }, function(server)
      local held = loop.try(function()
        local pair = player.pair(server)
        local first = loop.now()
        pass(1.2)
        local asked_at = loop.now()
        local again = player.relay(pair.client, pair.host)
        if loop.now() - first > 1.8 then return nil end -- this machine was too slow to ask in time
        assert.same({ pair.host_port, pair.client_port }, { again.host_port, again.client_port })
        pass(first + 2.4 - loop.now())
        if loop.now() - asked_at > 1.9 then return nil end
        player.exchange(pair)
        return true
      end, 30)
      assert.is_true(held)
    end)
  end)

  it("a_stale_peer_does_not_reach_the_next_player", function()
    daemon.with({ set = { udp_relay_timeout = "3s", udp_relay_ports = "0+3" }, control_pair = false },
      function(server)
        local old = player.pair(server)
        player.exchange(old)
        server:await_metric("noray_relay_count", {}, 0)
        local new = player.pair(server)
        for _, port in ipairs { old.host_port, old.client_port } do
          assert.are_not.equal(port, new.host_port)
          assert.are_not.equal(port, new.client_port)
        end
        local before = server:metrics():sum("moonrelay_drops_total")
        for i = 1, 20 do
          old.client.udp:send("stale " .. i, old.ip, old.host_port)
          old.host.udp:send("stale " .. i, old.ip, old.client_port)
        end
        -- Most as unknown_target, what is more than is held of one flow as hold_full.
        loop.wait(function() return server:metrics():sum("moonrelay_drops_total") >= before + 40 end, "forty drops")
        player.exchange(new)
        assert.equal(0, new.host.udp:waiting() + new.client.udp:waiting())
      end)
  end)

  it("a_freed_port_rests_for_twice_the_timeout", function()
    daemon.with({ set = { udp_relay_timeout = "1s", udp_relay_ports = "0+5" }, control_pair = false },
      function(server)
        local function states()
          local page = server:metrics()
          return page:value("moonrelay_ports", { state = "free" }),
            page:value("moonrelay_ports", { state = "quarantined" }), page:value("moonrelay_ports", { state = "used" })
        end
        assert.same({ 6, 0, 0 }, { states() })
        local pair = player.pair(server)
        assert.same({ 4, 0, 2 }, { states() })
        local last = loop.now()
        player.exchange(pair)
        server:await_metric("moonrelay_ports", { state = "used" }, 0)
        assert.same({ 4, 2, 0 }, { states() })
        server:await_metric("moonrelay_ports", { state = "free" }, 6)
        -- Idle for one timeout, at rest for two.
        assert.is_true(loop.now() - last >= 3, "free after " .. loop.now() - last .. " s")
      end)
  end)

  it("a_resting_port_is_taken_early_when_there_is_none_else", function()
    daemon.with({ set = { udp_relay_timeout = "1s", udp_relay_ports = "0+1" }, control_pair = false },
      function(server)
        for i = 1, 3 do
          local pair = player.pair(server)
          player.exchange(pair, "game " .. i)
          server:await_metric("noray_relay_count", {}, 0)
        end
      end)
  end)

  it("ports_are_drawn_at_random", function()
    daemon.with({ control_pair = false }, function(server)
      local last, rising, n = 0, 0, 0
      local place = {}
      for i, port in ipairs(server.relay_ports) do place[port] = i end
      local host = player.join(server)
      for _ = 1, 20 do
        local pair = player.relay(player.join(server), host)
        n = n + 1
        if place[pair.client_port] > last then rising = rising + 1 end
        last = place[pair.client_port]
      end
      -- 20 draws in order by chance: one in 20!.
      assert.is_true(rising < n)
    end)
  end)

  it("a_dynamic_relay_ends_with_its_traffic", function()
    daemon.with({ set = { udp_relay_timeout = "3s" }, control_pair = false,
      config = [[return { policies = { { "dynamic", from = "anyone" } } }]] }, function(server)
      local pair = player.pair(server)
      udp.open("127.66.11.1"):send("knock", pair.ip, pair.host_port)
      pair.host.udp:expect("knock")
      assert.equal(3, server:metric("noray_relay_count"))
      loop.wait(function()
        player.exchange(pair)
        return server:metric("moonrelay_relays", { kind = "dynamic" }) == 0
      end, "the end of the dynamic relay")
      assert.equal(2, server:metric("noray_relay_count"))
    end)
  end)

  it("a_player_whose_relay_ended_gets_a_new_one", function()
    daemon.with({ set = { udp_relay_timeout = "3s" }, control_pair = false }, function(server)
      local pair = player.pair(server)
      player.exchange(pair)
      server:await_metric("noray_relay_count", {}, 0)
      local again = player.relay(pair.client, pair.host)
      player.exchange(again)
      assert.equal(2, server:metric("noray_relay_count"))
    end)
  end)
end)
