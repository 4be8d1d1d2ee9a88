-- SPDX-License-Identifier: MIT
-- Players behind NATs that give each destination a port of its own, and NATs that change their mind. All kinds of
-- NAT against each other are in tests/unit/service/test_nat.c; here are real sockets and several workers.
--
-- What is held here, and by which test:
--   the host speaks from another port                     a_host_who_speaks_from_another_port_is_the_host
--   the client does                                       a_client_who_speaks_from_another_port_is_the_client
--   both do                                               two_who_speak_from_other_ports_reach_each_other
--   what was sent before the latch arrives in order       what_was_sent_at_once_arrives_in_order
--   the first such source, no other                       only_the_first_source_is_taken_for_a_player
--   a pair that has exchanged datagrams is unchanged      a_stranger_who_sprays_a_live_pair_is_nobody
--   no window                                             without_a_window_nobody_is_taken_for_a_player
--   undone when the registered address speaks             a_player_who_speaks_himself_is_where_he_registered
--   undone when the registrar moves the player            a_player_who_registers_anew_is_where_he_registered
--   ends with its relays                                  a_latch_ends_with_its_relays
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local daemon = require "daemon"
local loop = require "loop"
local player = require "player"
local udp = require "udp"

local HOST_IP, CLIENT_IP = "127.0.0.71", "127.0.0.72"
local NO_POLICY = "return { policies = {} }"

