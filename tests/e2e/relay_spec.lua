-- SPDX-License-Identifier: MIT
-- Forwarding: a datagram goes from the sender's port to the target's address, byte for byte, within pairs only.
--
-- What is held here, and by which test:
--   both directions, each seen at its own port            both_sides_see_each_other_at_the_other_ones_port
--   either side may send first                            either_side_may_speak_first
--   payloads of 0 to 65,507 bytes                         payloads_of_every_size_arrive_byte_for_byte
--   64 sizes in one burst                                 sizes_mixed_in_one_burst_arrive_byte_for_byte_and_in_order
--   one's own port echoes                                 a_players_own_port_gives_back_what_he_sends
--   strangers at a live pair (RTPbleed)                   a_stranger_at_both_ports_of_a_pair_reaches_nobody
--   within pairs only                                     a_player_of_another_game_reaches_nobody
--   a whole range sprayed                                 a_sprayed_range_reaches_no_other_game
--   pairing = open                                        open_pairing_lets_every_player_reach_every_port
--   a free port: counted, no ICMP                         a_free_port_is_silent_and_counted
--                                                         a_port_that_was_freed_is_as_silent
--   a peer's closed socket                                a_peers_closed_socket_costs_its_datagrams_only
--   ICMP errors                                           errors_from_a_closed_peer_disturb_no_other_relay
--   a host with many clients                              a_host_tells_its_clients_apart_by_their_ports
--   workers                                               any_number_of_workers_relays_the_same
--   relay ports leave the address to the routes           (the source is 127.0.0.1 in every exchange above)
--   mixed families                                        (connect_spec)
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local daemon = require "daemon"
local loop = require "loop"
local player = require "player"
local udp = require "udp"

-- No limit is to be met where sizes are.
local UNLIMITED = { udp_relay_max_individual_traffic = "0", udp_relay_max_global_traffic = "0" }

