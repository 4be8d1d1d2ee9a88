-- SPDX-License-Identifier: MIT
-- relay.testing where policies wait: results that are filled in later, the web, files, timers, commands, and
-- benches that end meanwhile.
local core = require "moonrelay_core"
local testing = require "relay.testing"

local function bench(chunk, options)
  local t = testing.new(options or {})
  assert(t:load { policies = { { chunk = chunk, name = "p" } } })
  return t
end

describe("a command", function()
  local t
  before_each(function()
    t = bench [[
      return { commands = {
        text = function(...) return table.concat({ ... }, "+") end,
        tab = function() return { n = 1, list = { "a", true } } end,
        none = function() end,
        bad = function() error("oh") end,
      } }]]
  end)

  it("gives what the policy returned", function()
    assert.equal("a+7", t:call("p", "text", "a", 7))
    assert.same({ n = 1, list = { "a", true } }, t:call("p", "tab"))
  end)

  it("that fails gives nil and why", function()
    local v, why = t:call("p", "bad")
    assert.is_nil(v)
    assert.matches("chunk1.lua:5: oh", why)
    assert.is_nil((t:call("p", "txt")))
    assert.is_nil((t:call("q", "text")))
  end)
end)

describe("a player's lines", function()
  it("are all that he was sent, also the last one", function()
    local t = bench [[
      local relay = require "relay"
      return { commands = { out = function(id) relay.notify(id, "bye") relay.kick(id, "enough") end } }]]
    local h = t:join()
    t:call("p", "out", h.session.id)
    local lines = t.lines[h.session.id]
    assert.equal("set-oid " .. h.session.oid, lines[1])
    assert.equal("notice bye", lines[3])
    assert.equal("error session:enough", lines[4])
    assert.equal("closed", t:connect(h, "x").code)
    assert.equal(h.session.oid, lines[1]:sub(9))
  end)
end)

