-- SPDX-License-Identifier: MIT
-- relay.testing where names become addresses: t:lookup, t.hosts, the chain of hooks `lookup` in between.
local core = require "moonrelay_core"
local testing = require "relay.testing"

local function bench(...)
  local t, policies = testing.new {}, {}
  for i, chunk in ipairs { ... } do policies[i] = { chunk = chunk, name = "p" .. i } end
  assert(t:load { policies = policies })
  return t
end

local function outcome(l)
  if l.pending then return "pending" end
  return l.ok and l.address or l.code .. ": " .. l.err
end

describe("a lookup without a hook", function()
  local t
  before_each(function()
    t = bench "return {}"
    t.hosts["a.fleet"] = { "2001:db8::1", "10.4.4.4", "10.4.4.5" }
  end)

  it("gives a literal of the family itself, and asks nobody", function()
    t.hosts = function(host) error("asked about " .. host) end
    assert.equal("192.0.2.7", outcome(t:lookup("192.0.2.7", 4)))
    assert.equal("2001:db8::2", outcome(t:lookup("2001:db8:0::2", 6)))
    assert.equal("::1", outcome(t:lookup "::1"))
  end)

  it("gives the first address of the family", function()
    assert.equal("10.4.4.4", outcome(t:lookup("a.fleet", 4)))
    assert.equal("2001:db8::1", outcome(t:lookup("a.fleet", 6)))
    assert.equal("2001:db8::1", outcome(t:lookup "a.fleet"))
  end)

  it("does not know a host that t.hosts does not name, or says false to", function()
    t.hosts["gone.fleet"] = false
    assert.equal("not-found: b.fleet: t.hosts has no such host", outcome(t:lookup("b.fleet", 4)))
    assert.equal("not-found", t:lookup("gone.fleet", 4).code)
    t.hosts["127.0.0.1x"] = {}
    assert.equal("not-found: 127.0.0.1x has no address", outcome(t:lookup("127.0.0.1x", 4)))
  end)

  it("takes a text for a list of one, and a function's word", function()
    t.hosts["a.fleet"] = "10.9.9.9"
    t.hosts["b.fleet"] = function(host, family)
      if family == 6 then return nil, host .. " is asleep" end
      return { "10.8.8." .. (family or 0) }
    end
    assert.equal("10.9.9.9", outcome(t:lookup("a.fleet", 4)))
    assert.equal("10.8.8.4", outcome(t:lookup("b.fleet", 4)))
    assert.equal("10.8.8.0", outcome(t:lookup "b.fleet"))
    assert.equal("not-found: b.fleet is asleep", outcome(t:lookup("b.fleet", 6)))
  end)

  it("ends in a family error that names both where the address is of the other one", function()
    assert.equal("family: ::1 is an IPv6 address and IPv4 is asked for", outcome(t:lookup("::1", 4)))
    assert.equal("family: 10.1.1.1 is an IPv4 address and IPv6 is asked for", outcome(t:lookup("10.1.1.1", 6)))
    t.hosts["six.fleet"] = "2001:db8::6"
    assert.equal("family: six.fleet: 2001:db8::6 is an IPv6 address and IPv4 is asked for",
      outcome(t:lookup("six.fleet", 4)))
  end)

  it("takes as long as the test says, and at most five seconds", function()
    t.hosts["slow.fleet"] = { "10.1.1.1", delay = 2 }
    t.hosts["late.fleet"] = { "10.1.1.1", delay = 6 }
    local slow, late = t:lookup("slow.fleet", 4), t:lookup("late.fleet", 4)
    t:advance(1.9)
    assert.equal("pending", outcome(slow))
    t:advance(0.2)
    assert.equal("10.1.1.1", outcome(slow))
    t:advance(2.8)
    assert.equal("pending", outcome(late))
    t:advance(0.2)
    assert.equal("timeout: late.fleet: no answer within 5 s", outcome(late))
    t:advance(5)
    assert.equal("timeout", late.code)
  end)
end)

