-- SPDX-License-Identifier: MIT
-- relay.testing by itself: every call and field, what it refuses, and that nothing of it is left behind.
local core = require "moonrelay_core"
local testing = require "relay.testing"

local function bench(chunk, options)
  local t = testing.new(options or {})
  assert(t:load { policies = { { chunk = chunk, name = "p" } } })
  return t
end

-- A host, a client and what connecting them came to.
local function game(t)
  local h, c = t:join { udp = "10.0.0.1:4000" }, t:join { udp = "10.0.0.2:4000" }
  return h, c, t:connect(c, h.session.oid)
end

describe("a join", function()
  it("tells the session as policies see it", function()
    local t = bench [[return { register = function(ev) return { tags = { user = ev.meta.user } } end }]]
    local h = t:join { ip = "198.51.100.7", udp = "198.51.100.8:4000", meta = { user = "alice" } }
    assert.is_true(h.ok)
    assert.is_false(h.pending)
    assert.is_nil(h.code)
    assert.equal("198.51.100.7", h.session.ip)
    assert.equal("198.51.100.8:4000", h.session.addr.text)
    assert.same({ user = "alice" }, h.session.tags)
    assert.same({ user = "alice" }, h.session.meta)
    assert.equal(21, #h.session.oid)
  end)

  it("takes its ip from udp, and both from nowhere", function()
    local t = bench "return {}"
    assert.equal("10.0.0.2", t:join { udp = "10.0.0.2:4000" }.session.ip)
    assert.not_equal(t:join().session.ip, t:join().session.ip)
  end)

  it("is never seen at the registrar with udp = false", function()
    local t = bench "return {}"
    local h, c = t:join { udp = false }, t:join()
    assert.is_nil(h.session.addr)
    assert.equal("host-no-address", t:connect(c, h.session.oid).code)
  end)

  it("is refused with the code and the reason behind it", function()
    local t = bench [[return { register = function(ev) return false, "ticket-missing" end }]]
    local h = t:join {}
    assert.is_false(h.ok)
    assert.equal("rejected", h.code)
    assert.equal("ticket-missing", h.reason)
    assert.is_nil(h.session)
  end)

  it("tells the slot that is full", function()
    local t = bench [[return { register = function(ev)
      return { slots = { ["ip/" .. ev.session.net] = 1 } }
    end }]]
    local first = t:join { ip = "1.2.3.4" }
    local h = t:join { ip = "1.2.3.4" }
    assert.equal("full", h.code)
    assert.equal("ip/1.2.3.4", h.reason)
    first:leave("reset")
    assert.is_true(t:join({ ip = "1.2.3.4" }).ok)
  end)

  it("tells its outcome also when players are told no errors", function()
    local refuse = [[return { register = function(ev) return false, "no" end }]]
    local t = bench(refuse, { settings = { errors = false } })
    local h = t:join {}
    assert.equal("rejected", h.code)
    assert.equal("no", h.reason)
  end)
end)

describe("a connect", function()
  it("tells both relays", function()
    local t = bench "return {}"
    local h, c, j = game(t)
    assert.is_true(j.ok)
    assert.equal("relay", j.via)
    assert.equal(c.session.id, j.relay.session)
    assert.equal(h.session.id, j.host_relay.session)
    assert.equal("connect-relay " .. j.host_relay.port, t.lines[c.session.id][3])
    assert.equal("connect-relay " .. j.relay.port, t.lines[h.session.id][3])
  end)

  it("goes directly in the mode connect, unless a policy says otherwise", function()
    local t = bench [[return { connect = function(ev) if ev.meta.far then return { via = "relay" } end end }]]
    local h, c = t:join(), t:join()
    assert.equal("direct", t:connect(c, h.session.oid, { mode = "connect" }).via)
    local j = t:connect(c, h.session.oid, { mode = "connect", meta = { far = 1 } })
    assert.equal("relay", j.via)
    assert.truthy(j.relay)
  end)

  it("is refused with PROTOCOL.md's codes", function()
    local t = bench [[return { create = function(ev) return false, "no-more" end }]]
    local _, c, j = game(t)
    assert.equal("rejected", j.code)
    assert.equal("no-more", j.reason)
    assert.equal("unknown-oid", t:connect(c, "nobody").code)
  end)
end)

describe("a drop", function()
  local admit_known = [[return { drop = function(ev)
    if ev:peek(2) == "hi" then return { ttl = 60, rate = { pps = 10 }, tags = { a = "b" } } end
    if ev:peek(2) == "no" then return false, "no-thanks", { mute = 60 } end
  end }]]

  it("tells what was granted and how much was replayed", function()
    local t = bench(admit_known)
    local _, _, j = game(t)
    local d = t:drop { sender = "203.0.113.5:4000", port = j.host_relay.port, data = { "hi", "ho" } }
    assert.is_true(d.ok)
    assert.equal(60, d.spec.ttl)
    assert.same({ pps = 10 }, d.spec.rate)
    assert.same({ a = "b" }, d.spec.tags)
    assert.equal("203.0.113.5:4000", d.relay.addr.text)
    assert.equal(2, d.replayed)
    assert.equal(0, d.overflow)
  end)

  it("counts what found no room", function()
    local t = bench(admit_known, { settings = { hold_datagrams = 3 } })
    local _, _, j = game(t)
    local d = t:drop { sender = "203.0.113.5:4000", port = j.relay.port, data = { "hi", "2", "3", "4", "5" } }
    assert.equal(3, d.replayed)
    assert.equal(2, d.overflow)
  end)

  it("is refused with the policy's reason, and asks again although it is muted", function()
    local t = bench(admit_known)
    local _, _, j = game(t)
    for _ = 1, 3 do
      local d = t:drop { sender = "203.0.113.5:4000", port = j.relay.port, data = "no" }
      assert.equal("rejected", d.code)
      assert.equal("no-thanks", d.reason)
    end
    local d = t:drop { sender = "203.0.113.5:4000", port = j.relay.port, data = "hi" }
    assert.is_true(d.ok)
    assert.equal(1, d.replayed)
  end)

  it("asks again about a sender who is known, and leaves his relay when he is refused", function()
    local t = bench(admit_known)
    local _, _, j = game(t)
    local knock = { sender = "203.0.113.5:4000", port = j.relay.port, data = "hi" }
    local first = t:drop(knock)
    assert.equal(first.relay.id, t:drop(knock).relay.id)
    knock.data = "no"
    assert.equal("no-thanks", t:drop(knock).reason)
    knock.data = "hi"
    assert.equal(first.relay.id, t:drop(knock).relay.id)
    assert.equal(3, first.relay.packets_in)
  end)

  it("that nobody admits is told by the reason of the drop", function()
    local t = bench "return {}"
    local _, _, j = game(t)
    local d = t:drop { sender = "203.0.113.5:4000", port = j.relay.port }
    assert.is_false(d.ok)
    assert.equal("unknown_sender", d.code)
  end)
end)

describe("a bench", function()
  it("gives all of its memory back", function()
    collectgarbage()
    collectgarbage()
    local before = core.blocks()
    do
      local t = bench "return {}"
      game(t)
    end
    collectgarbage()
    collectgarbage()
    assert.equal(before, core.blocks())
  end)
end)
