-- SPDX-License-Identifier: MIT
-- Signals, and what is there after an end without a word.
--
-- What is held here, and by which test:
--   TERM and INT end it with status 0                     term_and_int_end_it_with_status_0
--   ... what was queued is finished                       answers_that_are_queued_go_out_before_the_end
--   ... connections are closed, ports are free            the_end_closes_connections_and_ports
--   HUP reloads                                           hup_disturbs_no_game
--   PIPE is ignored                                       a_broken_pipe_is_no_end
--   after kill -9 the same ports serve again              it_starts_again_on_the_same_ports_after_a_kill
--   TERM and INT together                                 several_signals_at_once_are_one_end
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local daemon = require "daemon"
local loop = require "loop"
local player = require "player"
local tcp = require "tcp"
local udp = require "udp"

describe("a signal", function()
  after_each(loop.close_owned)

  it("term_and_int_end_it_with_status_0", function()
    for _, signal in ipairs { "sigterm", "sigint" } do
      local server = daemon.start { is_short = true }
      player.exchange(player.pair(server))
      assert.is_truthy(server:stop(signal))
    end
  end)

  it("the_end_closes_connections_and_ports", function()
    local server = daemon.start { control_pair = false }
    local pair = player.pair(server)
    local idle = assert(tcp.connect(server.command.ip, server.command.port))
    local web = assert(tcp.connect(server.http.ip, server.http.port))
    web:send("GET /me")
    for _, object in ipairs { idle, web, pair.host.tcp } do loop.keep(object) end
    local relay_port, registrar_port = pair.host_port, server.registrar.port
    server:stop()
    for _, client in ipairs { idle, web, pair.host.tcp } do
      client:expect_end()
      client:close()
    end
    for _, port in ipairs { relay_port, registrar_port } do udp.open("0.0.0.0", port) end
    assert.is_nil((tcp.connect(server.command.ip, server.command.port)))
  end)

  it("answers_that_are_queued_go_out_before_the_end", function()
    local server = daemon.start { control_pair = false, set = { commands_burst = "100000" } }
    local client = player.join(server)
    local batch = {}
    for i = 1, 200 do batch[i] = "echo " .. i .. "\n" end
    client:send(table.concat(batch))
    client.tcp:expect("echo 1")
    loop.keep(client.tcp)
    server:stop()
    -- What was read was answered: no line is cut.
    client.tcp:expect_end()
    local n, last = 1, nil
    for line in function() return client.tcp:take_line() end do
      assert.is_nil(last)
      n = n + 1
      if line ~= "echo " .. n then last = line end
    end
    assert.equal("error session:drained", last)
    assert.equal("", client.tcp.buffer)
    client.tcp:close()
  end)

  it("hup_disturbs_no_game", function()
    daemon.with({}, function(server)
      local pair = player.pair(server)
      for _ = 1, 5 do
        server:signal_with("sighup")
        player.exchange(pair)
      end
      server:await_log_match("reload: in use[^\n]*by=HUP")
      pair.client.tcp:expect_nothing_more()
    end)
  end)

  it("a_broken_pipe_is_no_end", function()
    daemon.with({}, function(server)
      server:signal_with("sigpipe")
      player.exchange(player.pair(server))
    end)
  end)

  it("several_signals_at_once_are_one_end", function()
    local server = daemon.start { control_pair = false }
    for _ = 1, 3 do
      server:signal_with("sigterm")
      server:signal_with("sigint")
    end
    server:reap(20, "a daemon that was told to end")
    assert.same({ 0, 0 }, { server.code, server.signal })
    daemon.remove(server.dir)
  end)

  it("it_starts_again_on_the_same_ports_after_a_kill", function()
    local server = daemon.start { control_pair = false, set = { udp_relay_ports = "0+15" } }
    local pair = player.pair(server)
    player.exchange(pair)
    server:kill()
    daemon.remove(server.dir)
    pair.client.tcp:expect_end()
    local ports = table.concat(server.relay_ports, ",")
    daemon.with({ set = { socket_port = tostring(server.command.port), http_port = tostring(server.http.port),
      udp_registrar_port = tostring(server.registrar.port), udp_relay_ports = ports }, control_pair = false },
      function(again)
      assert.equal(server.command.port, again.command.port)
      assert.equal(16, #again.relay_ports)
      -- What the old game still sends reaches nobody.
      local fresh = player.pair(again)
      for _, port in ipairs(again.relay_ports) do
        if port ~= fresh.host_port and port ~= fresh.client_port then
          pair.client.udp:send("stale", again.command.ip, port)
        end
      end
      player.exchange(fresh)
      assert.equal(0, fresh.host.udp:waiting())
    end)
  end)
end)