describe("relaying", function()
  local server

  setup(function() server = daemon.start { set = UNLIMITED } end)
  teardown(function() server:stop() end)
  after_each(function() server:after_case() end)

  local function drops(reason)
    return server:metric("moonrelay_drops_total", { reason = reason })
  end

  it("both_sides_see_each_other_at_the_other_ones_port", function()
    local pair = player.pair(server, { host = { udp_ip = "127.0.0.51" }, client = { udp_ip = "127.0.0.52" } })
    for i = 1, 50 do player.exchange(pair, "round " .. i) end
  end)

  it("either_side_may_speak_first", function()
    local pair = player.pair(server)
    pair.host.udp:send("host first", pair.ip, pair.client_port)
    pair.client.udp:expect("host first", pair.ip, pair.host_port)
    pair = player.pair(server)
    pair.client.udp:send("client first", pair.ip, pair.host_port)
    pair.host.udp:expect("client first", pair.ip, pair.client_port)
  end)

  -- A payload in which every byte tells its place.
  local function payload(n, seed)
    local bytes = {}
    for i = 1, n do bytes[i] = string.char((i * 31 + math.floor(i / 256) * 7 + seed) % 256) end
    return table.concat(bytes)
  end

  it("payloads_of_every_size_arrive_byte_for_byte", function()
    local pair = player.pair(server)
    for i, n in ipairs { 0, 1, 2, 63, 64, 65, 511, 1400, 1472, 1473, 2047, 2048, 2049, 4096, 8972, 9000, 16384, 32768,
      65507 } do
      player.exchange(pair, payload(n, i))
    end
  end)

  it("sizes_mixed_in_one_burst_arrive_byte_for_byte_and_in_order", function()
    local pair = player.pair(server)
    for round = 1, 5 do
      local sent = {}
      for i = 1, 64 do
        -- Coprime to 64: 64 different sizes in a mixed order, from nothing to above a page.
        sent[i] = payload(((i * 37) % 64) * 71, round)
        pair.client.udp:send(sent[i], pair.ip, pair.host_port)
      end
      for i = 1, 64 do pair.host.udp:expect(sent[i], pair.ip, pair.client_port) end
    end
    assert.equal(0, pair.host.udp:waiting())
  end)

  it("the_largest_datagrams_among_small_ones_are_never_truncated", function()
    local pair = player.pair(server)
    for round = 1, 5 do
      local sent = {}
      for i, n in ipairs { 20, 65507, 0, 9000, 1, 65507, 1472 } do sent[i] = payload(n, round * 10 + i) end
      for _, data in ipairs(sent) do pair.host.udp:send(data, pair.ip, pair.client_port) end
      for _, data in ipairs(sent) do pair.client.udp:expect(data, pair.ip, pair.host_port) end
    end
    assert.equal(0, drops("truncated"))
  end)

  it("a_players_own_port_gives_back_what_he_sends", function()
    local pair = player.pair(server)
    pair.client.udp:send("echo to me", pair.ip, pair.client_port)
    pair.client.udp:expect("echo to me", pair.ip, pair.client_port)
    pair.host.udp:send("and to me", pair.ip, pair.host_port)
    pair.host.udp:expect("and to me", pair.ip, pair.host_port)
    player.exchange(pair)
  end)

  it("a_stranger_at_both_ports_of_a_pair_reaches_nobody", function()
    local pair = player.pair(server)
    player.exchange(pair)
    local stranger = udp.open("127.66.0.1")
    local function refused() return drops "unknown_sender" + drops "event_full" + drops "hold_full" end
    local before, relays = refused(), server:metric("noray_relay_count")
    for i = 1, 1000 do
      stranger:send("spray " .. i, pair.ip, i % 2 == 0 and pair.host_port or pair.client_port)
      if i % 100 == 0 then player.exchange(pair) end
    end
    loop.wait(function() return refused() >= before + 1000 end, "that every datagram is counted")
    player.exchange(pair)
    assert.equal(0, pair.host.udp:waiting() + pair.client.udp:waiting() + stranger:waiting())
    -- Relays of earlier games may end meanwhile; none is made.
    assert.is_true(server:metric("noray_relay_count") <= relays)
    local again = player.relay(pair.client, pair.host)
    assert.same({ pair.host_port, pair.client_port }, { again.host_port, again.client_port })
  end)

  it("a_player_of_another_game_reaches_nobody", function()
    local one = player.pair(server)
    -- The games are played from different addresses; the shipped policy knows both.
    local two = player.pair(server, { host = { udp_ip = "127.0.0.53" }, client = { udp_ip = "127.0.0.54" } })
    local before = drops "not_paired"
    for _, port in ipairs { one.host_port, one.client_port } do
      two.client.udp:send("not yours", two.ip, port)
      two.host.udp:send("not yours", two.ip, port)
    end
    server:await_metric("moonrelay_drops_total", { reason = "not_paired" }, before + 4)
    player.exchange(one)
    player.exchange(two)
    for _, pair in ipairs { one, two } do
      assert.equal(0, pair.host.udp:waiting() + pair.client.udp:waiting())
    end
  end)

  it("a_sprayed_range_reaches_no_other_game", function()
    local mine = player.pair(server)
    local games = {}
    for i = 1, 5 do games[i] = player.pair(server) end
    local stranger = udp.open("127.66.0.2")
    local counted = { "not_paired", "unknown_sender", "unknown_target", "hold_full", "event_full" }
    local function count()
      local sum = 0
      for _, reason in ipairs(counted) do sum = sum + drops(reason) end
      return sum
    end
    local before, not_paired, unknown = count(), drops "not_paired", drops "unknown_sender"
    for round = 1, 5 do
      for _, port in ipairs(server.relay_ports) do
        mine.client.udp:send("from game 1", mine.ip, port)
        stranger:send("from nowhere", mine.ip, port)
      end
      -- Of the player's, what went to his own two ports passes.
      loop.wait(function() return count() >= before + round * (2 * #server.relay_ports - 2) end, "that all are counted")
      for _, game in ipairs(games) do player.exchange(game) end -- at once: a busy machine lets time for idleness pass
    end
    assert.is_true(drops "not_paired" >= not_paired + 10)
    assert.is_true(drops "unknown_sender" >= unknown + 10)
    for _, game in ipairs(games) do
      player.exchange(game)
      assert.equal(0, game.host.udp:waiting() + game.client.udp:waiting())
    end
    assert.equal(0, stranger:waiting())
  end)

  it("open_pairing_lets_every_player_reach_every_port", function()
    daemon.with({ set = { pairing = "open" } }, function(mine)
      local one, two = player.pair(mine), player.pair(mine)
      player.exchange(one)
      two.client.udp:send("a visit", one.ip, one.host_port)
      one.host.udp:expect("a visit", one.ip, two.client_port)
      one.host.udp:send("welcome", one.ip, two.client_port)
      two.client.udp:expect("welcome", one.ip, one.host_port)
      one.client.udp:send("to me", one.ip, one.client_port)
      one.client.udp:expect("to me", one.ip, one.client_port)
    end)
  end)

  it("a_free_port_is_silent_and_counted", function()
    daemon.with({ control_pair = false }, function(mine)
      local pair = player.pair(mine)
      local port
      for _, one in ipairs(mine.relay_ports) do
        if one ~= pair.host_port and one ~= pair.client_port then port = one end
      end
      local stranger = udp.open("127.66.0.3")
      stranger:connect(pair.ip, port)
      for _ = 1, 8 do stranger:send("anybody?") end -- as many as are held of one flow
      pair.client.udp:send("anybody?", pair.ip, port)
      mine:await_metric("moonrelay_drops_total", { reason = "unknown_target" }, 9)
      assert.equal(0, stranger:waiting())
      assert.same({}, stranger.errors)
      player.exchange(pair)
    end)
  end)

  it("a_port_that_was_freed_is_as_silent", function()
    daemon.with({ control_pair = false, set = { udp_relay_timeout = "1s" } }, function(mine)
      local pair = player.pair(mine)
      player.exchange(pair)
      mine:await_metric("noray_relay_count", {}, 0)
      local stranger = udp.open("127.66.0.3")
      stranger:connect(pair.ip, pair.host_port)
      for _ = 1, 8 do stranger:send("anybody?") end
      mine:await_metric("moonrelay_drops_total", { reason = "unknown_target" }, 8)
      assert.equal(0, stranger:waiting())
      assert.same({}, stranger.errors)
    end)
  end)

  it("a_port_without_a_socket_does_answer_with_an_icmp_error", function()
    -- What the test above would see if a free port were closed.
    local closed = udp.open()
    local nobody = closed.port
    closed:close()
    loop.keep(closed)
    local other = udp.open("127.66.0.3")
    other:connect("127.0.0.1", nobody)
    loop.wait(function()
      other:send("anybody?")
      return #other.errors > 0
    end, "an ICMP error from a closed port")
  end)

  it("a_peers_closed_socket_costs_its_datagrams_only", function()
    local pair = player.pair(server)
    player.exchange(pair)
    local ip, port = pair.host.udp.ip, pair.host.udp.port
    pair.host.udp:close()
    loop.keep(pair.host.udp)
    for i = 1, 100 do pair.client.udp:send("lost " .. i, pair.ip, pair.host_port) end
    local other = player.pair(server)
    player.exchange(other)
    pair.client.udp:send("echo", pair.ip, pair.client_port)
    pair.client.udp:expect("echo")
    pair.host.udp = udp.open(ip, port)
    for i = 1, 20 do player.exchange(pair, "after it came back " .. i) end
  end)

  it("errors_from_a_closed_peer_disturb_no_other_relay", function()
    local host = player.join(server)
    local gone, here = player.join(server), player.join(server)
    local to_gone, to_here = player.relay(gone, host), player.relay(here, host)
    gone.udp:close()
    loop.keep(gone.udp)
    -- Both leave through the host's port: its socket collects the errors of one and must not lose what is for the
    -- other.
    for i = 1, 200 do
      host.udp:send("to nobody", host.server.command.ip, to_gone.client_port)
      host.udp:send("to somebody " .. i, host.server.command.ip, to_here.client_port)
      if i % 20 == 0 then
        for k = i - 19, i do here.udp:expect("to somebody " .. k, to_here.ip, to_here.host_port) end
      end
    end
    player.exchange(to_here)
  end)

  it("any_number_of_workers_relays_the_same", function()
    for _, workers in ipairs { "1", "2", "4" } do
      daemon.with({ set = { workers = workers, udp_relay_ports = "0+31" } }, function(mine)
        local host = player.join(mine)
        local games = {}
        for i = 1, 8 do games[i] = player.relay(player.join(mine), host) end
        for i = 9, 12 do games[i] = player.pair(mine) end
        for round = 1, 10 do
          for i, game in ipairs(games) do game.client.udp:send(i .. " " .. round, game.ip, game.host_port) end
          local wanted = {}
          for i = 1, 8 do wanted[games[i].client_port .. " " .. i .. " " .. round] = true end
          for _ = 1, 8 do
            local got = host.udp:recv()
            assert.is_true(wanted[got.port .. " " .. got.data])
            wanted[got.port .. " " .. got.data] = nil
          end
          for i = 9, 12 do games[i].host.udp:expect(i .. " " .. round, nil, games[i].client_port) end
        end
        -- A host that moves takes all of its games along, whichever worker has their ports.
        host.udp = udp.open("127.0.0.55")
        host:register()
        for _, game in ipairs(games) do player.exchange(game) end
      end)
    end
  end)

  it("a_host_tells_its_clients_apart_by_their_ports", function()
    local host = player.join(server)
    local games = {}
    for i = 1, 8 do games[i] = player.relay(player.join(server), host) end
    for i, game in ipairs(games) do game.client.udp:send("I am " .. i, game.ip, game.host_port) end
    local by_port = {}
    for _ = 1, 8 do
      local datagram = host.udp:recv()
      by_port[datagram.port] = datagram.data
    end
    for i, game in ipairs(games) do
      assert.equal("I am " .. i, by_port[game.client_port])
      host.udp:send("you are " .. i, game.ip, game.client_port)
    end
    for i, game in ipairs(games) do game.client.udp:expect("you are " .. i, game.ip, game.host_port) end
  end)
end)
