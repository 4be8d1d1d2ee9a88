-- SPDX-License-Identifier: MIT
-- Flows to targets and open ports as policies decide about them: what a spec's target, the config's `ports` and
-- the address rules come to in relay.testing.
local testing = require "relay.testing"

local function bench(chunk, ports, settings)
  local t = testing.new { settings = settings or {} }
  assert(t:load { policies = { { chunk = chunk, name = "p" } }, ports = ports })
  return t
end

local function drop(t, options)
  local d = t:drop(options)
  t:advance(0)
  return d
end

local CLIENT = "203.0.113.5:4000"

describe("a flow at an open port", function()
  it("asks drop with reason new_flow and nobody's relay", function()
    local t = bench([[
      return { drop = function(ev)
        if ev.reason == "new_flow" and ev.port == 7777 and ev.relay == nil and ev.sender.ip == "203.0.113.5" then
          return { target = "10.4.4.4:7000", tags = { a = "b" } }
        end
      end }]], { [7777] = {} })
    local d = drop(t, { sender = CLIENT, port = 7777, data = { "one", "two" } })
    assert.is_true(d.ok, d.reason)
    assert.equal("10.4.4.4:7000", d.spec.target)
    assert.equal("10.4.4.4:7000", d.relay.target.text)
    assert.equal("target", d.relay.kind)
    assert.equal(CLIENT, d.relay.addr.text)
    assert.same({ a = "b" }, d.relay.tags)
    assert.equal(2, d.replayed)
  end)

  it("goes to the port's own target when no policy has an opinion, and to a policy's before", function()
    local t = bench([[
      return { drop = function(ev)
        if ev.sender.port == 4001 then return { target = "10.4.4.5:7000" } end
        if ev.sender.port == 4002 then return false, "no" end
      end }]], { [7777] = { target = "10.4.4.4:7000", tags = { front = "x" } } })
    local d = drop(t, { sender = CLIENT, port = 7777 })
    assert.equal("10.4.4.4:7000", d.relay.target.text)
    assert.same({ front = "x" }, d.relay.tags)
    assert.equal("10.4.4.5:7000", drop(t, { sender = "203.0.113.5:4001", port = 7777 }).relay.target.text)
    d = drop(t, { sender = "203.0.113.5:4002", port = 7777 })
    assert.equal("rejected no", d.code .. " " .. d.reason)
  end)

  it("stays dropped without a target, also when it is admitted", function()
    local t = bench([[return { drop = function() return {} end }]], { [7777] = {} })
    local d = drop(t, { sender = CLIENT, port = 7777 })
    assert.is_false(d.ok)
    assert.equal("new_flow", d.code)
  end)

  it("is not what the shipped dynamic policy speaks of", function()
    local t = testing.new {}
    assert(t:load { policies = { { "dynamic", from = "anyone" } }, ports = { [7777] = {} } })
    assert.equal("new_flow", drop(t, { sender = CLIENT, port = 7777 }).code)
  end)

  it("waits for create, which has no word on where it goes", function()
    local t = bench([[
      return {
        drop = function() return { target = "10.4.4.4:7000" } end,
        create = function(ev)
          if ev.reason == "dynamic" and ev.addr.port == 4000 then return { idle = 5 } end
          if ev.addr.port == 4001 then return { target = "10.4.4.5:7000" } end
          return false, "closed"
        end,
      }]], { [7777] = {} })
    assert.equal(5, drop(t, { sender = CLIENT, port = 7777 }).spec.idle)
    local d = drop(t, { sender = "203.0.113.5:4001", port = 7777 })
    assert.equal("rejected policy-error", d.code .. " " .. d.reason)
    d = drop(t, { sender = "203.0.113.5:4002", port = 7777 })
    assert.equal("rejected closed", d.code .. " " .. d.reason)
  end)

  it("ends with its idle time and is asked about anew", function()
    local t = bench([[
      local relay = require "relay"
      local asked = relay.store("asked")
      return {
        drop = function() asked:incr("n") return { target = "10.4.4.4:7000", idle = 10 } end,
        commands = { asked = function() return tostring(asked:get("n")) end,
                     relays = function() return tostring(#relay.relays()) end },
      }]], { [7777] = {} })
    assert.is_true(drop(t, { sender = CLIENT, port = 7777 }).ok)
    assert.is_true(drop(t, { sender = CLIENT, port = 7777 }).ok) -- by its link
    assert.equal("1 1", t:call("p", "asked") .. " " .. t:call("p", "relays"))
    t:advance(11)
    assert.equal("0", (t:call("p", "relays")))
    assert.is_true(drop(t, { sender = CLIENT, port = 7777 }).ok)
    assert.equal("2 1", t:call("p", "asked") .. " " .. t:call("p", "relays"))
  end)
end)

describe("a target", function()
  local ANY = [[return { drop = function(ev) return { target = ev:peek(64) } end }]]

  local function to(target, settings)
    local t = bench(ANY, { [7777] = {} }, settings)
    t.hosts["a.fleet"] = "10.4.4.4"
    t.hosts["zero.fleet"] = "0.0.0.0"
    local d = drop(t, { sender = CLIENT, port = 7777, data = target })
    return d.ok and d.relay.target.text or d.code .. " " .. d.reason, t
  end

  it("is a name or an address of our ports' family", function()
    assert.equal("10.4.4.4:7000", to("a.fleet:7000"))
    assert.equal("10.9.9.9:7000", to("10.9.9.9:7000"))
    assert.equal("host-no-address family", to("[2001:db8::1]:7000"))
    assert.equal("[2001:db8::1]:7000", to("[2001:db8::1]:7000", { udp_host = "::" }))
    assert.equal("10.4.4.4:7000", to("a.fleet:7000", { udp_host = "::" }))
    assert.equal("host-no-address not-found", to("nobody.fleet:7000"))
  end)

  it("is never ours, nobody's, everybody's or a service's", function()
    assert.equal("host-no-address address-class", to("0.0.0.0:7000"))
    assert.equal("host-no-address address-class", to("zero.fleet:7000"))
    assert.equal("host-no-address address-class", to("224.0.0.1:7000"))
    assert.equal("host-no-address address-class", to("255.255.255.255:7000"))
    assert.equal("host-no-address low-port", to("10.4.4.4:22"))
    assert.equal("10.4.4.4:22", to("10.4.4.4:22", { allow_low_ports = true }))
    assert.equal("host-no-address own-address", to("127.0.0.1:7777"))
    assert.equal("host-no-address own-address", to("127.0.0.1:49152"))
  end)

  it("that is none is the policy's error", function()
    local said, t = to("10.4.4.4")
    assert.equal("rejected policy-error", said)
    local found
    for _, record in ipairs(t.logs) do
      for _, value in pairs(record.fields) do
        found = found or tostring(value):find("target, '10.4.4.4' (host:port or [IPv6]:port is expected)", 1, true)
      end
    end
    assert.truthy(found)
  end)

  it("may be named for a stranger at a player's port", function()
    local t = bench [[return { drop = function(ev)
      return ev.reason == "unknown_sender" and { target = "10.4.4.4:7000" } or nil
    end }]]
    local h, c = t:join { udp = "10.0.0.1:4000" }, t:join { udp = "10.0.0.2:4000" }
    local j = t:connect(c, h.session.oid)
    local d = drop(t, { sender = CLIENT, port = j.host_relay.port })
    assert.equal("10.4.4.4:7000", d.relay.target.text)
  end)
end)

describe("the ports of a config", function()
  it("are refused by name and line when they are taken", function()
    local t = testing.new {}
    local function refusal(ports, settings)
      local ok, err = t:load { settings = settings, ports = ports, policies = {} }
      assert.is_nil(ok)
      return err
    end
    assert.truthy(refusal({ [49152] = {} }):find("ports[49152] is among udp_relay_ports", 1, true))
    assert.truthy(refusal({ [8809] = {} }):find("ports[8809] is udp_registrar_port", 1, true))
    assert.truthy(refusal({ [7777] = { idle = -1 } }):find("ports[7777]: idle, -1", 1, true))
  end)

  it("come and go with a reload", function()
    local t = testing.new {}
    local function ports(list) assert(t:load { policies = {}, ports = list }) end
    local to = { target = "10.4.4.4:7000" }
    ports { [7777] = to }
    assert.is_true(drop(t, { sender = CLIENT, port = 7777 }).ok)
    ports { [7778] = to }
    assert.is_true(drop(t, { sender = CLIENT, port = 7778 }).ok)
    assert.is_true(drop(t, { sender = CLIENT, port = 7777 }).ok) -- the flow that is there goes on
    assert.equal("new_flow", drop(t, { sender = "203.0.113.6:4000", port = 7777 }).code)
    t:advance(31)
    assert.has_error(function() t:drop { sender = CLIENT, port = 7777 } end)
  end)
end)

describe("relay.open", function()
  local OPENER = [[
    local relay = require "relay"
    return {
      create = function(ev)
        if ev.addr.port == 4009 then return false, "closed" end
        return { tags = { why = ev.reason } }
      end,
      commands = {
        flow = function(peer, target, port)
          local r, message, code = relay.open { peer = peer, port = tonumber(port or 7777), target = target, idle = 5 }
          if not r then return (code or "-") .. " (" .. message .. ")" end
          return ("%s %s %s %s"):format(r.kind, r.addr.text, r.target.text, r.tags.why)
        end,
        relay = function(peer, pair)
          local r, message, code = relay.open { peer = peer, pair = pair, tags = { a = "b" } }
          if not r then return (code or "-") .. " (" .. message .. ")" end
          return r.id
        end,
        raw = function(text)
          local options = assert(relay.json.decode(text))
          return tostring(relay.open(options))
        end,
      },
    }]]

  it("makes a flow through an open port before its first datagram", function()
    local t = bench(OPENER, { [7777] = { tags = { front = "x" } } })
    t.hosts["a.fleet"] = "10.4.4.4"
    local r = t:call("p", "flow", CLIENT, "a.fleet:7000")
    t:advance(0)
    assert.equal("target " .. CLIENT .. " 10.4.4.4:7000 script", r.value or r)
    local d = drop(t, { sender = CLIENT, port = 7777, data = "hi" })
    assert.is_true(d.ok)
    t:advance(6)
    assert.equal("new_flow", drop(t, { sender = CLIENT, port = 7777 }).code)
  end)

  it("makes relays for addresses, and pairs", function()
    local t = bench(OPENER)
    local function make(...)
      local r = t:call("p", "relay", ...)
      t:advance(0)
      return type(r) == "table" and r.value or r
    end
    local a = make("203.0.113.5:4000")
    local b = make("203.0.113.6:4000", a)
    local port = tonumber(a:match("^%d+"))
    local d = t:drop { sender = "203.0.113.6:4000", port = port, data = "hi" }
    assert.not_equal(a, b)
    t:advance(0)
    assert.equal("not_paired", d.code) -- asked all the same, as every t:drop
    assert.equal("not-found (no relay: not-found: the relay of pair has ended)", make("203.0.113.7:4000", "49152.9"))
    assert.equal("rejected (no relay: rejected: closed)", make("203.0.113.5:4009"))
  end)

  it("says by a code what cannot be", function()
    local t = bench(OPENER, { [7777] = {} })
    local function flow(...)
      local r = t:call("p", "flow", ...)
      t:advance(0)
      return type(r) == "table" and r.value or r
    end
    assert.equal("not-found (no relay: the target: not-found)", flow(CLIENT, "nobody.fleet:7000"))
    assert.equal("own-address (no relay: the target: own-address)", flow(CLIENT, "127.0.0.1:7777"))
    assert.equal("not-found (no relay: not-found: there is no open port of that number)",
      flow(CLIENT, "10.4.4.4:7000", 7778))
    assert.equal("address-class (no relay: address-class)", flow("0.0.0.0:4000", "10.4.4.4:7000"))
  end)

  it("raises for what is no opening, and where nothing can be made", function()
    local t = bench(OPENER, { [7777] = {} })
    local function misuse(text)
      local _, why = t:call("p", "raw", text)
      return why
    end
    for text, expected in pairs {
      ['{}'] = "relay.open: peer is nil (an address with its port",
      ['{"peer":"203.0.113.5"}'] = "relay.open: peer is",
      ['{"peer":"203.0.113.5:4000","target":"a:1"}'] = "relay.open: port is nil (with a target",
      ['{"peer":"203.0.113.5:4000","port":7777}'] = "there is no target",
      ['{"peer":"203.0.113.5:4000","port":7777,"target":"a"}'] = "relay.open: target, 'a' (host:port or",
      ['{"peer":"203.0.113.5:4000","port":7777,"target":"a:1","pair":"1.1"}'] = "is nobody's pair",
      ['{"peer":"203.0.113.5:4000","idel":5}'] = "did you mean idle?",
      ['{"peer":"203.0.113.5:4000","hold":{}}'] = "hold",
      ['{"peer":"203.0.113.5:4000","idle":-5}'] = "relay.open: idle, -5 (seconds above 0",
    } do
      local why = misuse(text)
      assert.truthy(why and why:find(expected, 1, true), text .. ": " .. tostring(why))
    end
    local ok, err = testing.new({}):load { policies = { { chunk = [[
      return { load = function() require("relay").open { peer = "203.0.113.5:4000" } end }]] } } }
    assert.is_nil(ok)
    assert.truthy(err:find("relay.open", 1, true), err)
  end)

  it("is not for create and lookup, which what it makes waits for", function()
    local t = bench([[
      local relay = require "relay"
      local function open() return relay.open { peer = "203.0.113.9:4000" } end
      return {
        drop = function() return { target = "a.fleet:7000" } end,
        create = function(ev) if ev.addr.port == 4001 then open() end end,
        lookup = function() open() end,
      }]], { [7777] = {} })
    t.hosts["a.fleet"] = "10.4.4.4"
    local d = drop(t, { sender = "203.0.113.5:4001", port = 7777 })
    assert.equal("rejected policy-error", d.code .. " " .. d.reason)
    d = drop(t, { sender = "203.0.113.5:4000", port = 7777 })
    assert.equal("host-no-address policy-error", d.code .. " " .. d.reason)
    local text = ""
    for _, record in ipairs(t.logs) do text = text .. tostring(record.fields.error) .. "\n" end
    assert.truthy(text:find("relay.open: not in create, which what it makes would wait for", 1, true), text)
    assert.truthy(text:find("relay.open: not in lookup, which what it makes would wait for", 1, true), text)
  end)

  it("ends with the bench while it is waited for", function()
    do
      local t = bench([[
        local relay = require "relay"
        local function open() relay.open { peer = "203.0.113.9:4000", port = 7777, target = "late.fleet:7000" } end
        return { load = function() relay.every(1, open) end, drop = function() open() end,
          commands = { open = open } }]], { [7777] = {} })
      t.hosts["late.fleet"] = { "10.4.4.4", delay = 4 }
      t:drop { sender = CLIENT, port = 7777 }
      t:call("p", "open")
      t:advance(1.5)
    end
    collectgarbage()
    collectgarbage() -- under the sanitizer: what is freed is not touched
  end)
end)