describe("a symmetric NAT", function()
  -- The daemon on an address where nobody else sends: datagrams are counted.
  local function with(opts, fn)
    opts.set = opts.set or {}
    opts.set.udp_host = daemon.HOST
    return daemon.with(opts, fn)
  end

  -- A pair whose players have not spoken, and a socket beside each one's: another mapping of his NAT.
  local function behind_nats(server)
    local pair = player.pair(server, { host = { tcp_ip = HOST_IP }, client = { tcp_ip = CLIENT_IP } })
    pair.host_nat, pair.client_nat = udp.open(HOST_IP), udp.open(CLIENT_IP)
    return pair
  end

  local function to_client(pair, from, text, at)
    from:send(text, pair.ip, pair.client_port)
    at:expect(text, pair.ip, pair.host_port)
  end

  local function to_host(pair, from, text, at)
    from:send(text, pair.ip, pair.host_port)
    at:expect(text, pair.ip, pair.client_port)
  end

  it("a_host_who_speaks_from_another_port_is_the_host", function()
    with({}, function(server)
      local pair = behind_nats(server)
      to_client(pair, pair.host_nat, "from the host", pair.client.udp)
      to_host(pair, pair.client.udp, "to the host", pair.host_nat)
      assert.same({}, pair.host.udp:drain())
      assert.equal(1, server:metric("moonrelay_latches"))
      assert.equal(0, server:metric("moonrelay_relays", { kind = "dynamic" }))
    end)
  end)

  it("a_client_who_speaks_from_another_port_is_the_client", function()
    with({ config = NO_POLICY }, function(server)
      local pair = behind_nats(server)
      to_host(pair, pair.client_nat, "from the client", pair.host.udp)
      to_client(pair, pair.host.udp, "to the client", pair.client_nat)
    end)
  end)

  it("two_who_speak_from_other_ports_reach_each_other", function()
    with({ set = { workers = "2" } }, function(server)
      local pair = behind_nats(server)
      to_client(pair, pair.host_nat, "am I heard?", pair.client.udp) -- where he has registered
      to_host(pair, pair.client_nat, "yes", pair.host_nat)
      for i = 1, 20 do
        to_client(pair, pair.host_nat, "down " .. i, pair.client_nat)
        to_host(pair, pair.client_nat, "up " .. i, pair.host_nat)
      end
    end)
  end)

  it("what_was_sent_at_once_arrives_in_order", function()
    with({}, function(server)
      local pair = behind_nats(server)
      for i = 1, 8 do pair.host_nat:send("held " .. i, pair.ip, pair.client_port) end
      for i = 1, 8 do pair.client.udp:expect("held " .. i, pair.ip, pair.host_port) end
    end)
  end)

  it("only_the_first_source_is_taken_for_a_player", function()
    with({ config = NO_POLICY }, function(server)
      local pair = behind_nats(server)
      to_client(pair, pair.host_nat, "I am the host", pair.client.udp)
      local before = server:metric("moonrelay_drops_total", { reason = "unknown_sender" })
      udp.open(HOST_IP):send("no, I am", pair.ip, pair.client_port)
      server:await_metric("moonrelay_drops_total", { reason = "unknown_sender" }, before + 1)
      to_host(pair, pair.client.udp, "to the host", pair.host_nat)
      to_client(pair, pair.host_nat, "I still am", pair.client.udp)
    end)
  end)

  it("a_stranger_who_sprays_a_live_pair_is_nobody", function()
    with({ config = NO_POLICY }, function(server)
      local pair = behind_nats(server)
      player.exchange(pair)
      local function dropped() return server:metrics():sum("moonrelay_drops_total") end
      local before = dropped()
      for _ = 1, 20 do
        for _ = 1, 25 do
          pair.host_nat:send("I am the host", pair.ip, pair.client_port)
          pair.client_nat:send("I am the client", pair.ip, pair.host_port)
        end
        before = before + 50 -- unknown_sender, or hold_full of those that wait for that
        loop.wait(function() return dropped() == before end, "every datagram is dropped")
        player.exchange(pair) -- at once, so that a busy machine does not end an idle relay
      end
      assert.equal(0, server:metric("moonrelay_latches"))
    end)
  end)

  it("without_a_window_nobody_is_taken_for_a_player", function()
    with({ config = NO_POLICY, set = { latch_window = "0" } }, function(server)
      local pair = behind_nats(server)
      local before = server:metric("moonrelay_drops_total", { reason = "unknown_sender" })
      pair.host_nat:send("I am the host", pair.ip, pair.client_port)
      server:await_metric("moonrelay_drops_total", { reason = "unknown_sender" }, before + 1)
      player.exchange(pair)
    end)
  end)

  it("a_player_who_speaks_himself_is_where_he_registered", function()
    with({ config = NO_POLICY }, function(server)
      local pair = behind_nats(server)
      to_client(pair, pair.host_nat, "from another port", pair.client.udp)
      to_client(pair, pair.host.udp, "from my own", pair.client.udp)
      server:await_metric("moonrelay_latches", {}, 0)
      to_host(pair, pair.client.udp, "to your own", pair.host.udp)
      pair.host_nat:send("me again", pair.ip, pair.client_port)
      player.exchange(pair)
      assert.same({}, pair.client.udp:drain())
    end)
  end)

  it("a_player_who_registers_anew_is_where_he_registered", function()
    with({ config = NO_POLICY }, function(server)
      local pair = behind_nats(server)
      to_client(pair, pair.host_nat, "from another port", pair.client.udp)
      local third = udp.open(HOST_IP)
      pair.host:register(third)
      to_host(pair, pair.client.udp, "to the new one", third)
      to_client(pair, third, "from the new one", pair.client.udp)
      assert.equal(0, server:metric("moonrelay_latches"))
    end)
  end)

  it("a_latch_ends_with_its_relays", function()
    with({ config = NO_POLICY, control_pair = false,
      set = { udp_relay_ports = "0+1", udp_relay_timeout = "3s" } }, function(server)
      local pair = behind_nats(server)
      to_client(pair, pair.host_nat, "from another port", pair.client.udp)
      server:await_metric("noray_relay_count", {}, 0)
      assert.equal(0, server:metric("moonrelay_latches"))
      local next_pair = player.pair(server, { tcp_ip = "127.0.0.73" })
      for _, port in ipairs { pair.client_port, pair.host_port } do
        pair.host_nat:send("late", pair.ip, port)
        pair.host.udp:send("late", pair.ip, port)
      end
      player.exchange(next_pair)
      assert.same({}, next_pair.host.udp:drain())
      assert.same({}, next_pair.client.udp:drain())
    end)
  end)
end)
