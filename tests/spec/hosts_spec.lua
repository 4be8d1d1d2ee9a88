-- SPDX-License-Identifier: MIT
-- The shipped policy hosts: a table and a file of names, and what is remembered of the resolver's answers.
local shipped = require "shipped"

local asked -- of the resolver, by host and family

-- A relay whose resolver knows db.other, and counts.
local function chain(cfg, files)
  asked = {}
  local t = shipped.new()
  for name, text in pairs(files or {}) do t.files[name] = text end
  t.hosts = function(host, family)
    local key = host .. "/" .. (family or 0)
    asked[key] = (asked[key] or 0) + 1
    if host == "slow.other" then return { "10.9.9.9", delay = 6 } end
    if host == "db.other" or host:find("^n%d+%.other$") then return { "10.9.9.9", "2001:db8::9" } end
    return nil, host .. " is unknown"
  end
  cfg[1] = "hosts"
  assert(t:load { policies = { cfg } })
  return t
end

local function outcome(t, host, family)
  local l = t:lookup(host, family)
  t:advance(2)
  return l.ok and l.address or l.code .. ": " .. l.err
end

describe("hosts", function()
  it("gives the address of a name in its table, whatever the case and a dot at the end", function()
    local t = chain { hosts = { ["db.fleet"] = "10.0.0.5", ["Web.Fleet."] = "2001:db8::5" } }
    for _, name in ipairs { "db.fleet", "DB.FLEET", "db.fleet." } do
      assert.equal("10.0.0.5", outcome(t, name, 4))
    end
    assert.equal("2001:db8::5", outcome(t, "web.fleet", 6))
    assert.equal("2001:db8::5", outcome(t, "web.fleet"))
    assert.same({}, asked)
  end)

  it("gives several addresses of a name in turn, those of the family", function()
    local t = chain { hosts = { game = { "10.0.0.1", "2001:db8::1", "10.0.0.2", "10.0.0.3" } } }
    local seen = {}
    for i = 1, 6 do seen[i] = outcome(t, "game", 4) end
    assert.same({ "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.1", "10.0.0.2", "10.0.0.3" }, seen)
    assert.equal("2001:db8::1", outcome(t, "game", 6))
    assert.equal("2001:db8::1", outcome(t, "game", 6))
    assert.equal("10.0.0.1", outcome(t, "game"))
    assert.equal("2001:db8::1", outcome(t, "game"))
  end)

  it("fails for a name that has no address of the family, and does not ask elsewhere", function()
    local t = chain { hosts = { ["db.other"] = "10.0.0.5" } }
    assert.equal("not-found: db.other has no IPv6 address", outcome(t, "db.other", 6))
    assert.same({}, asked)
  end)

  it("reads a file as /etc/hosts is written", function()
    local t = chain({ file = "hosts.txt", hosts = { db = "10.0.0.1" } },
      { ["hosts.txt"] = "# fleet\n10.0.0.2 db game # two\n\n  2001:db8::2\tdb\r\n#10.0.0.3 gone\n10.0.0.4\n" })
    assert.equal("10.0.0.1", outcome(t, "db", 4))
    assert.equal("10.0.0.2", outcome(t, "db", 4))
    assert.equal("10.0.0.2", outcome(t, "game", 4))
    assert.equal("2001:db8::2", outcome(t, "db", 6))
    assert.equal("not-found: gone is unknown", outcome(t, "gone", 4))
  end)

  it("passes addresses on as they are", function()
    local t = chain { others = false, hosts = { ["10.1.1.1"] = "10.0.0.5" } }
    assert.equal("10.1.1.1", outcome(t, "10.1.1.1", 4))
    assert.equal("::1", outcome(t, "::1", 6))
    assert.equal("not-found: ::1 is unknown", outcome(t, "::1", 4)) -- says the resolver of this test
  end)

  it("remembers what the resolver said for its time, by family", function()
    local t = chain { ttl = 60 }
    for _ = 1, 5 do assert.equal("10.9.9.9", outcome(t, "db.other", 4)) end
    assert.equal("2001:db8::9", outcome(t, "db.other", 6))
    assert.same({ ["db.other/4"] = 1, ["db.other/6"] = 1 }, asked)
    t:advance(60)
    assert.equal("10.9.9.9", outcome(t, "db.other", 4))
    assert.equal(2, asked["db.other/4"])
  end)

  it("remembers that a name does not exist for a shorter time", function()
    local t = chain { negative_ttl = 5 }
    assert.equal("not-found: x.other is unknown", outcome(t, "x.other", 4))
    assert.equal("not-found: x.other is unknown", outcome(t, "x.other", 4))
    assert.same({ ["x.other/4"] = 1 }, asked)
    t:advance(5)
    assert.equal("not-found: x.other is unknown", outcome(t, "x.other", 4))
    assert.same({ ["x.other/4"] = 2 }, asked)
  end)

  it("does not remember a resolver that did not answer", function()
    local t = chain {}
    for n = 1, 2 do
      local l = t:lookup("slow.other", 4)
      t:advance(3) -- a hook waits for two seconds
      assert.equal("policy-error", l.code)
      assert.equal(n, asked["slow.other/4"])
    end
  end)

  it("remembers no more names than it may, and finds the others all the same", function()
    local t = chain { max = 3 }
    for n = 1, 6 do assert.equal("10.9.9.9", outcome(t, "n" .. n .. ".other", 4)) end
    for n = 1, 6 do assert.equal("10.9.9.9", outcome(t, "n" .. n .. ".other", 4)) end
    local calls = 0
    for _, n in pairs(asked) do calls = calls + n end
    assert.equal(9, calls)
  end)

  it("answers no other name when others are not to be asked about", function()
    local t = chain { others = false, hosts = { db = "10.0.0.5" } }
    assert.equal("10.0.0.5", outcome(t, "db", 4))
    assert.equal("not-found: db.other is not among the hosts", outcome(t, "db.other", 4))
    assert.same({}, asked)
  end)

  it("takes the longest host that can be asked about", function()
    local t = chain { hosts = { db = "10.0.0.5" } }
    local long = ("x"):rep(255)
    assert.truthy(outcome(t, long, 4):find("^not%-found: x+ is unknown"))
    assert.truthy(outcome(t, long, 4):find("^not%-found: x+"))
    assert.equal(1, asked[long .. "/4"])
  end)

  it("keeps what it remembers over a reload and reads its file anew", function()
    local t = chain({ file = "hosts.txt" }, { ["hosts.txt"] = "10.0.0.2 db\n" })
    assert.equal("10.0.0.2", outcome(t, "db", 4))
    assert.equal("10.9.9.9", outcome(t, "db.other", 4))
    t.files["hosts.txt"] = "10.0.0.3 db\n"
    assert(t:reload())
    assert.equal("10.0.0.3", outcome(t, "db", 4))
    assert.equal("10.9.9.9", outcome(t, "db.other", 4))
    assert.equal(1, asked["db.other/4"])
  end)

  it("refuses what is no address, and a file that is not there", function()
    for text, cfg in pairs {
      ["hosts.db: '10.0.0.500' is no address"] = { hosts = { db = "10.0.0.500" } },
      ["hosts.db: 'true' is no address"] = { hosts = { db = { "10.0.0.5", true } } },
      ["hosts.db: 'db.other' is no address"] = { hosts = { db = "db.other" } },
      ["hosts (a table of string or table values is expected)"] = { hosts = { db = 5 } },
      ["file hosts.txt line 2: 'db' is no address"] = { file = "hosts.txt" },
      ["file none.txt: "] = { file = "none.txt" },
      ["ttl = 0"] = { ttl = 0 },
      ["max = 1.5"] = { max = 1.5 },
    } do
      cfg[1] = "hosts"
      local err = shipped.refusal(cfg, function(t) t.files["hosts.txt"] = "10.0.0.2 a\ndb 10.0.0.3\n" end)
      assert.truthy(err:find(text, 1, true), err)
    end
  end)
end)
