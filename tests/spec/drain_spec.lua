-- SPDX-License-Identifier: MIT
-- A drain as tests of policies see it, and cookbook/maintenance.lua as people write it.
local shipped = require "shipped"
local testing = require "relay.testing"

-- moonrelay call maintenance start 30: tells every player, lets running games end.
local MAINTENANCE = { name = "maintenance", chunk = [[
local relay = require "relay"
return {
  commands = {
    start = function(minutes)
      for _, s in ipairs(relay.sessions()) do relay.notify(s.id, "maintenance-in-" .. minutes .. "m") end
      relay.drain(tonumber(minutes) * 60)
      return "draining"
    end,
  },
}]] }

local function game(t)
  local h, c = t:join { udp = "10.0.0.1:4000" }, t:join { udp = "10.0.0.2:4000" }
  return h, c, t:connect(c, h.session.oid)
end

local function has_line(t, session, line)
  for _, other in ipairs(t.lines[session.id]) do
    if other == line then return true end
  end
  return false
end

describe("a drain", function()
  it("keeps running games, takes players who come back, and lets nobody join a new host", function()
    local t = testing.new()
    local h, c = game(t)
    assert.is_true(t:drain(600))
    assert.is_true(has_line(t, h.session, "notice draining:600"))
    c:leave("reset")
    local again = t:join { udp = "10.0.0.2:4001" }
    assert.is_true(t:connect(again, h.session.oid).ok)
    local late = t:join { udp = "10.0.0.3:4000" }
    assert.is_true(late.ok)
    assert.is_true(has_line(t, late.session, "notice draining:600"))
    assert.equal("draining", t:connect(again, late.session.oid).code)
    assert.equal("draining", t:connect(again, late.session.oid, { mode = "connect" }).code)
    assert.equal(1, t.metrics.moonrelay_draining.value)
  end)

  it("ends at its deadline, and policies are told that players have left as drained", function()
    local t = shipped.chain({ name = "watch", chunk = [[
      local relay = require "relay"
      return {
        left = function(ev) relay.log.info("left", { why = ev.reason }) end,
        destroyed = function(ev) relay.log.info("destroyed", { why = ev.reason }) end,
      }]] })
    local h = game(t)
    t:drain(20)
    t:advance(19.9)
    assert.is_false(t.drained)
    t:advance(0.2)
    assert.is_true(t.drained)
    assert.equal("error session:drained", t.lines[h.session.id][#t.lines[h.session.id]])
    local seen = {}
    for _, log in ipairs(t.logs) do seen[#seen + 1] = log.msg .. " " .. tostring(log.fields.why) end
    table.sort(seen)
    assert.same({ "destroyed shutdown", "destroyed shutdown", "left drained", "left drained" }, seen)
    assert.equal("closed", t:join().code)
  end)

  it("ends when the last player has left and the last relay has idled out", function()
    local t = testing.new()
    local h, c = game(t)
    t:drain(600)
    h:leave()
    c:leave()
    assert.is_false(t.drained)
    t:advance(31)
    assert.is_true(t.drained)
  end)

  it("takes no new flow at an open port, but who has one comes back", function()
    local t = testing.new()
    assert(t:load { policies = {}, ports = { [7777] = { target = "10.4.4.4:7000" } } })
    local function knock(sender)
      local d = t:drop { sender = sender, port = 7777 }
      t:advance(0)
      return d
    end
    assert.is_true(knock("203.0.113.5:4000").ok)
    t:drain(600)
    local d = knock("203.0.113.6:4000")
    assert.same({ false, "draining" }, { d.ok, d.code })
    assert.is_true(knock("203.0.113.5:4001").ok)
    assert.is_false(t.drained)
    t:advance(31)
    assert.is_true(t.drained)
  end)

  it("of nobody ends at once", function()
    local t = testing.new()
    assert.is_true(t:drain(600))
    assert.is_true(t.drained)
    local ok, why = t:drain(5)
    assert.is_nil(ok)
    assert.equal("it is stopping already", why)
  end)

  it("is taken back", function()
    local t = testing.new()
    local h, c = game(t)
    local ok, why = t:drain(false)
    assert.is_nil(ok)
    assert.equal("there is no drain", why)
    t:drain(60)
    local late = t:join { udp = "10.0.0.3:4000" }
    assert.is_true(t:drain(false))
    assert.is_true(has_line(t, h.session, "notice drain-cancelled"))
    assert.is_true(t:connect(c, late.session.oid).ok)
    t:advance(61)
    assert.is_false(t.drained)
  end)
end)

describe("the maintenance of the cookbook", function()
  it("tells every player and lets running games end", function()
    local t = shipped.chain(MAINTENANCE, "dynamic")
    local h, c = game(t)
    assert.equal("draining", (t:call("maintenance", "start", 30)))
    for _, p in ipairs { h, c } do
      local lines = t.lines[p.session.id]
      assert.equal("notice maintenance-in-30m", lines[#lines - 1])
      assert.equal("notice draining:1800", lines[#lines])
    end
    local late = t:join { udp = "10.0.0.3:4000" }
    assert.equal("draining", t:connect(c, late.session.oid).code)
    t:advance(1799)
    assert.is_false(t.drained)
    t:advance(2)
    assert.is_true(t.drained)
  end)
end)
