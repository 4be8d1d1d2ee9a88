-- SPDX-License-Identifier: MIT
-- A player whose network vanishes: no FIN, no reset, nothing. It takes the minute that keepalive needs.
--
-- What is held here, and by which test:
--   gone within 65 s, left(timeout)                    a_host_whose_network_vanishes_is_gone_within_65_s
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local network = require "network"
local daemon = require "daemon"
local loop = require "loop"
local player = require "player"

local WATCH = [[
local relay = require "relay"
return { left = function(ev) relay.log.info("left", { oid = ev.session.oid, why = ev.reason }) end }
]]

-- Keepalive begins after 30 s and gives up 30 s later; a machine with other work may be late.
local SOONEST_S, LATEST_S, ROOM_S = 50, 65, 30

describe("a host", function()
  after_each(loop.close_owned)

  it("a_host_whose_network_vanishes_is_gone_within_65_s", function()
    local is_allowed = network.with(function()
      daemon.with({ control_pair = false, config = "return { policies = { './watch.lua', 'dynamic' } }",
        files = { ["watch.lua"] = WATCH } }, function(server)
        local host = player.join(server)
        network.unplug()
        local began = loop.now()
        server:await_log("oid=" .. host.oid .. " why=timeout", LATEST_S + ROOM_S)
        local took = loop.now() - began
        network.plug()
        assert.is_true(took > SOONEST_S, "gone after " .. took .. " s: not by keepalive")
        print(("# gone after %.1f s"):format(took))
        -- Nobody joins a ghost.
        local client = player.join(server)
        client:send("connect-relay " .. host.oid)
        client.tcp:expect("error connect-relay:unknown-oid")
      end)
    end)
    if not is_allowed then pending("this process may make no network of its own") end
  end)
end)
