-- SPDX-License-Identifier: MIT
-- The four limits on what a relay may send, in their order, and what its owner is told.
--
-- What is held here, and by which test:
--   a burst inside the default limit                      a_burst_of_64_kb_passes_at_the_default_limits
--   a burst above it                                      what_is_above_the_burst_is_dropped_as_bandwidth
--   a rate over time                                      a_spent_burst_comes_back_at_the_rate
--   the interval makes the burst                          a_longer_traffic_interval_allows_a_larger_burst
--   larger than the burst: never                          a_datagram_larger_than_the_burst_never_passes
--   only the sender is charged                            only_the_sender_is_charged
--   global bandwidth                                      the_global_limit_is_shared_by_all
--   ... fairly                                            ten_who_play_keep_their_share_while_one_floods
--   individual before global, nothing charged in vain     a_refused_datagram_is_charged_to_nobody
--   lifetime traffic, < and not <=                        lifetime_traffic_stops_below_its_limit
--   lifetime duration                                     lifetime_duration_stops_a_relay_at_its_age
--   a new connect-relay restarts lifetimes                (both)
--   told 5 minutes before                                 the_end_of_a_lifetime_is_told_5_minutes_before
--   limit <kind>, once per kind and 10 s                  a_limit_is_told_once_while_it_lasts
--   ... to the relay's owner                              the_latest_player_of_a_shared_relay_is_told
--   errors = off                                          errors_off_tells_no_limit
--   0 means none                                          a_limit_of_0_is_none
--   it is UDP payload that counts                         payload_is_counted_and_nothing_else
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local daemon = require "daemon"
local loop = require "loop"
local player = require "player"

local KIB = 1024

