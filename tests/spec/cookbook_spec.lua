-- SPDX-License-Identifier: MIT
-- Policies as people write them: short, without any check, with stores at the top of the file, calls in commands, waits
-- in notices. What is in shipped policies is in their specs; here is what those do otherwise or not at all.
local shipped = require "shipped"
local testing = require "relay.testing"

local USERS = { name = "users", chunk = [[
return { register = function(ev) return { tags = { user = ev.meta.user, game = ev.meta.game } } end }]] }

local function user(t, name, port)
  return t:join { udp = "10.0.0.1:" .. port, meta = { user = name } }
end

describe("a policy as people write them", function()
  it("throws out one user of a school and nobody beside him", function()
    local t = shipped.chain(USERS, { name = "bouncer", chunk = [[
      local relay = require "relay"
      return { commands = { out = function(who, minutes)
        local n = relay.block({ user = who }, (tonumber(minutes) or 5) * 60, "thrown-out")
        return "thrown out: " .. n
      end } }]] })
    local alice, bob = user(t, "alice", 4001), user(t, "bob", 4002)
    assert.is_true(t:connect(alice, bob.session.oid, { mode = "relay" }).ok)
    assert.equal("thrown out: 1", (t:call("bouncer", "out", "alice", 1)))
    assert.truthy(table.concat(t.lines[alice.session.id], "\n"):find("error session:blocked", 1, true))
    assert.equal("blocked", user(t, "alice", 4003).code)
    assert.is_true(user(t, "carol", 4004).ok)
    assert.is_true(t:connect(user(t, "dave", 4005), bob.session.oid, { mode = "relay" }).ok)
    t:advance(61)
    assert.is_true(user(t, "alice", 4006).ok)
  end)

  it("counts relays by a tag, with a default for whoever has none", function()
    local t = shipped.chain(USERS, { name = "games", max = { chess = 2, default = 4 }, chunk = [[
      local max
      return {
        load = function(cfg) max = cfg.max or { default = 50 } end,
        create = function(ev)
          local game = ev.session and ev.session.tags.game or "default"
          return { slots = { ["game/" .. game] = max[game] or max.default } }
        end,
      }]] })
    local function pair(game, port)
      local h = t:join { udp = "10.0.0.1:" .. port, meta = { game = game } }
      local c = t:join { udp = "10.0.0.2:" .. port, meta = { game = game } }
      local j = t:connect(c, h.session.oid, { mode = "relay" })
      return j.ok or j.code .. ":" .. j.reason
    end
    assert.is_true(pair("chess", 4000))
    assert.equal("full:game/chess", pair("chess", 4001))
    assert.is_true(pair("go", 4002))
    assert.is_true(pair(nil, 4003))
    assert.is_true(pair(nil, 4004))
    assert.equal("full:game/default", pair(nil, 4005))
  end)

  it("opens its store at the top of the file, and finds in it what a generation before wrote", function()
    local t = shipped.chain { name = "seen", chunk = [[
      local relay = require "relay"
      local times = relay.store("times", { max = 1e5, ttl = 3600 })
      return { register = function(ev)
        return { tags = { times = times:incr(ev.session.ip) } }
      end }]] }
    local function times() return t:join({ ip = "10.0.0.1", udp = false }).session.tags.times end
    assert.equal("1", times())
    assert.equal("2", times())
    assert(t:reload())
    assert.equal("3", times())
    t:advance(3601)
    assert.equal("1", times())
  end)

  it("tells a backend in a notice, with waits between its tries", function()
    local t = shipped.chain { name = "hook", chunk = [[
      local relay = require "relay"
      return { left = function(ev)
        for try = 1, 3 do
          local res = relay.http { url = "http://backend/left", json = { oid = ev.session.oid, why = ev.reason } }
          if res and res.status < 500 then return end
          relay.sleep(2 ^ try)
        end
        relay.log.error("gave up", { oid = ev.session.oid })
      end }]] }
    local h = t:join { ip = "10.0.0.1", udp = false }
    h:leave("reset")
    t:advance(15)
    assert.equal(3, #t.requests)
    assert.equal("POST", t.requests[1].method)
    assert.equal('{"oid":"' .. h.session.oid .. '","why":"reset"}', t.requests[1].body)
    assert.truthy(t.requests[1].headers["Content-Type"]:find("application/json", 1, true))
    assert.equal("gave up", t.logs[#t.logs].msg)
  end)

  it("lists as many players as it asks for, the longest there first", function()
    local t = shipped.chain { name = "list", chunk = [[
      local relay = require "relay"
      return { commands = { ids = function(max)
        local ids = {}
        for i, s in ipairs(relay.sessions(nil, tonumber(max))) do ids[i] = s.id end
        return table.concat(ids, " ")
      end } }]] }
    local ids = {}
    for i = 1, 5 do ids[i] = t:join({ ip = "10.0.0.1", udp = false }).session.id end
    assert.equal(table.concat(ids, " "), (t:call("list", "ids")))
    assert.equal(ids[1] .. " " .. ids[2], (t:call("list", "ids", 2)))
    local _, why = t:call("list", "ids", 0)
    assert.truthy(why:find("relay.sessions: max", 1, true), why)
  end)

  it("raises in load what its source had to say", function()
    local t = testing.new()
    t.files["nets.txt"] = "10.0.0.0/8\n10.0.0.0/33\n"
    local ok, err = t:load { policies = { { name = "list", source = "nets.txt", chunk = [[
      local relay = require "relay"
      return { load = function(cfg)
        local text = assert(relay.read(assert(cfg.source, "list: set source")))
        local nets, bad = relay.cidr(text)
        if not nets then error("list: " .. cfg.source .. ": " .. bad, 0) end
      end }]] } } }
    assert.is_nil(ok)
    assert.truthy(err:find("list: nets.txt: line 2: not a network: 10.0.0.0/33", 1, true), err)
  end)

  -- A UDP load balancer: every new client of port 7777 goes to the game server its address hashes to.
  local PROXY = [[
local relay = require "relay"
local servers
return {
  load = function(cfg) servers = cfg.servers end,
  drop = function(ev)
    if ev.port ~= 7777 then return end
    local n = tonumber(relay.crypto.hex(relay.crypto.hmac_sha256("pick", ev.sender.net)):sub(1, 6), 16)
    return { target = servers[n % #servers + 1], idle = 60, slots = { ["ip/" .. ev.sender.net] = 16 } }
  end,
}]]

  it("balances the clients of an open port over game servers", function()
    local t = testing.new { settings = { dynamic_per_address = 32 } }
    t.hosts["two.fleet"] = "10.4.4.2"
    assert(t:load {
      policies = { { name = "proxy", chunk = PROXY, servers = { "10.4.4.1:7000", "two.fleet:7000" } }, "dynamic" },
      ports = { [7777] = { idle = 30 } },
    })
    local seen, egress = {}, {}
    for i = 1, 40 do
      local d = t:drop { sender = "203.0.113." .. i .. ":4000", port = 7777, data = "hi" }
      t:advance(0)
      assert.is_true(d.ok, d.reason)
      assert.equal("target", d.relay.kind)
      assert.equal(30, d.spec.idle)
      assert.equal(1, d.replayed)
      seen[d.relay.target.text] = d.spec.target
      assert.is_nil(egress[d.relay.port])
      egress[d.relay.port] = true
    end
    assert.same({ ["10.4.4.1:7000"] = "10.4.4.1:7000", ["10.4.4.2:7000"] = "two.fleet:7000" }, seen)
    for i = 1, 17 do
      local d = t:drop { sender = "203.0.113.99:" .. 4000 + i, port = 7777 }
      t:advance(0)
      assert.equal(i <= 16, d.ok)
      if i > 16 then assert.equal("full ip/203.0.113.99", d.code .. " " .. d.reason) end
    end
  end)
end)
