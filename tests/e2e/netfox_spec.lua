-- SPDX-License-Identifier: MIT
-- Two games with netfox's exact bytes over the real daemon: register, punch, fall back to the relay, play.
--
-- What is held here, and by which test:
--   two unmodified games meet and play over `connect`     two_games_punch_and_play
--   the relay is the fallback when the punch fails        a_punch_that_fails_falls_back_to_the_relay
--   the host's handshake cannot read (over ENet)          a_host_that_cannot_read_its_socket_is_reached_over_the_relay
--   both sides read, both see "$rwx"                      two_games_that_read_see_each_other_over_the_relay
--   several clients of one host                           three_clients_play_with_one_host
--   connect = relay with an unmodified game               an_unmodified_game_plays_through_connect_by_relay
--   v4 and v6 players, by connect                         players_of_different_families_play_through_the_relay
--   a policy's via = "relay"                              a_policy_sends_an_unmodified_game_over_the_relay
--   netfox's parser on every line                         netfox_finds_the_error_code_in_the_word_after_the_command
--   `register-host ` with a space, as older games send it an_older_games_registration_with_a_space_is_one
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local daemon = require "daemon"
local loop = require "loop"
local netfox = require "netfox"
local tcp = require "tcp"

describe("netfox", function()
  local server

  setup(function() server = daemon.start { set = { udp_host = "0.0.0.0" } } end)
  teardown(function() server:stop() end)
  after_each(function() server:after_case() end)

  local function game(where, from)
    local self = netfox.connect(where.command.ip, where.command.port, { from = from })
    self:register(where.registrar.port)
    return self
  end

  -- The client has asked; both games hear where to play.
  local function endpoints(client, host, command)
    local client_command, client_parameter = client:command()
    local host_command, host_parameter = host:command()
    assert.equal(command, client_command)
    assert.equal(command, host_command)
    return client:endpoint(client_command, client_parameter), host:endpoint(host_command, host_parameter)
  end

  local function has_seen(handshake, text)
    for _, data in ipairs(handshake.seen) do if data == text then return true end end
    return false
  end

  it("two_games_punch_and_play", function()
    local host, client = game(server), game(server)
    client:connect_nat(host.oid)
    local to_host, to_client = endpoints(client, host, "connect")
    assert.same({ ip = "127.0.0.1", port = host.local_port }, to_host)
    assert.same({ ip = "127.0.0.1", port = client.local_port }, to_client)
    assert.is_true(netfox.shake(client:handshake(to_host), host:handshake(to_client)))
    netfox.play(client, to_host, host, to_client, 50)
  end)

  it("a_punch_that_fails_falls_back_to_the_relay", function()
    local host, client = game(server), game(server)
    client:connect_nat(host.oid)
    local to_host, to_client = endpoints(client, host, "connect")
    local blocked = host:handshake(to_client)
    blocked.is_mute = true
    assert.is_false(netfox.shake(client:handshake(to_host), blocked, 0.5))
    host.udp:drain()
    client:connect_relay(host.oid)
    to_host, to_client = endpoints(client, host, "connect-relay")
    local up, down = client:handshake(to_host), host:handshake(to_client)
    assert.is_true(netfox.shake(up, down))
    assert.is_true(has_seen(up, "$rwx"))
    assert.is_true(has_seen(down, "$rwx"))
    netfox.play(client, to_host, host, to_client, 50)
  end)

  it("a_host_that_cannot_read_its_socket_is_reached_over_the_relay", function()
    local host, client = game(server), game(server)
    client:connect_relay(host.oid)
    local to_host, to_client = endpoints(client, host, "connect-relay")
    local up = client:handshake(to_host)
    assert.is_true(loop.wait(function()
      local blind = host.blind or host:blind_handshake(to_client)
      host.blind = blind
      if loop.now() >= blind.next_send then
        host.udp:send("$rwx", to_client.ip, to_client.port)
        blind.next_send = loop.now() + netfox.INTERVAL_S
      end
      return up:poll()
    end, "the handshake with a host that cannot read"))
    netfox.play(client, to_host, host, to_client, 50)
  end)

  it("two_games_that_read_see_each_other_over_the_relay", function()
    local host, client = game(server), game(server)
    client:connect_relay(host.oid)
    local to_host, to_client = endpoints(client, host, "connect-relay")
    local up, down = client:handshake(to_host), host:handshake(to_client)
    assert.is_true(netfox.shake(up, down))
    assert.is_true(has_seen(up, "$rwx"))
    assert.is_true(has_seen(down, "$rwx"))
    netfox.play(client, to_host, host, to_client, 100)
  end)

  it("three_clients_play_with_one_host", function()
    local host = game(server)
    local seen_ports = {}
    for i = 1, 3 do
      local client = game(server)
      client:connect_relay(host.oid)
      local to_host, to_client = endpoints(client, host, "connect-relay")
      assert.is_nil(seen_ports[to_client.port])
      seen_ports[to_client.port] = true
      seen_ports.host = seen_ports.host or to_host.port
      assert.equal(seen_ports.host, to_host.port)
      assert.is_true(netfox.shake(client:handshake(to_host), host:handshake(to_client)))
      netfox.play(client, to_host, host, to_client, 20 * i)
      client.udp:drain()
      host.udp:drain()
    end
  end)

  it("an_unmodified_game_plays_through_connect_by_relay", function()
    daemon.with({ set = { connect = "relay" }, control_pair = false }, function(mine)
      local host, client = game(mine), game(mine)
      client:connect_nat(host.oid)
      local to_host, to_client = endpoints(client, host, "connect")
      assert.equal("127.0.0.1", to_host.ip)
      assert.equal("127.0.0.1", to_client.ip)
      assert.is_true(to_host.port ~= host.local_port and to_client.port ~= client.local_port)
      assert.is_true(netfox.shake(client:handshake(to_host), host:handshake(to_client)))
      netfox.play(client, to_host, host, to_client, 50)
    end)
  end)

  it("players_of_different_families_play_through_the_relay", function()
    daemon.with({ set = { socket_host = "::", udp_host = "::", http_host = "::" } }, function(mine)
      local host = netfox.connect("::1", mine.command.port, { from = "::1" })
      host:register(mine.registrar.port)
      local client = netfox.connect("127.0.0.1", mine.command.port)
      client:register(mine.registrar.port)
      client:connect_nat(host.oid)
      local command, parameter = client:command()
      local to_host = client:endpoint(command, parameter)
      -- A game over IPv6 is no netfox's: this is what one has to make of its line.
      local host_command, host_parameter = host:command()
      assert.same({ "connect", "connect" }, { command, host_command })
      local ip, port = host_parameter:match("^%[(.-)%]:(%d+)$")
      assert.equal("::1", ip)
      assert.equal("127.0.0.1", to_host.ip)
      local to_client = { ip = ip, port = tonumber(port) }
      assert.is_true(netfox.shake(client:handshake(to_host), host:handshake(to_client)))
      netfox.play(client, to_host, host, to_client, 50)
    end)
  end)

  it("a_policy_sends_an_unmodified_game_over_the_relay", function()
    daemon.with({ files = { ["way.lua"] = 'return { connect = function() return { via = "relay" } end }' },
      policies = { "./way.lua" } }, function(mine)
      local host, client = game(mine, "127.0.0.81"), game(mine, "127.0.0.82")
      client:connect_nat(host.oid)
      local to_host, to_client = endpoints(client, host, "connect")
      -- No address of a peer is on any line.
      assert.equal("127.0.0.1", to_host.ip)
      assert.equal("127.0.0.1", to_client.ip)
      assert.is_true(netfox.shake(client:handshake(to_host), host:handshake(to_client)))
      netfox.play(client, to_host, host, to_client, 50)
    end)
  end)

  it("an_older_games_registration_with_a_space_is_one", function()
    local client = assert(tcp.connect(server.command.ip, server.command.port))
    client:send("register-host \n")
    client:expect_match("^set%-oid %S+$")
    client:expect_match("^set%-pid %S+$")
    client:expect_nothing_more()
  end)

  it("netfox_finds_the_error_code_in_the_word_after_the_command", function()
    local lost = netfox.connect(server.command.ip, server.command.port)
    lost:connect_relay("nope")
    assert.same({ "error", "connect-relay:not-registered" }, { lost:command() })
    lost:register_host()
    lost:connect_nat("nope")
    assert.same({ "error", "connect:unknown-oid" }, { lost:command() })
    lost:connect_nat("")
    assert.same({ "error", "connect:unknown-oid" }, { lost:command() })
    lost.tcp:send(string.rep("x", 20000) .. "\n")
    assert.same({ "error", "line:too-long" }, { lost:command() })
    lost.tcp:expect_nothing_more()
  end)
end)
