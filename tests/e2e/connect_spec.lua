-- SPDX-License-Identifier: MIT
-- connect and connect-relay: who is told what, and when not.
--
-- What is held here, and by which test:
--   connect tells both the other's address               connect_tells_both_the_other_ones_address
--   addresses as the registrar saw them, as they move    connect_tells_where_the_registrar_saw_them_last
--   words after the oid                                  words_after_the_oid_are_no_part_of_it
--   connect-relay tells both a bare port                 connect_relay_tells_each_the_other_ones_port
--   idempotent while the relays live                     connect_relay_again_gives_the_same_two_ports
--   asked by many at once: one creation per address      asking_many_times_at_once_makes_one_relay_each
--   a host's port is one for all of its clients          every_client_of_a_host_is_told_the_same_port
--   one's own oid                                        a_connection_to_oneself_is_told_both_lines
--                                                        a_relay_to_oneself_is_an_echo
--   errors in the order checked                          errors_come_in_the_order_that_is_documented
--   connect nope: one error, no connect line             an_unknown_oid_is_one_error_and_no_connect_line
--   connect without an oid                               a_missing_oid_is_an_unknown_one
--   connect = relay                                      connect_by_relay_tells_the_address_that_was_reached
--   public_address                                       a_public_address_is_told_instead
--   different families                                   players_of_different_families_meet_at_the_relay
--   v4-mapped addresses                                  a_v4_player_of_a_dual_stack_listener_is_told_as_v4
--   both relays or none                                  when_only_one_port_is_left_neither_is_taken
--                                                        no_port_at_all_is_no_ports
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local daemon = require "daemon"
local netfox = require "netfox"
local player = require "player"
local tcp = require "tcp"
local udp = require "udp"

