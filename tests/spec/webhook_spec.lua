-- SPDX-License-Identifier: MIT
-- The shipped policy `webhook`: what is posted when, how often it is tried, and that players never wait.
local shipped = require "shipped"

local URL = "https://backend.example/hook"

local function chain(extra)
  local entry = { "webhook", url = URL }
  for key, value in pairs(extra or {}) do entry[key] = value end
  local t = shipped.chain(entry)
  t.http[URL] = { status = 200, body = "" }
  return t
end

-- A host who was joined leaves.
local function host_leaves(t)
  local h, c = t:join { udp = "10.0.0.1:4000", meta = { ticket = "s3cret" } }, t:join { udp = "10.0.0.2:4000" }
  assert.is_true(t:connect(c, h.session.oid, { mode = "relay" }).ok)
  h:leave("reset")
  return h
end

local function errors(t)
  local list = {}
  for _, record in ipairs(t.logs) do
    if record.level == "error" then list[#list + 1] = record end
  end
  return list
end

describe("webhook", function()
  it("posts when a host is gone, in JSON and without what he said", function()
    local t = chain()
    local h = host_leaves(t)
    assert.equal(1, #t.requests)
    local req = t.requests[1]
    assert.same({ "POST", URL, "application/json" }, { req.method, req.url, req.headers["content-type"] })
    for _, part in ipairs { '"event":"left"', '"reason":"reset"', '"oid":"' .. h.session.oid .. '"', '"joins":1' } do
      assert.truthy(req.body:find(part, 1, true), req.body)
    end
    assert.falsy(req.body:find("s3cret", 1, true))
    assert.is_nil(req.headers["x-moonrelay-signature"])
  end)

  it("posts of players whom nobody joined when told to", function()
    local t = chain()
    t:join({ udp = false, ip = "10.0.0.1" }):leave("closed")
    assert.equal(0, #t.requests)
    t = chain { hosts_only = false }
    t:join({ udp = false, ip = "10.0.0.1" }):leave("closed")
    assert.equal(1, #t.requests)
  end)

  it("posts the events that are named", function()
    local t = chain { events = { "connected", "created", "destroyed" } }
    local h, c = t:join { udp = "10.0.0.1:4000" }, t:join { udp = "10.0.0.2:4000" }
    local j = t:connect(c, h.session.oid, { mode = "relay" })
    t:close(j.relay.id)
    h:leave("reset")
    local n = {}
    for _, req in ipairs(t.requests) do
      local event = req.body:match('"event":"(%w+)"')
      n[event] = (n[event] or 0) + 1
    end
    assert.same({ connected = 1, created = 2, destroyed = 1 }, n)
  end)

  it("signs the body with its key", function()
    local t = chain { key = "k" }
    host_leaves(t)
    local req = t.requests[1]
    local signer = shipped.chain { name = "sign", chunk = [[local c = require "relay".crypto
      return { commands = { hmac = function(key, data) return c.hex(c.hmac_sha256(key, data)) end } }]] }
    assert.equal(signer:call("sign", "hmac", "k", req.body), req.headers["x-moonrelay-signature"])
  end)

  it("tries again after 2 and 4 seconds when the backend is away, then gives up and says so", function()
    local t = chain()
    t.http[URL] = { status = 503, body = "" }
    host_leaves(t)
    assert.equal(1, #t.requests)
    t:advance(1.9)
    assert.equal(1, #t.requests)
    t:advance(0.2)
    assert.equal(2, #t.requests)
    assert.equal(0, #errors(t))
    t:advance(4.1)
    assert.equal(3, #t.requests)
    t:advance(60)
    assert.equal(3, #t.requests)
    assert.equal("webhook gave up", errors(t)[1].msg)
    assert.equal("status 503", errors(t)[1].fields.error)
  end)

  it("stops when the backend is back, and when it says no", function()
    local t = chain()
    t.http[URL] = { status = 500, body = "" }
    host_leaves(t)
    t:advance(1)
    t.http[URL] = { status = 204, body = "" }
    t:advance(60)
    assert.equal(2, #t.requests)
    assert.equal(0, #errors(t))
    t = chain()
    t.http[URL] = { status = 404, body = "" }
    host_leaves(t)
    t:advance(60)
    assert.equal(1, #t.requests)
    assert.equal("status 404", errors(t)[1].fields.error)
  end)

  it("tries as often as it is told, and ends by itself when every try takes all of its time", function()
    local t = chain { tries = 1 }
    t.http[URL] = { status = 500, body = "" }
    host_leaves(t)
    t:advance(60)
    assert.equal(1, #t.requests)
    t = chain { tries = 4 }
    t.http[URL] = { delay = 60 }
    host_leaves(t)
    t:advance(60)
    assert.equal(4, #t.requests)
    assert.equal(1, #errors(t))
    assert.equal("webhook gave up", errors(t)[1].msg)
  end)

  it("refuses settings that cannot be", function()
    for text, cfg in pairs {
      ["set url: where to post to"] = {},
      ["url does not begin with http:// or https://"] = { url = "ftp://x/" },
      ["tries = 5 (a whole number from 1 to 4 is expected)"] = { url = URL, tries = 5 },
      ["timeout = 9 (a number from 0.1 to 3.5 is expected)"] = { url = URL, timeout = 9 },
      ["events (a table of connected, created, destroyed, left is expected)"] = { url = URL, events = { "register" } },
    } do
      cfg[1] = "webhook"
      local err = shipped.refusal(cfg)
      assert.truthy(err:find(text, 1, true), err)
    end
  end)
end)
