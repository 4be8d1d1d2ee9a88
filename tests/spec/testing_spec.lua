-- SPDX-License-Identifier: MIT
-- relay.testing by itself: every call and field, what it refuses, and that nothing of it is left behind.
local core = require "moonrelay_core"
local seed = require "seed"
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

  it("is one too many where there is a cap", function()
    local t = bench("return {}", { settings = { max_connections = 1 } })
    local h = t:join()
    assert.equal("too-many", t:join().code)
    h:leave("reset")
    assert.is_true(t:join().ok)
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

  it("went through the relay also when a policy has ended it by then", function()
    local t = bench [[local relay = require "relay"
      return { created = function(ev) relay.close(ev.relay) end }]]
    local _, c, j = game(t)
    assert.is_true(j.ok)
    assert.equal("relay", j.via)
    assert.is_nil(j.relay)
    assert.matches("^connect%-relay %d+$", t.lines[c.session.id][3])
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

  it("tells all that a spec may say", function()
    local t = bench [[return {
      drop = function() return { idle = 5, max_bytes = 100, slots = { k = 2 } } end,
      create = function() return { idle = 7, rate = { bps = 9 }, hold = { packets = 2, bytes = 100, ms = 50 } } end,
    }]]
    local _, _, j = game(t)
    local d = t:drop { sender = "203.0.113.5:4000", port = j.host_relay.port, data = "x" }
    assert.same({ idle = 5, max_bytes = 100, rate = { bps = 9 }, slots = { k = 2 }, tags = {},
      hold = { packets = 2, bytes = 100, ms = 50 } }, d.spec)
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

  it("asks about a player's other port, unless settings have a window in which it is taken for his", function()
    local refuse = [[return { drop = function() return false, "asked" end }]]
    local t = bench(refuse)
    local _, _, j = game(t)
    local knock = { sender = "10.0.0.1:7000", port = j.relay.port }
    assert.equal("asked", t:drop(knock).reason)

    t = bench(refuse, { settings = { latch_window = "10s" } })
    local _, c
    _, c, j = game(t)
    knock.port = j.relay.port
    local d = t:drop(knock)
    assert.is_true(d.ok)
    assert.equal(j.host_relay.id, d.relay.id)
    assert.equal(1, d.replayed)
    assert.equal("asked", t:drop({ sender = "10.0.0.1:7001", port = j.relay.port }).reason)
    assert.equal("asked", t:drop({ sender = "10.0.0.2:4000", port = j.host_relay.port }).reason)
    assert.is_true(t:drop(knock).ok) -- the other's being asked about has not undone it
    assert.equal("asked", t:drop({ sender = "10.0.0.1:4000", port = j.relay.port }).reason)
    assert.equal("asked", t:drop(knock).reason) -- he has spoken for himself
    assert.is_true(c.ok)
  end)

  it("opens that window as the config says, and it closes", function()
    local t = testing.new()
    assert(t:load { settings = { latch_window = "5s" }, policies = {} })
    local _, _, j = game(t)
    t:advance(5.1)
    assert.equal("unknown_sender", t:drop({ sender = "10.0.0.1:7000", port = j.relay.port }).code)
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

describe("a load", function()
  local t
  before_each(function() t = testing.new {} end)

  it("takes the config's own table", function()
    assert(t:load {
      settings = { connect = "relay" },
      policies = { { "quota", per_ip = 1, name = "few" }, { chunk = "return {}" }, "dynamic" },
    })
    local h, c = t:join(), t:join()
    assert.equal("relay", t:connect(c, h.session.oid, { mode = "connect" }).via)
    assert.equal(1, t.generation)
  end)

  it("hands a policy what its entry says, whatever characters that has", function()
    local cfg = { text = 'a "b"\\\n\0\r\tc', list = { 1, 2.5, "x" }, ["end"] = true }
    cfg.deep = { a = { b = -1e300 } }
    cfg.chunk = [[
      local relay = require "relay"
      return { load = function(cfg)
        assert(cfg.text == 'a "b"\\\n\0\r\tc')
        assert(#cfg.list == 3 and cfg.list[2] == 2.5 and cfg.list[3] == "x")
        assert(cfg["end"] == true and cfg.deep.a.b == -1e300)
      end }]]
    assert(t:load { policies = { cfg } })
  end)

  it("says where the test is when the table is wrong", function()
    local line = debug.getinfo(1, "l").currentline + 1
    local ok, why = t:load { setings = {} }
    assert.is_nil(ok)
    assert.equal(("%s:%d: unknown key setings; did you mean settings?"):format(
      debug.getinfo(1, "S").short_src, line), why)
    assert.matches("settings%.connect", select(2, t:load { settings = { connect = print } }))
    assert.matches("did you mean dynamic%?", select(2, t:load { policies = { "dynamc" } }))
  end)

  it("says file and line of what raises, and the old generation stays", function()
    assert(t:load { policies = { { chunk = [[return { register = function() return false, "old" end }]] } } })
    local ok, why = t:load { policies = { { name = "p", chunk = "return {\n load = function() error('no') end }" } } }
    assert.is_nil(ok)
    assert.matches("%./chunk1%.lua:2: no", why)
    assert.equal(1, t.generation)
    assert.equal("old", t:join().reason)
    assert.is_true(t:reload())
    assert.equal("old", t:join().reason)
    assert.equal(2, t.generation)
  end)

  it("that failed leaves settings of the one before", function()
    assert(t:load { settings = { connect = "relay" } })
    assert.is_nil((t:load { settings = { connect = "direct" }, policies = { { chunk = "error 'x'" } } }))
    local h, c = t:join(), t:join()
    assert.equal("relay", t:connect(c, h.session.oid, { mode = "connect" }).via)
  end)

  it("that was the first one and failed leaves nothing of it behind", function()
    assert.is_nil((t:load { settings = { udp_relay_ports = "4000-4003" }, policies = { { chunk = "error 'x'" } } }))
    assert(t:load { settings = { udp_relay_ports = "5000-5003" } })
    local h, c = t:join(), t:join()
    assert.is_true(t:connect(c, h.session.oid).host_relay.port >= 5000)
  end)

  it("finds the config's files in t.files, and others as little as a daemon would", function()
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write('return { policies = { { "ticket", key = file "key.txt" } } }')
    file:close()
    local ok, why = t:load(path)
    assert.is_nil(ok)
    assert.matches('file "key%.txt": No such file or directory', why)
    t.files["key.txt"] = ("k"):rep(32)
    assert(t:load(path))
    os.remove(path)
    assert.equal("rejected", t:join().code)
    assert.matches("^config file", select(2, t:load(path)))
  end)

  it("takes chunks from a test only, and not from a file", function()
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write('return { policies = { { chunk = "return {}" } } }')
    file:close()
    assert.matches("does not begin with a name or path", select(2, t:load(path)))
    os.remove(path)
  end)

  it("of a chunk with a bare name, of a function, of what holds itself is an error with its place", function()
    local loop = {}
    loop[1] = loop
    local ok, why = pcall(t.load, t, { policies = { loop } })
    assert.is_false(ok)
    assert.matches("testing_spec.lua:%d+: t:load: the table is nested", why)
    assert.matches("policies%[1%]%.f holds a function", select(2, t:load { policies = { { "quota", f = print } } }))
    assert.matches("policies%[1%]%.chunk is a number", select(2, t:load { policies = { { chunk = 7 } } }))
  end)

  it("is dynamic's when there is none", function()
    local _, _, j = game(t)
    assert.is_true(t:drop { sender = "10.0.0.1:4999", port = j.relay.port }.ok)
    assert.equal("unknown_sender", t:drop { sender = "203.0.113.1:4999", port = j.relay.port }.code)
  end)

  it("changes what can change while players are there, and says what cannot", function()
    assert(t:load { settings = { udp_relay_ports = "5000-5003", connect = "direct" } })
    local h, c = t:join(), t:join()
    assert.equal("direct", t:connect(c, h.session.oid, { mode = "connect" }).via)
    assert(t:load { settings = { udp_relay_ports = "6000-6003", connect = "relay", pairing = "open" } })
    local j = t:connect(c, h.session.oid, { mode = "connect" })
    assert.equal("relay", j.via)
    assert.is_true(j.relay.port >= 6000)
    assert.same({ level = "warn", area = "reload", msg = "setting needs a restart", fields = { key = "pairing" } },
      t.logs[1])
  end)

  it("again reads files anew and keeps slots", function()
    local path = os.tmpname()
    local function write(max)
      local file = assert(io.open(path, "w"))
      file:write(("return { register = function() return { slots = { k = %d } } end }"):format(max))
      file:close()
    end
    write(1)
    assert(t:load { policies = { { path, name = "p" } } })
    assert.is_true(t:join().ok)
    assert.equal("full", t:join().code)
    write(2)
    assert.equal("full", t:join().code)
    assert(t:reload())
    assert.is_true(t:join().ok)
    assert.equal("full", t:join().code)
    os.remove(path)
  end)
end)

describe("a policy that raises", function()
  it("is the refusal policy-error and a record with file and line", function()
    local t = bench "return {\n register = function(ev)\n   local x = nil + 1\n end }"
    local h = t:join()
    assert.equal("rejected", h.code)
    assert.equal("policy-error", h.reason)
    assert.equal(1, #t.logs)
    assert.equal("error", t.logs[1].level)
    assert.equal("p", t.logs[1].policy)
    assert.matches("chunk1.lua:3:", t.logs[1].fields.error)
    assert.equal("register", t.logs[1].fields.hook)
  end)

  it("at a knock is the same", function()
    local t = bench "return { drop = function(ev) error('x') end }"
    local _, _, j = game(t)
    local d = t:drop { sender = "203.0.113.5:4000", port = j.relay.port }
    assert.equal("rejected policy-error", d.code .. " " .. d.reason)
  end)
end)

describe("what a test sees", function()
  it("are records of relay.log with their fields", function()
    local t = bench [[
      local relay = require "relay"
      return { register = function(ev)
        relay.log.debug("low", { n = 1.5, yes = true, text = "a\nb" })
        relay.log.warn("high")
      end }]]
    t:join()
    assert.same({ level = "debug", policy = "p", msg = "low", area = "policy",
      fields = { n = 1.5, yes = true, text = "a\nb" } }, t.logs[1])
    assert.equal("warn", t.logs[2].level)
  end)

  it("are the figures of /metrics, by label, and the policies' own", function()
    local t = bench [[
      local relay = require "relay"
      local tries = relay.metric("tries", "counter", "Tries.")
      local level = relay.metric("level", "gauge", "Level.")
      return { register = function(ev)
        tries:add(1, ev.meta.kind)
        tries:add(1, 'a "quoted\\ label')
        level:set(7)
        if ev.meta.kind == "bad" then return false, "bad" end
      end }]]
    t:join { meta = { kind = "good" } }
    t:join { meta = { kind = "bad" } }
    t:join { meta = { kind = "bad" } }
    assert.equal(1, t.metrics.tries.v.good)
    assert.equal(2, t.metrics.tries.v.bad)
    assert.equal(3, t.metrics.tries.v['a "quoted\\ label'])
    assert.equal(7, t.metrics.level.value)
    assert.equal(1, t.metrics.noray_active_hosts.value)
    assert.equal(2, t.metrics.moonrelay_policy_refusals_total.v["register,bad"])
    assert.error_matches(function() return t.metrics.trise end, "did you mean")
  end)

  it("is the time, which only the test moves", function()
    local t = testing.new { now = 1700000000.25 }
    assert(t:load { policies = { { chunk = [[
      local relay = require "relay"
      return { register = function(ev) return { tags = { now = tostring(ev.now), wall = tostring(relay.now()) } } end }
      ]] } } })
    assert.equal("1700000000.25", t:join().session.tags.now)
    t:advance(10.5)
    assert.equal("1700000010.75", t:join().session.tags.wall)
    assert.equal(1700000010.75, t.now)
    t:advance(0)
    assert.equal(1700000010.75, t.now)
  end)

  it("is the same for the same seed", function()
    local function story(number)
      local t = testing.new { seed = number }
      local h, c, j = game(t)
      return table.concat({ h.session.oid, c.session.oid, j.relay.id, j.host_relay.id }, " ")
    end
    assert.equal(story(1), story(1))
    assert.not_equal(story(1), story(2))
  end)

  it("is a session as it is now, and after its end as it was", function()
    local t = bench "return {}"
    local h, _, j = game(t)
    assert.equal(1, h.session.joins)
    t:drop { sender = "10.0.0.2:4000", port = j.host_relay.port, data = "x" }
    h:leave("reset")
    assert.equal(1, h.session.joins)
    t:advance(31)
    assert.truthy(j.relay.port)
  end)
end)

describe("a close", function()
  it("ends the relay", function()
    local t = bench [[
      local relay = require "relay"
      return { destroyed = function(ev) relay.log.info(ev.reason) end }]]
    local _, _, j = game(t)
    assert.is_true(t:close(j.relay.id))
    assert.equal("api", t.logs[1].msg)
    assert.is_nil((t:close(j.relay.id)))
    assert.is_true(t:close(j.host_relay))
    assert.error_matches(function() t:close(7) end, "a number")
  end)
end)

describe("misuse", function()
  local function is_refused(word, f, ...)
    local args = { ... }
    local ok, why = pcall(function() return f(unpack(args)) end)
    assert.is_false(ok)
    assert.matches(word, tostring(why))
  end

  it("of options is refused by name", function()
    is_refused("testing.new has no nwo; did you mean now%?", testing.new, { nwo = 1 })
    is_refused("now is a string", testing.new, { now = "x" })
    is_refused("seed", testing.new, { seed = -1 })
    is_refused("did you mean", testing.new, { settings = { udp_relay_prots = "1" } })
    is_refused("connect", testing.new, { settings = { connect = "maybe" } })
    is_refused("settings.x is a table", testing.new, { settings = { x = {} } })
    local t = testing.new()
    is_refused("did you mean meta%?", t.join, t, { mta = {} })
    is_refused("did you mean mode%?", t.connect, t, {}, "x", { mod = "relay" })
    is_refused("did you mean port%?", t.drop, t, { sender = "1.2.3.4:5", prot = 1 })
  end)

  it("of addresses, words and ports is refused", function()
    local t = testing.new()
    is_refused("has no port", t.join, t, { udp = "10.0.0.1" })
    is_refused("an address with a port", t.join, t, { udp = "10.0.0.300:1" })
    is_refused("without a port", t.join, t, { ip = "10.0.0.1:4" })
    is_refused("udp is a number", t.join, t, { udp = 7 })
    is_refused("has a space", t.join, t, { meta = { a = "b c" } })
    is_refused("cannot be a word", t.join, t, { meta = { ["A b"] = 1 } })
    is_refused("meta.a is a table", t.join, t, { meta = { a = {} } })
    is_refused("none of the relay's", t.drop, t, { sender = "1.2.3.4:5", port = 7 })
    is_refused("1 to 65535", t.drop, t, { sender = "1.2.3.4:5", port = 0.5 })
    is_refused("at most 65507", t.drop, t, { sender = "1.2.3.4:5", port = 50000, data = ("x"):rep(65508) })
    is_refused("sender is a nil", t.drop, t, { port = 50000 })
    is_refused("who connects", t.connect, t, {}, "x")
    is_refused("who connects", t.connect, t, testing.new():join(), "x")
    is_refused("cannot be an oid", t.connect, t, t:join(), "a b")
    is_refused("there is relay, connect", t.connect, t, t:join(), "x", { mode = "direct" })
    is_refused("did you mean reset%?", t:join().leave, t:join(), "rest")
    is_refused("expected", t.advance, t, -1)
    is_refused("expected", t.advance, t, 0 / 0)
    is_refused("a string is expected", t.call, t, {})
    for _, seconds in ipairs { -1, 0 / 0, 1 / 0, 31622401, true } do
      is_refused("31622400 seconds, or false, are expected", t.drain, t, seconds)
    end
    is_refused("t:drain is a nil", t.drain, t)
  end)

  it("of names is refused", function()
    local t = testing.new()
    is_refused("did you mean connect%?", function() return t.conect end)
    is_refused("did you mean files%?", function() t.fils = {} end)
  end)
end)

describe("two benches", function()
  it("share nothing", function()
    local a, b = bench "return {}", bench [[return { register = function() return false, "b" end }]]
    local h = a:join()
    assert.equal("b", b:join().reason)
    a:advance(100)
    assert.equal(1700000000, b.now)
    assert.is_nil(b.lines[h.session.id])
    assert.is_true(a:join().ok)
  end)
end)

describe("the C module", function()
  it("refuses hostile arguments without harm", function()
    seed.begin()
    local values = {
      function() return nil end,
      function() return math.random(-2, 70000) end,
      function() return ({ 0 / 0, 1 / 0, -1 / 0, 2 ^ 53, -1e300, 0.5 })[math.random(6)] end,
      function() return math.random() < 0.5 end,
      function() return {} end,
      function() return { "a", "b", math.random(9) } end,
      function() return { 1, nil, {} } end,
      function() return setmetatable({}, { __index = error, __tostring = error }) end,
      function() return print end,
      function() return io.stdout end,
      function() return coroutine.create(print) end,
      function() return ({ "", "1", "10.0.0.1:4000", "[::1]:1", "reset", "register-host\n", "connect x\n",
        "return {}", "return { policies = {", ("x"):rep(70000), "p", "timeout", "missing", "\0" })[math.random(14)] end,
    }
    local function any() return values[math.random(#values)]() end
    local open = core.bench { now = 1, seed = 1 }
    local running = core.bench { now = 1, seed = 1 }
    assert(running:load("x", "return { policies = {} }", {}))
    local conn = running:accept("10.0.0.1:5")
    local names = {}
    for name in pairs(getmetatable(running) or debug.getmetatable(running).__index) do names[#names + 1] = name end
    table.sort(names)
    assert.is_true(#names > 15)
    for _ = 1, 8000 do
      local name = names[math.random(#names)]
      if name ~= "close" and (name ~= "drain" or math.random() < 0.01) then
        local b = math.random() < 0.8 and running or open
        local first = math.random() < 0.3 and conn or any()
        pcall(b[name], math.random() < 0.95 and b or any(), first, any(), any(), any())
      end
      if math.random() < 0.01 then running:take() end
    end
    for _, f in pairs { core.bench, core.address, core.suggest, core.json } do
      for _ = 1, 300 do pcall(f, any(), any(), any()) end
    end
    assert.equal("1.2.3.4:5", core.address("1.2.3.4:5").text)
  end)

  it("refuses calls of a bench that is closed", function()
    local b = core.bench { now = 1, seed = 1 }
    b:close()
    b:close()
    for name, f in pairs(debug.getmetatable(b).__index) do
      if name ~= "close" then
        local ok, why = pcall(f, b, "x", "x", "x", {})
        assert.is_false(ok)
        assert.matches("the bench is closed", why)
      end
    end
  end)

  it("says its version", function()
    assert.matches("^%d+%.%d+%.%d+$", core.version)
    assert.equal(core.version, testing.version)
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
