-- SPDX-License-Identifier: MIT
-- The registrar: one UDP port where players show the address they play from.
--
-- What is held here, and by which test:
--   OK, the first time and on every repeat               a_known_pid_is_answered_ok_every_time
--   from the socket and the address that was asked       the_answer_leaves_from_the_address_that_was_asked
--   Unknown host pid!                                    an_unknown_pid_of_the_right_length_is_told
--   only to a PID's length, of at least 17 bytes         anything_else_is_met_with_silence
--                                                        short_pids_are_never_told_unknown
--   within a budget per source                           unknown_pids_are_answered_within_a_budget_per_address
--   a valid PID is always answered                       a_valid_pid_is_answered_whatever_junk_comes_from_its_address
--   from a thousand sources: bytes out <= bytes in       a_thousand_sources_of_junk_get_less_than_they_send
--   late replies bounce                                  replies_that_bounce_disturb_nothing
--   no reply provokes another (own tuples dropped)       a_datagram_forged_from_our_own_address_is_dropped
--   newline, NUL, space, case, closed connection         what_differs_from_a_pid_in_one_byte_is_none
--                                                        the_pid_of_a_closed_connection_is_none
--   not from a port below 1024                           a_source_below_port_1024_is_not_served
--   a known PID from another source moves the player     a_moved_player_keeps_his_relay_and_its_port
--   moved: the player's own port wins over a dynamic     a_players_own_port_wins_over_a_dynamic_one_at_his_address
--   a dynamic relay becomes the player's                 a_dynamic_relay_becomes_its_players_at_connect_relay
--   two PIDs on one address                              two_players_on_one_address_share_one_relay
--   a move brings two relays to one address              two_relays_at_one_address_both_deliver_to_it
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local uv = require "luv"
local daemon = require "daemon"
local forge = require "forge"
local loop = require "loop"
local player = require "player"
local udp = require "udp"

local UNKNOWN = "Unknown host pid!"

