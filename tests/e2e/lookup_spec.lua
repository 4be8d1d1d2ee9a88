-- SPDX-License-Identifier: MIT
-- Names in a running daemon: what is asked of the resolver and what is not, and that nothing waits for one
-- that hangs.
local daemon = require "daemon"
local player = require "player"
local resolver = require "resolver"

describe("lookup", function()
  it("asks no resolver when every address of the settings is a literal", function()
    local names = resolver.new()
    finally(function() names:close() end)
    daemon.with(names:options(), function(server)
      assert.equal(0, names:calls())
      assert.equal(0, server:metric("moonrelay_lookup_total", { kind = "resolver", result = "ok" }))
    end)
  end)

  it("finds listeners by name, and policies say where they are", function()
    local names = resolver.new { ["tcp.fleet"] = "127.0.0.2", ["udp.fleet"] = { "127.0.0.3", "::1" } }
    finally(function() names:close() end)
    daemon.with(names:options { control_pair = false, policies = { "./here.lua" }, files = { ["here.lua"] = [[
      local relay = require "relay"
      return {
        lookup = function(host, family, ev)
          relay.log.info("asked " .. host .. " " .. tostring(family) .. " " .. ev.op)
          if host == "web.fleet" then return "127.0.0.4" end
        end,
      }
    ]] }, set = { socket_host = "tcp.fleet", udp_host = "udp.fleet", http_host = "web.fleet" } }, function(server)
      assert.same({ "127.0.0.2", "127.0.0.3", "127.0.0.4" },
        { server.command.ip, server.registrar.ip, server.http.ip })
      local host, client = player.join(server), player.join(server)
      local pair = player.relay(client, host)
      pair.ip = "127.0.0.3"
      player.exchange(pair)
      assert.same({ 1, 1, 0 }, { names:calls("tcp.fleet"), names:calls("udp.fleet"), names:calls("web.fleet") })
      assert.is_truthy(server:stdout():find("asked udp.fleet nil listen", 1, true))
    end)
  end)

  it("refuses a start for a listener that has no address and says why", function()
    local names = resolver.new { ["slow.fleet"] = "again" }
    finally(function() names:close() end)
    for host, why in pairs { ["no.fleet"] = "Name or service not known",
      ["slow.fleet"] = "Temporary failure in name resolution" } do
      local result = daemon.run({ "serve", "--set", "socket_port=0", "--set", "http_port=0", "--set",
        "udp_registrar_port=0", "--set", "udp_relay_ports=0+3", "--set", "control=", "--set", "udp_host=" .. host },
        names:options())
      assert.equal(1, result.code)
      assert.is_truthy(result.stderr:find('udp_host = "' .. host .. '" cannot be looked up: ' .. host .. ": " .. why,
        1, true), result.stderr)
    end
  end)
end)