describe("connecting", function()
  local server

  setup(function() server = daemon.start() end)
  teardown(function() server:stop() end)
  after_each(function() server:after_case() end)

  it("connect_tells_both_the_other_ones_address", function()
    local host = player.join(server, { udp_ip = "127.0.0.21" })
    local client = player.join(server, { udp_ip = "127.0.0.22" })
    client:send("connect " .. host.oid)
    client.tcp:expect("connect " .. host.udp.text)
    host.tcp:expect("connect " .. client.udp.text)
    client.tcp:expect_nothing_more()
    host.tcp:expect_nothing_more()
  end)

  it("connect_tells_where_the_registrar_saw_them_last", function()
    local host, client = player.join(server), player.join(server)
    for i = 1, 3 do
      host.udp, client.udp = udp.open("127.0.1." .. i), udp.open("127.0.2." .. i)
      host:register()
      client:register()
      client:send("connect " .. host.oid)
      client.tcp:expect("connect " .. host.udp.text)
      host.tcp:expect("connect " .. client.udp.text)
    end
  end)

  it("words_after_the_oid_are_no_part_of_it", function()
    local host, client = player.join(server), player.join(server)
    client:send("connect " .. host.oid .. " game=chess password=x y")
    client.tcp:expect("connect " .. host.udp.text)
    host.tcp:expect("connect " .. client.udp.text)
    client:send("connect-relay " .. host.oid .. " a=b")
    client.tcp:expect_match("^connect%-relay %d+$")
    host.tcp:expect_match("^connect%-relay %d+$")
  end)

  it("connect_relay_tells_each_the_other_ones_port", function()
    local pair = player.pair(server)
    local inside = {}
    for _, port in ipairs(server.relay_ports) do inside[port] = true end
    assert.is_true(inside[pair.host_port] and inside[pair.client_port])
    assert.are_not.equal(pair.host_port, pair.client_port)
    pair.host.tcp:expect_nothing_more()
    pair.client.tcp:expect_nothing_more()
    player.exchange(pair)
  end)

  it("connect_relay_again_gives_the_same_two_ports", function()
    local pair = player.pair(server)
    local relays = server:metric("noray_relay_count")
    for _ = 1, 3 do
      local again = player.relay(pair.client, pair.host)
      assert.same({ pair.host_port, pair.client_port }, { again.host_port, again.client_port })
    end
    local back = player.relay(pair.host, pair.client)
    assert.same({ pair.client_port, pair.host_port }, { back.host_port, back.client_port })
    assert.equal(relays, server:metric("noray_relay_count"))
    player.exchange(pair)
  end)

  it("asking_many_times_at_once_makes_one_relay_each", function()
    local host = player.join(server)
    local clients = {}
    local relays = server:metric("noray_relay_count")
    for i = 1, 5 do clients[i] = player.join(server) end
    for _, client in ipairs(clients) do client.tcp:send(("connect-relay " .. host.oid .. "\n"):rep(4)) end
    local host_port = clients[1].tcp:line()
    for i, client in ipairs(clients) do
      for _ = i == 1 and 2 or 1, 4 do client.tcp:expect(host_port) end
    end
    local told = {}
    for _ = 1, 20 do
      local line = host.tcp:line()
      told[line] = (told[line] or 0) + 1
    end
    local different = 0
    for _, n in pairs(told) do
      assert.equal(4, n)
      different = different + 1
    end
    assert.equal(5, different)
    assert.equal(relays + 6, server:metric("noray_relay_count"))
  end)

  it("every_client_of_a_host_is_told_the_same_port", function()
    local host = player.join(server)
    local pairs_of_host = {}
    for i = 1, 4 do pairs_of_host[i] = player.relay(player.join(server), host) end
    for i, pair in ipairs(pairs_of_host) do
      assert.equal(pairs_of_host[1].host_port, pair.host_port)
      player.exchange(pair, "for client " .. i)
    end
  end)

  it("a_connection_to_oneself_is_told_both_lines", function()
    local alone = player.join(server)
    alone:send("connect " .. alone.oid)
    alone.tcp:expect("connect " .. alone.udp.text)
    alone.tcp:expect("connect " .. alone.udp.text)
    alone.tcp:expect_nothing_more()
  end)

  it("a_relay_to_oneself_is_an_echo", function()
    local alone = player.join(server)
    local relays = server:metric("noray_relay_count")
    alone:send("connect-relay " .. alone.oid)
    local port = tonumber((alone.tcp:expect_match("^connect%-relay (%d+)$")))
    alone.tcp:expect("connect-relay " .. port)
    assert.equal(relays + 1, server:metric("noray_relay_count"))
    alone.udp:send("hello myself", server.command.ip, port)
    alone.udp:expect("hello myself", server.command.ip, port)
  end)

  it("errors_come_in_the_order_that_is_documented", function()
    local client = assert(tcp.connect(server.command.ip, server.command.port))
    local host = player.join(server, { udp = false })
    for _, command in ipairs { "connect", "connect-relay" } do
      local nobody = assert(tcp.connect(server.command.ip, server.command.port))
      nobody:send(command .. " " .. host.oid .. "\n" .. command .. " nope\n" .. command .. "\n")
      for _ = 1, 3 do nobody:expect("error " .. command .. ":not-registered") end
    end
    local guest = player.join(server, { udp = false })
    for _, command in ipairs { "connect", "connect-relay" } do
      -- Neither has an address: the oid comes first, then the client, then the host.
      guest:send(command .. " nope")
      guest.tcp:expect("error " .. command .. ":unknown-oid")
      guest:send(command .. " " .. host.oid)
      guest.tcp:expect("error " .. command .. ":client-no-address")
    end
    guest.udp = udp.open()
    guest:register()
    for _, command in ipairs { "connect", "connect-relay" } do
      guest:send(command .. " nope")
      guest.tcp:expect("error " .. command .. ":unknown-oid")
      guest:send(command .. " " .. host.oid)
      guest.tcp:expect("error " .. command .. ":host-no-address")
    end
    host.tcp:expect_nothing_more()
    client:expect_nothing_more()
  end)

  it("an_unknown_oid_is_one_error_and_no_connect_line", function()
    local client = player.join(server)
    client:send("connect nope")
    client.tcp:expect("error connect:unknown-oid")
    for _, oid in ipairs { client.oid:lower() .. "x", client.oid .. "x", client.oid:sub(1, 20), client.pid,
      client.oid .. "\0", "\255", string.rep("o", 300) } do
      client:send("connect " .. oid)
      client.tcp:expect("error connect:unknown-oid")
    end
    client.tcp:expect_nothing_more()
  end)

  it("a_missing_oid_is_an_unknown_one", function()
    local client = player.join(server)
    client.tcp:send("connect\nconnect \nconnect-relay\nconnect-relay \n")
    client.tcp:expect("error connect:unknown-oid")
    client.tcp:expect("error connect:unknown-oid")
    client.tcp:expect("error connect-relay:unknown-oid")
    client.tcp:expect("error connect-relay:unknown-oid")
  end)

  -- The port in "connect ip:port", which must have the ip.
  local function port_of(line, ip)
    local prefix = "connect " .. ip .. ":"
    if line:sub(1, #prefix) ~= prefix then error("expected " .. prefix .. "…, got " .. line, 2) end
    return tonumber(line:sub(#prefix + 1))
  end

  it("connect_by_relay_tells_the_address_that_was_reached", function()
    daemon.with({ set = { connect = "relay" } }, function(mine)
      local host = player.join(mine, { ip = "127.0.0.8", registrar_ip = "127.0.0.1", udp_ip = "127.0.0.41" })
      local client = player.join(mine, { ip = "127.0.0.9", registrar_ip = "127.0.0.1", udp_ip = "127.0.0.42" })
      client:send("connect " .. host.oid)
      local host_port = port_of(client.tcp:line(), "127.0.0.9")
      local client_port = port_of(host.tcp:line(), "127.0.0.8")
      assert.are_not.equal(host_port, client_port)
      assert.are_not.equal(host.udp.port, host_port)
      player.exchange { client = client, host = host, host_port = host_port, client_port = client_port,
        ip = "127.0.0.1" }
      client:send("connect-relay " .. host.oid)
      client.tcp:expect("connect-relay " .. host_port)
      host.tcp:expect("connect-relay " .. client_port)
    end)
  end)

  it("a_public_address_is_told_instead", function()
    daemon.with({ set = { connect = "relay", public_address = "203.0.113.7" } }, function(mine)
      local pair = { host = player.join(mine), client = player.join(mine) }
      pair.client:send("connect " .. pair.host.oid)
      local host_port = port_of(pair.client.tcp:line(), "203.0.113.7")
      local client_port = port_of(pair.host.tcp:line(), "203.0.113.7")
      pair.host_port, pair.client_port, pair.ip = host_port, client_port, "127.0.0.1"
      player.exchange(pair)
    end)
  end)

  it("players_of_different_families_meet_at_the_relay", function()
    daemon.with({ set = { socket_host = "::", udp_host = "::", http_host = "::" } }, function(mine)
      local host = player.join(mine, { ip = "::1", udp_ip = "::1" })
      local client = netfox.connect("127.0.0.1", mine.command.port)
      client:register(mine.registrar.port)
      client:connect_nat(host.oid)
      local to_host = client:endpoint(client:command())
      assert.equal("127.0.0.1", to_host.ip)
      local client_port = port_of(host.tcp:line(), "[::1]")
      client.udp:send("from v4", to_host.ip, to_host.port)
      host.udp:expect("from v4", "::1", client_port)
      host.udp:send("from v6", "::1", client_port)
      client.udp:expect("from v6", "127.0.0.1", to_host.port)
      -- The other way round: the v6 player asks.
      host:send("connect " .. client.oid)
      assert.equal(client_port, port_of(host.tcp:line(), "[::1]"))
      assert.equal(to_host.port, client:endpoint(client:command()).port)
      -- The relay's ports are the same by connect-relay.
      client:connect_relay(host.oid)
      assert.same({ "connect-relay", tostring(to_host.port) }, { client:command() })
      host.tcp:expect("connect-relay " .. client_port)
      -- Two of one family are told each other.
      local third = player.join(mine, { ip = "::1", udp_ip = "::1" })
      third:send("connect " .. host.oid)
      third.tcp:expect("connect " .. host.udp.text)
      host.tcp:expect("connect " .. third.udp.text)
    end)
  end)

  it("a_v4_player_of_a_dual_stack_listener_is_told_as_v4", function()
    daemon.with({ set = { socket_host = "::", udp_host = "::", http_host = "::", loglevel = "debug" } },
      function(mine)
        local host, client = player.join(mine), player.join(mine)
        client:send("connect " .. host.oid)
        client.tcp:expect("connect " .. host.udp.text)
        host.tcp:expect("connect " .. client.udp.text)
        player.exchange(player.relay(client, host))
        assert.is_nil(mine:stdout():find("::ffff:", 1, true))
      end)
  end)

  it("when_only_one_port_is_left_neither_is_taken", function()
    daemon.with({ set = { udp_relay_ports = "0+2" }, control_pair = false }, function(mine)
      local pair = player.pair(mine)
      local one, two = player.join(mine), player.join(mine)
      for _ = 1, 3 do
        one:send("connect-relay " .. two.oid)
        one.tcp:expect("error connect-relay:no-ports")
      end
      mine:await_metric("noray_relay_count", {}, 2)
      mine:await_metric("moonrelay_ports", { state = "used" }, 2)
      two.tcp:expect_nothing_more()
      player.exchange(pair)
      -- One port is enough for one more who joins a host with a relay.
      player.exchange(player.relay(one, pair.host))
      assert.equal(3, mine:metric("noray_relay_count"))
    end)
  end)

  it("no_port_at_all_is_no_ports", function()
    daemon.with({ set = { udp_relay_ports = "0+1", connect = "relay" }, control_pair = false }, function(mine)
      local pair = player.pair(mine)
      local third = player.join(mine)
      third:send("connect-relay " .. pair.host.oid)
      third.tcp:expect("error connect-relay:no-ports")
      third:send("connect?q " .. pair.host.oid)
      third.tcp:expect("!q no-ports")
      pair.host.tcp:expect_nothing_more()
      player.exchange(pair)
    end)
  end)
end)