describe("a lookup with a hook", function()
  it("asks it about every host, literals too, with the family and what for", function()
    local t = bench [[
      local relay, seen = require "relay", {}
      return {
        lookup = function(host, family, ev)
          seen[#seen + 1] = table.concat({ host, tostring(family), ev.op, ev.host, tostring(ev.family) }, " ")
        end,
        commands = { seen = function() return seen end },
      }]]
    t.hosts["a.fleet"] = "10.1.1.1"
    assert.equal("10.1.1.1", outcome(t:lookup("a.fleet", 4, "send")))
    assert.equal("10.2.2.2", outcome(t:lookup("10.2.2.2", 4, "bind")))
    assert.equal("::1", outcome(t:lookup "::1"))
    assert.same({ "a.fleet 4 send a.fleet 4", "10.2.2.2 4 bind 10.2.2.2 4", "::1 nil resolve ::1 nil" },
      (t:call("p1", "seen")))
  end)

  it("takes the first policy's answer, then the next one's, at last the default", function()
    local t = bench([[return { lookup = function(host)
      if host == "one" then return "10.0.0.1" end
      if host == "bad" then return nil, "bad is not for us" end
    end }]], [[return { lookup = function(host)
      if host == "one" or host == "two" or host == "bad" then return "10.0.0.2" end
    end }]])
    t.hosts.three = "10.0.0.3"
    assert.equal("10.0.0.1", outcome(t:lookup("one", 4)))
    assert.equal("10.0.0.2", outcome(t:lookup("two", 4)))
    assert.equal("10.0.0.3", outcome(t:lookup("three", 4)))
    assert.matches("bad is not for us", t:lookup("bad", 4).err)
    assert.is_false(t:lookup("bad", 4).ok)
  end)

  it("takes an answer of the other family for an error of the policy", function()
    local t = bench [[return { lookup = function() return "2001:db8::9" end }]]
    assert.equal("policy-error", t:lookup("a.fleet", 4).code)
    assert.equal("hook failed", t.logs[1].msg)
    assert.matches("2001:db8::9", t.logs[1].fields.error)
    assert.equal("2001:db8::9", outcome(t:lookup("a.fleet", 6)))
  end)

  it("is an error of that request alone when the hook raises or answers nonsense", function()
    local t = bench [[return { lookup = function(host)
      if host == "throws" then error("oh") end
      if host == "number" then return 42 end
      if host == "text" then return "not an address" end
      return "10.0.0.1"
    end }]]
    for _, host in ipairs { "throws", "number", "text" } do
      assert.equal("policy-error", t:lookup(host, 4).code, host)
    end
    assert.equal(3, #t.logs)
    assert.equal("10.0.0.1", outcome(t:lookup("fine", 4)))
  end)

  it("is counted as the daemon counts it", function()
    local t = bench [[
      local relay = require "relay"
      return { lookup = function(host)
        if host == "mine" then return "10.0.0.1" end
        if host == "no" then return nil, "no", "gone" end
        if host == "slow" then relay.sleep(9) end
      end }]]
    t.hosts.three, t.hosts.late = "10.0.0.3", { "10.0.0.4", delay = 9 }
    for _, host in ipairs { "mine", "no", "10.0.0.2", "three", "nowhere", "slow", "late" } do t:lookup(host, 4) end
    t:advance(6)
    local total = t.metrics.moonrelay_lookup_total.v
    assert.equal(1, total["script,ok"])
    assert.equal(1, total["script,refused"])
    assert.equal(4, total["script,next"])
    assert.equal(1, total["script,policy-error"]) -- a hook may wait for two seconds
    assert.equal(1, total["literal,ok"])
    assert.equal(1, total["resolver,ok"])
    assert.equal(1, total["resolver,not-found"])
    assert.equal(1, total["resolver,timeout"])
  end)

  it("is pending while the hook waits", function()
    local t = bench [[
      local relay = require "relay"
      return { lookup = function(host) relay.sleep(1) return "10.0.0.1" end }]]
    local l = t:lookup("a.fleet", 4)
    assert.equal("pending", outcome(l))
    t:advance(1)
    assert.equal("10.0.0.1", outcome(l))
  end)

  it("may itself resolve, which does not ask it again", function()
    local t = bench [[
      local relay, asked = require "relay", 0
      return { lookup = function(host, family)
        asked = asked + 1
        local address, why, code = relay.resolve(host == "alias" and "a.fleet" or host, family)
        if not address then return nil, why, code end
        return address
      end, commands = { asked = function() return asked end } }]]
    t.hosts["a.fleet"] = "10.4.4.4"
    local l, gone = t:lookup("alias", 4), t:lookup("b.fleet", 4)
    t:advance(0)
    assert.equal("10.4.4.4", outcome(l))
    assert.equal("not-found", gone.code)
    assert.equal(2, tonumber((t:call("p1", "asked"))))
  end)
end)

describe("relay.resolve in a hook", function()
  it("goes through the chain, and to t.hosts in the end", function()
    local t = bench([[
      local relay = require "relay"
      return { register = function(ev)
        local address, why, code = relay.resolve(ev.meta.at, 4)
        if not address then return false, code end
        return { tags = { at = address } }
      end }]], [[return { lookup = function(host) if host == "b.fleet" then return "10.7.7.7" end end }]])
    t.hosts["a.fleet"] = { "10.4.4.4", delay = 1 }
    local a, b = t:join { meta = { at = "a.fleet" } }, t:join { meta = { at = "b.fleet" } }
    local c = t:join { meta = { at = "c.fleet" } }
    t:advance(0)
    assert.is_true(a.pending)
    assert.equal("10.7.7.7", b.session.tags.at)
    assert.equal("not-found", c.reason)
    t:advance(1)
    assert.equal("10.4.4.4", a.session.tags.at)
  end)

  it("is forgotten with the player who waits for it", function()
    collectgarbage()
    collectgarbage()
    local blocks = core.blocks()
    do
      local t = bench [[
        local relay = require "relay"
        return { register = function() relay.resolve("slow.fleet", 4) end }]]
      t.hosts["slow.fleet"] = { "10.4.4.4", delay = 1 }
      local h = t:join()
      h:leave("reset")
      t:advance(2)
      assert.equal("closed", h.code)
    end
    collectgarbage()
    collectgarbage()
    assert.equal(blocks, core.blocks())
  end)
end)

describe("a bench that ends while somebody asks", function()
  it("leaves nothing behind", function()
    collectgarbage()
    collectgarbage()
    local blocks = core.blocks()
    do
      local t = bench [[
        local relay = require "relay"
        return { lookup = function(host) if host == "sleepy" then relay.sleep(1) end end }]]
      t.hosts["slow.fleet"] = { "10.4.4.4", delay = 1 }
      assert.is_true(t:lookup("slow.fleet", 4).pending)
      assert.is_true(t:lookup("sleepy", 4).pending)
    end
    collectgarbage()
    collectgarbage()
    assert.equal(blocks, core.blocks())
  end)
end)

describe("misuse", function()
  it("of t:lookup and t.hosts says what is wrong, and where", function()
    local t = bench "return {}"
    assert.error_matches(function() t:lookup(7, 4) end, "t:lookup: the host is a number")
    for _, host in ipairs { "", ("x"):rep(256), "a\0b" } do
      assert.error_matches(function() t:lookup(host, 4) end, "a host has 1 to 255 bytes")
    end
    assert.error_matches(function() t:lookup("a", 5) end, "family = 5 %(4, 6 or nil is expected%)")
    assert.error_matches(function() t:lookup("a", 4, "sent") end, "did you mean send")
    t.hosts.a = { "10.1.1" }
    assert.error_matches(function() t:lookup("a", 4) end, "an address of t.hosts%[a%]")
    t.hosts.b = 7
    assert.error_matches(function() t:lookup("b", 4) end, "t.hosts%[b%] is a number")
    t.hosts.c = { "10.1.1.1", dellay = 1 }
    assert.error_matches(function() t:lookup("c", 4) end, "did you mean delay")
    t.hosts.d = function() t:advance(1) end
    assert.error_matches(function() t:lookup("d", 4) end, "time cannot pass")
  end)
end)