describe("a limit", function()
  -- Sends n datagrams of `size` bytes from `from` to a relay port as fast as it goes while the other side reads;
  -- returns how many arrived and how long it took until all were accounted for by a drop or an arrival.
  local function flood(server, from, to, port, n, size, reason)
    local before = server:metric("moonrelay_drops_total", { reason = reason })
    local began = loop.now()
    for i = 1, n do
      local head = string.format("%08d", i)
      from:send(head .. string.rep("x", size - 8), server.command.ip, port)
      if i % 16 == 0 then loop.turn() end
    end
    local arrived = 0
    loop.wait(function()
      arrived = arrived + #to:drain()
      return arrived + server:metric("moonrelay_drops_total", { reason = reason }) - before == n
    end, function() return "that all " .. n .. " are accounted for; " .. arrived .. " arrived" end)
    return arrived, loop.now() - began
  end

  it("a_burst_of_64_kb_passes_at_the_default_limits", function()
    daemon.with({}, function(server)
      local pair = player.pair(server)
      for _, size in ipairs { 1024, 512 } do
        local fresh = player.pair(server)
        local arrived = flood(server, fresh.client.udp, fresh.host.udp, fresh.host_port, 64 * KIB / size, size,
          "bandwidth")
        assert.equal(64 * KIB / size, arrived)
        fresh.client.tcp:expect_nothing_more()
      end
      player.exchange(pair)
    end)
  end)

  it("what_is_above_the_burst_is_dropped_as_bandwidth", function()
    daemon.with({}, function(server)
      local pair = player.pair(server)
      local arrived, took = flood(server, pair.client.udp, pair.host.udp, pair.host_port, 256, KIB, "bandwidth")
      assert.is_true(arrived >= 128, arrived .. " kB arrived of a burst of 128")
      -- What was earned while it was sent and waited in the socket is on top.
      assert.is_true(arrived <= 128 + math.ceil(took * 128), arrived .. " kB arrived in " .. took .. " s")
      pair.client.tcp:expect("limit bandwidth")
      loop.wait(function()
        pair.client.udp:send("later", pair.ip, pair.host_port)
        local datagram = pair.host.udp:try_recv(0.1)
        return datagram and datagram.data == "later"
      end, "a datagram after a pause")
      assert.equal(256 - arrived, server:metric("moonrelay_drops_total", { reason = "bandwidth" }))
    end)
  end)

  it("a_spent_burst_comes_back_at_the_rate", function()
    daemon.with({ set = { udp_relay_max_individual_traffic = "8kb" } }, function(server)
      local pair = player.pair(server)
      local began = loop.now()
      local arrived = flood(server, pair.client.udp, pair.host.udp, pair.host_port, 40, KIB, "bandwidth")
      assert.is_true(arrived >= 8)
      -- 16 kB more at 8 kB/s cannot come in less than 2 s after the burst was spent.
      loop.wait(function()
        pair.client.udp:send(string.rep("x", KIB), pair.ip, pair.host_port)
        arrived = arrived + #pair.host.udp:drain()
        return arrived >= 24
      end, "16 kB more")
      assert.is_true(loop.now() - began >= 1.9)
      pair.client.tcp:expect("limit bandwidth")
    end)
  end)

  it("a_longer_traffic_interval_allows_a_larger_burst", function()
    daemon.with({ set = { udp_relay_max_individual_traffic = "8kb", udp_relay_traffic_interval = "4s" } },
      function(server)
        local pair = player.pair(server)
        local arrived, took = flood(server, pair.client.udp, pair.host.udp, pair.host_port, 60, KIB, "bandwidth")
        assert.is_true(arrived >= 32, arrived .. " kB arrived of a burst of 32")
        assert.is_true(arrived <= 32 + math.ceil(took * 8), arrived .. " kB arrived in " .. took .. " s")
      end)
  end)

  it("a_datagram_larger_than_the_burst_never_passes", function()
    daemon.with({ set = { udp_relay_max_individual_traffic = "1kb" } }, function(server)
      local pair = player.pair(server)
      pair.client.udp:send(string.rep("x", KIB + 1), pair.ip, pair.host_port)
      server:await_metric("moonrelay_drops_total", { reason = "bandwidth" }, 1)
      -- It was charged nothing: the whole burst is still there.
      pair.client.udp:send(string.rep("y", KIB), pair.ip, pair.host_port)
      pair.host.udp:expect(string.rep("y", KIB))
    end)
  end)

  it("only_the_sender_is_charged", function()
    daemon.with({ set = { udp_relay_max_individual_traffic = "4kb" } }, function(server)
      local pair = player.pair(server)
      flood(server, pair.client.udp, pair.host.udp, pair.host_port, 16, KIB, "bandwidth")
      local arrived = flood(server, pair.host.udp, pair.client.udp, pair.client_port, 4, KIB, "bandwidth")
      assert.equal(4, arrived)
      pair.client.tcp:expect("limit bandwidth")
      pair.host.tcp:expect_nothing_more()
    end)
  end)

  it("the_global_limit_is_shared_by_all", function()
    daemon.with({ set = { udp_relay_max_global_traffic = "16kb" }, control_pair = false }, function(server)
      local one, two = player.pair(server), player.pair(server)
      local began = loop.now()
      local arrived = flood(server, one.client.udp, one.host.udp, one.host_port, 32, KIB, "global")
      arrived = arrived + flood(server, two.client.udp, two.host.udp, two.host_port, 32, KIB, "global")
      -- Each of the two may be let through a datagram into debt, for the sake of its share.
      local allowed = 16 + math.ceil((loop.now() - began) * 16) + 3
      assert.is_true(arrived >= 15, arrived .. " kB arrived of a burst of 16")
      assert.is_true(arrived <= allowed, arrived .. " kB arrived, allowed are " .. allowed)
      one.client.tcp:expect("limit global")
      assert.equal(0, server:metric("moonrelay_drops_total", { reason = "bandwidth" }))
    end)
  end)

  it("ten_who_play_keep_their_share_while_one_floods", function()
    local PLAYERS, HZ, SIZE, ROUNDS, LATE = 10, 60, 200, 90, 9
    local set = { udp_relay_max_global_traffic = tostring((PLAYERS + 1) * HZ * SIZE * 1.1),
      udp_relay_max_individual_traffic = "0" }
    daemon.with({ set = set, control_pair = false }, function(server)
      local flooder, pairs, arrived = player.pair(server), {}, {}
      for i = 1, PLAYERS do pairs[i], arrived[i] = player.pair(server), 0 end
      -- Everybody's datagram of a round, or those that are missing for good.
      local function receive(round)
        local missing = 0
        for i, pair in ipairs(pairs) do
          arrived[i] = arrived[i] + #pair.host.udp:drain()
          missing = math.max(missing, round - arrived[i])
        end
        return missing <= 0
      end
      local lost = 0
      for round = 1, ROUNDS do
        local next_at = loop.now() + 1 / HZ
        for _ = 1, 150 do flooder.client.udp:send(string.rep("f", KIB), pairs[1].ip, flooder.host_port) end
        for _, pair in ipairs(pairs) do pair.client.udp:send(string.rep("p", SIZE), pair.ip, pair.host_port) end
        -- Whoever has lost one is not waited for to the end of the test. A slow machine plays slower.
        if not loop.try(function() return receive(round - lost) end, 1) then lost = lost + 1 end
        loop.try(function() return loop.now() >= next_at end)
        if lost > LATE then break end
      end
      for i = 1, PLAYERS do
        assert.is_true(arrived[i] >= ROUNDS * 0.9, ("%d of %d of player %d arrived"):format(arrived[i], ROUNDS, i))
      end
      assert.is_true(server:metric("moonrelay_drops_total", { reason = "global" }) > 0)
      flooder.client.tcp:expect("limit global")
    end)
  end)

  it("a_refused_datagram_is_charged_to_nobody", function()
    daemon.with({ set = { udp_relay_max_individual_traffic = "2kb", udp_relay_max_global_traffic = "64kb" },
      control_pair = false }, function(server)
      local one = player.pair(server)
      local many = {}
      -- 200 kB are refused for the sender's own limit; the global budget must not have paid for them.
      flood(server, one.client.udp, one.host.udp, one.host_port, 200, KIB, "bandwidth")
      for i = 1, 20 do many[i] = player.pair(server) end
      for _, pair in ipairs(many) do pair.client.udp:send(string.rep("x", 2 * KIB), pair.ip, pair.host_port) end
      for _, pair in ipairs(many) do pair.host.udp:expect(string.rep("x", 2 * KIB)) end
      assert.equal(0, server:metric("moonrelay_drops_total", { reason = "global" }))
    end)
  end)

  it("lifetime_traffic_stops_below_its_limit", function()
    daemon.with({ set = { udp_relay_max_lifetime_traffic = "10kb" }, control_pair = false }, function(server)
      local pair = player.pair(server)
      local arrived = flood(server, pair.client.udp, pair.host.udp, pair.host_port, 20, KIB, "traffic")
      assert.equal(9, arrived)
      pair.client.tcp:expect("limit traffic")
      -- One byte less than the limit in all is the last that passes.
      pair.client.udp:send(string.rep("x", KIB), pair.ip, pair.host_port)
      pair.client.udp:send(string.rep("y", KIB - 1), pair.ip, pair.host_port)
      pair.host.udp:expect(string.rep("y", KIB - 1))
      -- The other side has its own lifetime.
      pair.host.udp:send("still here", pair.ip, pair.client_port)
      pair.client.udp:expect("still here")
      assert.equal(2, server:metric("noray_relay_count"))
      local again = player.relay(pair.client, pair.host)
      assert.same({ pair.host_port, pair.client_port }, { again.host_port, again.client_port })
      assert.equal(9, flood(server, pair.client.udp, pair.host.udp, pair.host_port, 12, KIB, "traffic"))
    end)
  end)

  -- Sends until the reason's counter has grown; returns when it was seen.
  local function until_dropped(server, pair, reason)
    local before = server:metric("moonrelay_drops_total", { reason = reason })
    return loop.wait(function()
      pair.client.udp:send("on and on", pair.ip, pair.host_port)
      if server:metric("moonrelay_drops_total", { reason = reason }) > before then return loop.now() end
    end, "a drop by " .. reason)
  end

  it("lifetime_duration_stops_a_relay_at_its_age", function()
    daemon.with({ set = { udp_relay_max_lifetime_duration = "2s" }, control_pair = false }, function(server)
      local asked = loop.now()
      local pair = player.pair(server)
      player.exchange(pair)
      assert.is_true(until_dropped(server, pair, "duration") - asked >= 2)
      pair.client.tcp:expect("limit duration")
      local again = player.relay(pair.client, pair.host)
      assert.same({ pair.host_port, pair.client_port }, { again.host_port, again.client_port })
      player.flush(pair)
      assert.equal(2, server:metric("noray_relay_count"))
    end)
  end)

  it("the_end_of_a_lifetime_is_told_5_minutes_before", function()
    daemon.with({ set = { udp_relay_max_lifetime_duration = "301s",
      udp_relay_max_individual_traffic = "0" }, control_pair = false }, function(server)
      local asked = loop.now()
      local pair = player.pair(server)
      loop.wait(function()
        pair.client.udp:send("on and on", pair.ip, pair.host_port)
        pair.host.udp:send("on and on", pair.ip, pair.client_port)
        return pair.client.tcp.buffer ~= "" and pair.host.tcp.buffer ~= ""
      end, "limit duration-soon")
      assert.is_true(loop.now() - asked >= 1)
      pair.client.tcp:expect("limit duration-soon")
      pair.host.tcp:expect("limit duration-soon")
      player.flush(pair)
    end)
  end)

  it("a_limit_is_told_once_while_it_lasts", function()
    daemon.with({ set = { udp_relay_max_individual_traffic = "2kb" }, control_pair = false }, function(server)
      local pair = player.pair(server)
      local began = loop.now()
      for _ = 1, 5 do flood(server, pair.client.udp, pair.host.udp, pair.host_port, 20, KIB, "bandwidth") end
      pair.client.tcp:expect("limit bandwidth")
      pair.client.tcp:expect_nothing_more()
      flood(server, pair.host.udp, pair.client.udp, pair.client_port, 20, KIB, "bandwidth")
      pair.host.tcp:expect("limit bandwidth")
      pair.host.tcp:expect_nothing_more()
      -- Of each relay once a second.
      local hits = server:metric("moonrelay_limit_hits_total", { kind = "bandwidth" })
      assert.is_true(hits >= 2 and hits <= 2 + 2 * (loop.now() - began), hits .. " hits")
    end)
  end)

  it("the_latest_player_of_a_shared_relay_is_told", function()
    daemon.with({ set = { udp_relay_max_individual_traffic = "2kb" }, control_pair = false }, function(server)
      local host, first = player.join(server), player.join(server)
      player.relay(first, host)
      local second = player.join(server, { udp = false })
      second.udp = first.udp
      second:register()
      local pair = player.relay(second, host)
      flood(server, pair.client.udp, pair.host.udp, pair.host_port, 20, KIB, "bandwidth")
      second.tcp:expect("limit bandwidth")
      second.tcp:expect_nothing_more()
      first.tcp:expect_nothing_more()
    end)
  end)

  it("errors_off_tells_no_limit", function()
    daemon.with({ set = { udp_relay_max_individual_traffic = "2kb", errors = "off" } }, function(server)
      local pair = player.pair(server)
      flood(server, pair.client.udp, pair.host.udp, pair.host_port, 20, KIB, "bandwidth")
      pair.client.tcp:expect_nothing_more()
    end)
  end)

  it("a_limit_of_0_is_none", function()
    daemon.with({ set = { udp_relay_max_individual_traffic = "0", udp_relay_max_global_traffic = "0",
      udp_relay_max_lifetime_traffic = "0", udp_relay_max_lifetime_duration = "0" } }, function(server)
      local pair = player.pair(server)
      -- Paced to the buffers: 2 MiB in rounds that the receiver has read before the next one.
      for _ = 1, 32 do
        for _ = 1, 64 do pair.client.udp:send(string.rep("x", KIB), pair.ip, pair.host_port) end
        for _ = 1, 64 do pair.host.udp:expect(string.rep("x", KIB)) end
      end
      pair.client.tcp:expect_nothing_more()
    end)
  end)

  it("payload_is_counted_and_nothing_else", function()
    daemon.with({ set = { udp_relay_max_individual_traffic = "1kb" } }, function(server)
      local pair = player.pair(server)
      -- Empty datagrams cost nothing, with 100 of one byte the burst is not used up by their headers.
      for _ = 1, 100 do pair.client.udp:send("", pair.ip, pair.host_port) end
      for _ = 1, 100 do pair.client.udp:send("x", pair.ip, pair.host_port) end
      for _ = 1, 100 do pair.host.udp:expect("") end
      for _ = 1, 100 do pair.host.udp:expect("x") end
    end)
  end)
end)