describe("the registrar", function()
  local server

  setup(function()
    server = daemon.start { set = { registrar_errors_per_second = "10" },
      config = [[return { policies = { { "dynamic", from = "anyone" } } }]] }
  end)
  teardown(function() server:stop() end)
  after_each(function() server:after_case() end)

  local serial = 0
  -- A source address that no other test has used up the budget of.
  local function stranger()
    serial = serial + 1
    return udp.open("127.0.7." .. serial)
  end

  local function ask(socket, data, where)
    where = where or server
    return socket:send(data, where.registrar.ip, where.registrar.port)
  end

  -- What has a PID's length and is none.
  local function pid_like(i)
    return string.rep("0", 120) .. string.format("%08d", i)
  end

  -- Everything that was sent before has been looked at: a later datagram to the same socket has its answer.
  local function barrier(where)
    local known = player.join(where or server)
    known:register()
    known:leave()
  end

  local function expect_silence(socket, where)
    barrier(where)
    local got = socket:drain()[1]
    assert.is_nil(got, got and string.format("an answer: %q", got.data))
  end

  it("a_known_pid_is_answered_ok_every_time", function()
    local client = player.join(server)
    for _ = 1, 20 do ask(client.udp, client.pid) end
    for _ = 1, 20 do client.udp:expect("OK", server.registrar.ip, server.registrar.port) end
    client.tcp:expect_nothing_more()
  end)

  it("the_answer_leaves_from_the_address_that_was_asked", function()
    local client = player.join(server, { udp = false })
    local socket = udp.open("127.0.0.1")
    for _, ip in ipairs { "127.0.0.1", "127.0.0.5", "127.4.5.6" } do
      socket:send(client.pid, ip, server.registrar.port)
      socket:expect("OK", ip, server.registrar.port)
    end
    socket:send(string.rep("x", 128), "127.0.0.9", server.registrar.port)
    socket:expect(UNKNOWN, "127.0.0.9", server.registrar.port)
  end)

  it("an_unknown_pid_of_the_right_length_is_told", function()
    local socket = stranger()
    ask(socket, string.rep("x", 128))
    socket:expect(UNKNOWN, server.registrar.ip, server.registrar.port)
    ask(socket, string.rep("\0", 128))
    socket:expect(UNKNOWN)
  end)

  it("anything_else_is_met_with_silence", function()
    local socket = stranger()
    for _, n in ipairs { 0, 1, 2, 16, 17, 21, 127, 129, 256, 1400, 9000, 65507 } do
      assert(ask(socket, string.rep("x", n)))
    end
    ask(socket, "OK")
    ask(socket, UNKNOWN)
    expect_silence(socket)
  end)

  it("short_pids_are_never_told_unknown", function()
    daemon.with({ set = { pid_length = "16" } }, function(mine)
      local socket = stranger()
      ask(socket, string.rep("x", 16), mine)
      expect_silence(socket, mine)
    end)
    daemon.with({ set = { pid_length = "17" } }, function(mine)
      local socket = stranger()
      ask(socket, string.rep("x", 17), mine)
      socket:expect(UNKNOWN)
    end)
  end)

  it("unknown_pids_are_answered_within_a_budget_per_address", function()
    local limited = server:metric("moonrelay_registrar_total", { result = "limited" })
    local socket, neighbour = stranger(), stranger()
    local began = loop.now()
    for i = 1, 200 do ask(socket, pid_like(i)) end
    barrier()
    local allowed = 10 + math.ceil((loop.now() - began) * 10) + 1
    local answers = #socket:drain()
    assert.is_true(answers >= 10, "a burst of ten is answered, here " .. answers)
    assert.is_true(answers <= allowed, answers .. " answers, allowed are " .. allowed)
    assert.equal(200 - answers, server:metric("moonrelay_registrar_total", { result = "limited" }) - limited)
    ask(neighbour, string.rep("x", 128))
    neighbour:expect(UNKNOWN)
  end)

  it("a_valid_pid_is_answered_whatever_junk_comes_from_its_address", function()
    local client = player.join(server, { udp_ip = "127.0.6.1" })
    local junk = udp.open("127.0.6.1")
    for i = 1, 500 do ask(junk, pid_like(i)) end
    ask(client.udp, client.pid)
    client.udp:expect("OK")
  end)

  it("a_thousand_sources_of_junk_get_less_than_they_send", function()
    -- Of each kind by itself: what large junk is worth must not pay for answers to small junk.
    local KINDS = { "", "x", string.rep("y", 1400), string.rep("z", 128) }
    local sent, received, memory = {}, {}, nil
    for block = 0, 9 do
      local sockets = {}
      for i = 1, 100 do
        local kind, socket = i % #KINDS + 1, udp.open(string.format("127.9.%d.%d", block, i))
        for _ = 1, 4 do ask(socket, KINDS[kind]) end
        sent[kind] = (sent[kind] or 0) + 4 * #KINDS[kind]
        sockets[i] = { socket, kind }
      end
      barrier()
      for _, one in ipairs(sockets) do
        local socket, kind = one[1], one[2]
        for _, datagram in ipairs(socket:drain()) do received[kind] = (received[kind] or 0) + #datagram.data end
        socket:close()
        loop.keep(socket)
      end
      if block == 4 then memory = server:memory() end
    end
    for kind, bytes in ipairs(sent) do
      assert.is_true((received[kind] or 0) <= bytes, #KINDS[kind] .. " bytes are answered by more")
    end
    assert.is_true((received[4] or 0) > 0, "not one answer was seen")
    -- Nobody is remembered but in a table that is as large as it is.
    local growth = server:memory() - memory
    assert.is_true(growth < 2 * 1024 * 1024, "500 more sources grew the process by " .. growth .. " bytes")
  end)

  it("replies_that_bounce_disturb_nothing", function()
    local client = player.join(server)
    local pair = player.pair(server)
    for i = 1, 100 do
      local gone = udp.open(string.format("127.8.%d.1", i))
      ask(gone, i % 2 == 0 and client.pid or pid_like(i))
      gone:close()
      loop.keep(gone)
    end
    client:register() -- one move at a time: he may have to ask again
    player.exchange(pair)
  end)

  it("a_datagram_forged_from_our_own_address_is_dropped", function()
    if not forge.is_allowed() then return pending("forging a source needs root") end
    local r, relays = server.registrar.port, server.relay_ports
    local silent = server:metric("moonrelay_registrar_total", { result = "silent" })
    local own = server:metric("moonrelay_drops_total", { reason = "own_address" })
    local out = server:metrics():sum("moonrelay_relays")
    forge.send("127.0.0.1", r, "127.0.0.1", r, string.rep("x", 128))
    forge.send("127.0.0.1", relays[1], "127.0.0.1", r, string.rep("x", 128))
    server:await_metric("moonrelay_registrar_total", { result = "silent" }, silent + 2)
    forge.send("127.0.0.1", relays[1], "127.0.0.1", relays[2], "loop")
    forge.send("127.0.0.1", relays[1], "127.0.0.1", relays[1], "loop")
    forge.send("127.0.0.1", r, "127.0.0.1", relays[2], "loop")
    local pair = player.pair(server)
    -- Both a free port and one in use.
    forge.send("127.0.0.1", relays[1], "127.0.0.1", pair.host_port, "loop")
    forge.send("127.0.0.1", r, "127.0.0.1", pair.host_port, "loop")
    server:await_metric_at_least("moonrelay_drops_total", { reason = "own_address" }, own + 2)
    assert.equal(out + 2, server:metrics():sum("moonrelay_relays"))
    player.exchange(pair)
    assert.equal(0, pair.host.udp:waiting())
    assert.equal(0, pair.client.udp:waiting())
  end)

  it("what_differs_from_a_pid_in_one_byte_is_none", function()
    local host = player.join(server)
    local client = player.join(server, { udp = false })
    local socket = stranger()
    for _, suffix in ipairs { "\n", "\r\n", "\0", " " } do ask(socket, client.pid .. suffix) end
    ask(socket, " " .. client.pid)
    ask(socket, "\0" .. client.pid)
    ask(socket, client.pid:sub(1, 127))
    expect_silence(socket)
    local swapped = client.pid:gsub("%a", function(c) return c:upper() == c and c:lower() or c:upper() end)
    for _, data in ipairs { swapped, client.pid:reverse(), client.pid:sub(1, 127) .. "\0",
      (client.pid:sub(1, 127) .. (client.pid:sub(128) == "a" and "b" or "a")) } do
      ask(socket, data)
      socket:expect(UNKNOWN)
    end
    client:send("connect " .. host.oid)
    client.tcp:expect("error connect:client-no-address")
  end)

  it("an_oid_is_no_pid", function()
    daemon.with({ set = { oid_length = "20", pid_length = "20" } }, function(mine)
      local client = player.join(mine)
      local socket = stranger()
      ask(socket, client.oid, mine)
      socket:expect(UNKNOWN)
    end)
  end)

  it("the_pid_of_a_closed_connection_is_none", function()
    local client = player.join(server, { udp_ip = stranger().ip })
    client.tcp:close()
    loop.keep(client.tcp)
    loop.wait(function()
      ask(client.udp, client.pid)
      return client.udp:recv().data == UNKNOWN
    end, "that the PID ends with its connection")
  end)

  it("a_source_below_port_1024_is_not_served", function()
    if uv.getuid() ~= 0 then return pending("a low port needs root") end
    local host = player.join(server)
    local client = player.join(server, { udp = false })
    local low
    for port = 1023, 512, -1 do
      local ok, socket = pcall(udp.open, "127.0.7.250", port)
      if ok then
        low = socket
        break
      end
    end
    assert.is_truthy(low)
    ask(low, client.pid)
    ask(low, string.rep("x", 128))
    expect_silence(low)
    client:send("connect " .. host.oid)
    client.tcp:expect("error connect:client-no-address")
    daemon.with({ set = { allow_low_ports = "on" } }, function(mine)
      local other = player.join(mine, { udp = false })
      ask(low, other.pid, mine)
      low:expect("OK")
    end)
  end)

  it("a_moved_player_keeps_his_relay_and_its_port", function()
    local pair = player.pair(server)
    player.exchange(pair)
    local before = server:metric("noray_relay_count")
    local old = pair.host.udp
    pair.host.udp = udp.open("127.0.0.31")
    pair.host:register()
    -- OK is sent when the move is in force.
    player.exchange(pair)
    player.exchange(pair)
    assert.equal(0, old:waiting())
    assert.equal(before, server:metric("noray_relay_count"))
    pair.client:send("connect-relay " .. pair.host.oid)
    pair.client.tcp:expect("connect-relay " .. pair.host_port)
    pair.host.tcp:expect("connect-relay " .. pair.client_port)
    pair.client:send("connect " .. pair.host.oid)
    pair.client.tcp:expect("connect " .. pair.host.udp.text)
  end)

  it("a_move_is_counted_apart_from_a_repeat", function()
    local client = player.join(server)
    local function results()
      local page = server:metrics()
      return page:value("moonrelay_registrar_total", { result = "ok" }),
        page:value("moonrelay_registrar_total", { result = "repeat" }),
        page:value("moonrelay_registrar_total", { result = "moved" })
    end
    local ok, again, moved = results()
    client:register()
    assert.same({ ok, again + 1, moved }, { results() })
    client:register(udp.open("127.0.0.32"))
    assert.same({ ok, again + 1, moved + 1 }, { results() })
  end)

  -- A stranger at the host's port gets a dynamic relay; returns its port.
  local function knock(pair, socket)
    socket:send("knock", pair.ip, pair.host_port)
    local datagram = pair.host.udp:recv()
    assert.equal("knock", datagram.data)
    return datagram.port
  end

  it("a_players_own_port_wins_over_a_dynamic_one_at_his_address", function()
    local pair = player.pair(server)
    local socket = udp.open("127.0.0.33")
    local dynamic_port = knock(pair, socket)
    assert.are_not.equal(pair.client_port, dynamic_port)
    local relays = server:metric("noray_relay_count")
    pair.client.udp = socket
    pair.client:register()
    player.exchange(pair)
    server:await_metric("noray_relay_count", {}, relays - 1)
    assert.equal(0, socket:waiting())
  end)

  it("a_dynamic_relay_becomes_its_players_at_connect_relay", function()
    local pair = player.pair(server)
    local third = player.join(server, { udp_ip = "127.0.0.34" })
    local dynamic_port = knock(pair, third.udp)
    local page = server:metrics()
    local dynamic = page:value("moonrelay_relays", { kind = "dynamic" })
    local players = page:value("moonrelay_relays", { kind = "player" })
    local own = player.relay(third, pair.host)
    assert.equal(dynamic_port, own.client_port)
    page = server:metrics()
    assert.equal(dynamic - 1, page:value("moonrelay_relays", { kind = "dynamic" }))
    assert.equal(players + 1, page:value("moonrelay_relays", { kind = "player" }))
    player.exchange(own)
    player.exchange(pair)
  end)

  it("two_players_on_one_address_share_one_relay", function()
    local host = player.join(server)
    local first = player.join(server)
    local second = player.join(server, { udp = false })
    second.udp = first.udp
    second:register()
    local relays = server:metric("noray_relay_count")
    local one, two = player.relay(first, host), player.relay(second, host)
    assert.equal(one.client_port, two.client_port)
    assert.equal(relays + 2, server:metric("noray_relay_count"))
    player.exchange(one)
    player.exchange(two)
  end)

  it("two_relays_at_one_address_both_deliver_to_it", function()
    local host = player.join(server)
    local first, second = player.join(server), player.join(server)
    local one, two = player.relay(first, host), player.relay(second, host)
    assert.are_not.equal(one.client_port, two.client_port)
    second.udp = first.udp
    second:register()
    local shared = first.udp
    host.udp:send("to the first", one.ip, one.client_port)
    shared:expect("to the first", one.ip, one.host_port)
    host.udp:send("to the second", two.ip, two.client_port)
    shared:expect("to the second", two.ip, two.host_port)
    shared:send("from both", one.ip, one.host_port)
    host.udp:expect("from both", one.ip, two.client_port)
  end)
end)