describe("a hook that waits", function()
  local sleeper = [[
    local relay = require "relay"
    local function wait(ev)
      if ev.meta.sleep then relay.sleep(tonumber(ev.meta.sleep)) end
      if ev.meta.no then return false, ev.meta.no end
    end
    return {
      register = wait, connect = wait,
      create = function(ev) if ev.meta.create then relay.sleep(tonumber(ev.meta.create)) end end,
      drop = function(ev)
        relay.sleep(1)
        if ev:peek(2) == "no" then return false, "no" end
        return { ttl = 60 }
      end,
    }]]

  it("leaves a join pending, which is filled in when it ends", function()
    local t = bench(sleeper)
    local h = t:join { udp = "10.0.0.1:4000", meta = { sleep = 1.5 } }
    assert.is_true(h.pending)
    assert.is_false(h.ok)
    assert.is_nil(h.session)
    t:advance(1.4)
    assert.is_true(h.pending)
    t:advance(0.1)
    assert.is_false(h.pending)
    assert.is_true(h.ok)
    assert.equal("10.0.0.1:4000", h.session.addr.text)
    assert.equal(1700000001.5, h.session.since)
  end)

  it("refuses later as well", function()
    local t = bench(sleeper)
    local h = t:join { meta = { sleep = 1, no = "late" } }
    t:advance(1)
    assert.equal("rejected late", h.code .. " " .. h.reason)
  end)

  it("is given up at its deadline", function()
    local t = bench(sleeper)
    local h = t:join { meta = { sleep = 30 } }
    t:advance(1.9)
    assert.is_true(h.pending)
    t:advance(0.2)
    assert.equal("rejected policy-error", h.code .. " " .. h.reason)
    assert.equal("error", t.logs[#t.logs].level)
  end)

  it("leaves a connect pending, and what the player asks next behind it", function()
    local t = bench(sleeper)
    local h, c = t:join(), t:join()
    local first = t:connect(c, h.session.oid, { meta = { sleep = 1 } })
    local second = t:connect(c, h.session.oid, { mode = "connect" })
    assert.is_true(first.pending and second.pending)
    t:advance(1)
    assert.is_true(first.ok and second.ok)
    assert.equal("relay direct", first.via .. " " .. second.via)
    assert.equal(h.session.id, first.host_relay.session)
  end)

  it("ends with its player", function()
    local t = bench(sleeper)
    local h, c = t:join(), t:join()
    local j = t:connect(c, h.session.oid, { meta = { sleep = 1 } })
    c:leave("reset")
    assert.is_false(j.pending)
    assert.equal("closed", j.code)
    t:advance(2)
    assert.equal("closed", j.code)
    assert.equal(0, #t.logs)
  end)

  it("ends with its host", function()
    local t = bench(sleeper)
    local h, c = t:join(), t:join()
    local j = t:connect(c, h.session.oid, { meta = { create = 1 } })
    h:leave("reset")
    assert.equal("unknown-oid", j.code)
  end)

  it("leaves a drop pending, whose datagrams wait in order", function()
    local t = bench(sleeper)
    local h, c = t:join(), t:join()
    local j = t:connect(c, h.session.oid)
    local knock = { sender = "203.0.113.5:4000", port = j.relay.port, data = { "1", "2" } }
    local d = t:drop(knock)
    local more = t:drop(knock)
    assert.is_true(d.pending and more.pending)
    t:advance(1)
    assert.is_true(d.ok and more.ok)
    assert.equal(4, d.replayed)
    assert.equal(60, d.spec.ttl)
    assert.equal(d.relay.id, more.relay.id)
  end)

  it("leaves a drop pending also when the flow was muted or known before", function()
    local t = bench(sleeper)
    local h, c = t:join(), t:join()
    local j = t:connect(c, h.session.oid)
    for _, case in ipairs { { "no", false }, { "no", false }, { "hi", true }, { "no", false }, { "hi", true } } do
      local d = t:drop { sender = "203.0.113.5:4000", port = j.relay.port, data = case[1] }
      assert.is_true(d.pending)
      t:advance(1)
      assert.equal(case[2], d.ok)
      assert.equal(case[2] and 1 or 0, d.replayed)
    end
  end)

  it("goes on after a reload", function()
    local t = bench(sleeper)
    local h = t:join { meta = { sleep = 1 } }
    assert(t:reload())
    assert.is_true(h.pending)
    t:advance(1)
    assert.is_true(h.ok)
  end)
end)

describe("the web", function()
  local asker = [[
    local relay = require "relay"
    return { register = function(ev)
      local res, why, code = relay.http { url = ev.meta.url, json = { user = "alice" }, headers = { ["X-A"] = "1" } }
      if not res then return false, code end
      return { tags = { status = res.status, body = res.body, kind = res.headers["content-type"] } }
    end }]]

  it("answers from t.http when time passes", function()
    local t = bench(asker)
    t.http["https://b/x"] = { status = 201, body = "hello", headers = { ["Content-Type"] = "text/plain" } }
    local h = t:join { meta = { url = "https://b/x" } }
    assert.is_true(h.pending)
    assert.equal(1, #t.requests)
    assert.equal("POST", t.requests[1].method)
    assert.equal("https://b/x", t.requests[1].url)
    assert.same({ user = "alice" }, core.json(t.requests[1].body))
    t:advance(0)
    assert.is_true(h.ok)
    assert.same({ status = "201", body = "hello", kind = "text/plain" }, h.session.tags)
  end)

  it("answers by a function of the test", function()
    local t = bench(asker)
    t.http = function(request) return { body = request.method .. request.url } end
    local h = t:join { meta = { url = "https://c/" } }
    t:advance(0)
    assert.equal("POSThttps://c/", h.session.tags.body)
    assert.equal("200", h.session.tags.status)
  end)

  it("refuses what nobody named, fails as it is told to, and takes its time", function()
    local t = bench(asker)
    t.http["https://slow/"] = { delay = 1 }
    t.http["https://never/"] = { delay = 100 }
    t.http["https://tls/"] = { error = "tls" }
    t.http["https://large/"] = { body = ("x"):rep(2 * 1024 * 1024) }
    local function ask(url) return t:join { meta = { url = url } } end
    local nobody, slow = ask "https://nobody/", ask "https://slow/"
    local tls, large = ask "https://tls/", ask "https://large/"
    t:advance(0.5)
    assert.equal("refused", nobody.reason)
    assert.equal("tls", tls.reason)
    assert.equal("too-large", large.reason)
    assert.is_true(slow.pending)
    t:advance(0.5)
    assert.is_true(slow.ok)
    local never = ask "https://never/"
    t:advance(3)
    assert.equal("policy-error", never.reason) -- the hook's own 2 s are over first
  end)

  it("may play while it is asked, but not let time pass", function()
    local t = bench(asker)
    local extra
    t.http = function(request)
      if request.url == "https://play/" then extra = t:join { meta = { url = "https://b/" } } end
      if request.url == "https://wait/" then t:advance(1) end
      return { status = 200 }
    end
    local h = t:join { meta = { url = "https://play/" } }
    t:advance(0)
    assert.is_true(h.ok and extra.ok)
    t:join { meta = { url = "https://wait/" } }
    assert.error_matches(function() t:advance(0) end, "time cannot pass while t.http or t.hosts is asked")
    t.http = {}
    t:advance(0)
  end)

  it("is asked 32 things at once, as by a daemon", function()
    local t = bench(asker)
    t.http = function() return { status = 204 } end
    local players = {}
    for i = 1, 33 do players[i] = t:join { meta = { url = "https://x/" } } end
    t:advance(0)
    assert.equal(32, #t.requests)
    assert.is_true(players[32].ok)
    assert.equal("busy", players[33].reason)
  end)

  it("that the test answers wrongly is the test's error", function()
    local t = bench(asker)
    t.http["https://a/"] = { stauts = 1 }
    t:join { meta = { url = "https://a/" } }
    assert.error_matches(function() t:advance(0) end, "did you mean status%?")
  end)
end)

describe("files", function()
  it("are found in t.files by the name that the policy wrote", function()
    local t = testing.new {}
    local chunk = [[
      local relay = require "relay"
      local text
      return {
        load = function() text = assert(relay.read("bans.txt")) end,
        register = function(ev)
          local more, why, code = relay.read(ev.meta.file)
          return { tags = { text = text, more = more or code } }
        end }]]
    assert.is_nil((t:load { policies = { { chunk = chunk } } }))
    t.files["bans.txt"] = "one"
    t.files["below/b"] = "two"
    assert(t:load { policies = { { chunk = chunk } } })
    local function read(file)
      local h = t:join { meta = { file = file } }
      t:advance(0)
      return h.session.tags.more
    end
    assert.equal("two", read "below/b")
    assert.equal("two", read "./below/b")
    t.files["../x"], t.files["/etc/x"], t.files["a/../b"] = "no", "no", "yes"
    assert.equal("not-found", read "none")
    assert.equal("outside", read "../x")
    assert.equal("outside", read "/etc/x")
    assert.equal("yes", read "a/../b")
  end)
end)

describe("time", function()
  it("lets timers run and notices wait", function()
    local t = bench [[
      local relay = require "relay"
      return {
        load = function()
          relay.every(10, function() relay.log.info("tick", { at = relay.now() }) end)
          relay.after(25, function() relay.sleep(2) relay.log.info("once", { at = relay.now() }) end)
        end,
        left = function(ev) relay.sleep(3) relay.log.info("left", { at = relay.now() }) end,
      }]]
    local h = t:join()
    h:leave("reset")
    t:advance(31)
    local seen = {}
    for _, entry in ipairs(t.logs) do seen[#seen + 1] = entry.msg .. " " .. entry.fields.at - 1700000000 end
    assert.same({ "left 3", "tick 10", "tick 20", "once 27", "tick 30" }, seen)
  end)

  it("passes for a load that waits", function()
    local t = testing.new {}
    assert(t:load { policies = { { chunk = [[
      local relay = require "relay"
      return { load = function() relay.sleep(1) end }]] } } })
    assert.equal(1700000001, t.now)
    local ok, why = t:load { policies = { { chunk = [[
      local relay = require "relay"
      return { load = function() relay.sleep(50) end }]] } } }
    assert.is_nil(ok)
    assert.is_string(why)
    assert.equal(1, t.generation)
  end)

  it("fills in a command that waits", function()
    local t = bench [[
      local relay = require "relay"
      return { commands = { slow = function(word) relay.sleep(1) return word end } }]]
    local r = t:call("p", "slow", "x")
    assert.is_true(r.pending)
    t:advance(1)
    assert.is_true(r.ok)
    assert.equal("x", r.value)
  end)
end)

describe("a bench that ends while hooks wait", function()
  it("gives all of its memory back", function()
    local function run()
      local t = bench [[
        local relay = require "relay"
        return {
          register = function(ev)
            if ev.meta.how == "http" then relay.http { url = "https://x/" } end
            if ev.meta.how == "read" then relay.read("x") end
            if ev.meta.how == "sleep" then relay.sleep(1) end
          end,
          create = function() relay.sleep(1) end,
          drop = function() relay.sleep(1) return {} end,
          left = function() relay.sleep(1) end,
          commands = { slow = function() relay.sleep(1) end },
        }]]
      local h, c = t:join(), t:join()
      local j = t:connect(c, h.session.oid)
      t:advance(3)
      assert.is_true(j.ok or j.code == "rejected")
      for _, how in ipairs { "http", "read", "sleep" } do assert.is_true(t:join({ meta = { how = how } }).pending) end
      t:call("p", "slow")
      t:join():leave("reset")
      if j.ok then assert.is_true(t:drop({ sender = "203.0.113.5:4000", port = j.relay.port }).pending) end
      assert.is_true(t:connect(t:join(), h.session.oid).pending)
    end
    run()
    collectgarbage()
    collectgarbage()
    local before = core.blocks()
    run()
    collectgarbage()
    collectgarbage()
    assert.equal(before, core.blocks())
  end)
end)

describe("who is blocked", function()
  it("is refused as such, as are datagrams", function()
    local t = bench([[
      local relay = require "relay"
      return { register = function(ev)
        if ev.meta.block then relay.block(ev.meta.block, 60, "test") end
      end }]])
    local h, c = t:join { udp = "10.0.0.1:4000" }, t:join { udp = "10.0.0.2:4000" }
    local j = t:connect(c, h.session.oid)
    c:leave("reset")
    t:join({ meta = { block = "1.2.3.0/24" } }):leave("reset")
    assert.equal("blocked", t:join({ ip = "1.2.3.4" }).code)
    assert.is_true(t:join({ ip = "1.2.4.4" }).ok)
    assert.equal("blocked", t:drop({ sender = "1.2.3.4:5000", port = j.host_relay.port }).code)
  end)
end)
