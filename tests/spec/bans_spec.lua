-- SPDX-License-Identifier: MIT
-- The shipped policy `bans`: a list that is there before the first decision and never for a moment not.
local shipped = require "shipped"

local URL = "https://bans.example/list"

local function code(t, ip) return t:join({ ip = ip, udp = false }).code end

-- The last warning of the policy.
local function kept(t)
  local last
  for _, record in ipairs(t.logs) do
    if record.level == "warn" and record.policy == "bans" then last = record end
  end
  return last
end

describe("bans", function()
  it("blocks the addresses and nets of a file", function()
    local t = shipped.new()
    t.files["bans.txt"] = "# bad\n10.0.0.0/24\n2001:db8::/48   known cheater\n\n192.0.2.7\n"
    assert(t:load { policies = { { "bans", source = "bans.txt" } } })
    for _, ip in ipairs { "10.0.0.9", "192.0.2.7", "2001:db8:0:7::1" } do assert.equal("blocked", code(t, ip)) end
    for _, ip in ipairs { "10.0.1.9", "192.0.2.8", "2001:db9::1" } do assert.is_nil(code(t, ip)) end
  end)

  it("fetches a list with its token and in its time", function()
    local t, seen = shipped.new(), nil
    t.http[URL] = function(req)
      seen = req
      return { status = 200, body = "10.0.0.1\n" }
    end
    assert(t:load { policies = { { "bans", source = URL, token = "s3cret", timeout = 2 } } })
    assert.equal("GET", seen.method)
    assert.equal("Bearer s3cret", seen.headers.authorization)
    assert.equal("blocked", code(t, "10.0.0.1"))
  end)

  it("ends what is there of whoever gets onto the list, and reads it again in time", function()
    local t = shipped.new()
    t.files["bans.txt"] = "192.0.2.1\n"
    assert(t:load { policies = { { "bans", source = "bans.txt", every = 10 } } })
    local h, c = t:join { udp = "10.0.0.1:4000" }, t:join { udp = "10.0.0.2:4000" }
    assert.is_true(t:connect(c, h.session.oid, { mode = "relay" }).ok)
    t.files["bans.txt"] = "192.0.2.1\n10.0.0.2\n"
    t:advance(9)
    assert.is_nil(code(t, "10.0.0.2"))
    t:advance(2)
    assert.equal("blocked", code(t, "10.0.0.2"))
    local lines = table.concat(t.lines[c.session.id], "\n")
    assert.truthy(lines:find("error session:blocked", 1, true), lines)
    assert.falsy(table.concat(t.lines[h.session.id], "\n"):find("blocked", 1, true))
    t.files["bans.txt"] = "192.0.2.1\n"
    t:advance(11)
    assert.is_nil(code(t, "10.0.0.2"))
  end)

  it("refuses to load when the source is away, slow, no list or empty, and says what and where", function()
    for text, response in pairs {
      ["status 503"] = { status = 503, body = "down" },
      ["line 1: not a network: <!doctype"] = { status = 200, body = "<!doctype html><p>hello" },
      ["line 3: not a network: 10.0.0.0/33"] = { status = 200, body = "10.0.0.1\n\n10.0.0.0/33\n10.0.0.3\n" },
      ["line 2: 10.0.0.1/8 has bits behind its prefix"] = { status = 200, body = "10.0.0.1\n10.0.0.1/8\n" },
      ["it is empty"] = { status = 200, body = "# nobody\n\n" },
    } do
      local err = shipped.refusal({ "bans", source = URL }, function(t) t.http[URL] = response end)
      assert.truthy(err:find(text, 1, true), err)
      assert.truthy(err:find("source " .. URL, 1, true), err)
    end
    local err = shipped.refusal { "bans", source = "missing.txt" }
    assert.truthy(err:find("source missing.txt", 1, true), err)
  end)

  it("keeps the list of before when a reload cannot have one", function()
    local t = shipped.new()
    t.http[URL] = { status = 200, body = "10.0.0.1\n" }
    assert(t:load { policies = { { "bans", source = URL } } })
    for _, response in ipairs { { status = 500, body = "" }, { status = 200, body = "<html>" },
      { status = 200, body = "10.0.0.2\nnonsense\n" }, { status = 200, body = "" } } do
      t.http[URL] = response
      local ok, err = t:reload()
      assert.is_nil(ok)
      assert.truthy(err:find(URL, 1, true), err)
      assert.equal("blocked", code(t, "10.0.0.1"))
      assert.is_nil(code(t, "10.0.0.2"))
    end
  end)

  it("keeps the last good list when a refresh fails, and logs why", function()
    local t = shipped.new()
    t.http[URL] = { status = 200, body = "10.0.0.1\n" }
    assert(t:load { policies = { { "bans", source = URL } } })
    for text, response in pairs { ["status 404"] = { status = 404, body = "" },
      ["line 2: not a network: nonsense"] = { status = 200, body = "10.0.0.2\nnonsense\n" },
      ["it is empty"] = { status = 200, body = "\n" } } do
      t.http[URL] = response
      t:advance(60)
      local record = kept(t)
      assert.equal("ban list kept", record.msg)
      assert.truthy(record.fields.error:find(text, 1, true), record.fields.error)
      assert.equal("blocked", code(t, "10.0.0.1"))
      assert.is_nil(code(t, "10.0.0.2"))
    end
    t.http[URL] = { status = 200, body = "10.0.0.2\n" }
    t:advance(60)
    assert.is_nil(code(t, "10.0.0.1"))
    assert.equal("blocked", code(t, "10.0.0.2"))
  end)

  it("is never for a moment without a list: the one before holds while a reload waits", function()
    local t = shipped.new()
    t.files["bans.txt"] = "10.0.0.1\n"
    assert(t:load { policies = { { "bans", source = "bans.txt" } } })
    for _ = 1, 5 do
      assert(t:reload())
      assert.equal("blocked", code(t, "10.0.0.1"))
    end
  end)

  it("keeps the list of before when another policy of the chain does not load", function()
    local t = shipped.new()
    t.files["bans.txt"] = "10.0.0.1\n"
    assert(t:load { policies = { { "bans", source = "bans.txt" } } })
    t.files["bans.txt"] = "10.0.0.2\n"
    local ok = t:load { policies = { { "bans", source = "bans.txt" },
      { name = "bad", chunk = "return { load = function() error('no') end }" } } }
    assert.is_nil(ok)
    assert.equal("blocked", code(t, "10.0.0.1"))
    assert.is_nil(code(t, "10.0.0.2"))
  end)

  it("is forgotten when the chain goes on without it", function()
    local t = shipped.new()
    t.files["bans.txt"] = "10.0.0.1\n"
    assert(t:load { policies = { { "bans", source = "bans.txt" } } })
    assert(t:load { policies = { "dynamic" } })
    assert.is_nil(code(t, "10.0.0.1"))
  end)

  it("sees every change of a list that is read again", function()
    local t = shipped.new()
    t.files["bans.txt"] = "10.0.0.0/24\n2001:db8::/48\n"
    assert(t:load { policies = { { "bans", source = "bans.txt", every = 1 } } })
    local function blocked()
      local list = {}
      for i, ip in ipairs { "10.0.0.1", "10.0.0.200", "2001:db8::1", "2001:db8:1::1" } do
        list[i] = code(t, ip) and "x" or "-"
      end
      return table.concat(list)
    end
    assert.equal("xxx-", blocked())
    for _, step in ipairs { { "10.0.0.0/25\n2001:db8::/48\n", "x-x-" }, { "10.0.0.0/25\n2001:db8::/47\n", "x-xx" },
      { "10.0.0.128/25\n2001:db8::/47\n", "-xxx" }, { "10.0.0.128/25\n", "-x--" }, { "2001:db8::/47\n", "--xx" } } do
      t.files["bans.txt"] = step[1]
      t:advance(3)
      assert.equal(step[2], blocked())
    end
  end)

  it("takes an empty list for one when told to", function()
    local t = shipped.new()
    t.files["bans.txt"] = "# nobody yet\n"
    assert(t:load { policies = { { "bans", source = "bans.txt", allow_empty = true } } })
    assert.is_nil(code(t, "10.0.0.1"))
  end)

  it("refuses a period and a timeout out of range", function()
    for text, cfg in pairs {
      ["set source: a file or a URL"] = {},
      ["every = 0 (a number from 1 to 86400 is expected)"] = { source = "x", every = 0 },
      ["timeout = 10 (a number from 0.1 to 9 is expected)"] = { source = "x", timeout = 10 },
      ["allow_empty = 1 (a boolean is expected)"] = { source = "x", allow_empty = 1 },
    } do
      cfg[1] = "bans"
      local err = shipped.refusal(cfg)
      assert.truthy(err:find(text, 1, true), err)
    end
  end)
end)
