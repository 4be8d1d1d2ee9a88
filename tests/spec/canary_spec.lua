-- SPDX-License-Identifier: MIT
-- The shipped policy `canary`: how many are chosen, that they stay chosen, and what comes of it.
local shipped = require "shipped"

local USERS = { name = "users",
  chunk = [[return { register = function(ev) return { tags = { user = ev.meta.user } } end }]] }

local function chain(extra)
  local entry = { "canary", percent = 20 }
  for key, value in pairs(extra or {}) do entry[key] = value end
  return shipped.chain(USERS, entry)
end

-- Which of n addresses (or users at one address) are chosen.
local function chosen(t, n, by_user)
  local set, count = {}, 0
  for i = 1, n do
    local h = t:join { ip = by_user and "10.9.9.9" or ("10.0.%d.%d"):format(i / 250, i % 250 + 1), udp = false,
      meta = by_user and { user = "u" .. i } or nil }
    if h.session.tags.canary == "yes" then
      set[i] = true
      count = count + 1
    end
    h:leave("closed")
  end
  return set, count
end

describe("canary", function()
  it("chooses about so many of a hundred, and all or none at the ends", function()
    local _, count = chosen(chain(), 1000)
    assert.is_true(count > 150 and count < 250, count .. " of 1000")
    _, count = chosen(chain { percent = 0 }, 100)
    assert.equal(0, count)
    _, count = chosen(chain { percent = 100 }, 100)
    assert.equal(100, count)
    _, count = chosen(chain { percent = 0.5 }, 2000)
    assert.is_true(count > 0 and count < 30, count .. " of 2000")
  end)

  it("chooses the same ones again, after a reload and in another relay", function()
    local t = chain()
    local first = chosen(t, 300)
    assert(t:reload())
    assert.same(first, chosen(t, 300))
    assert.same(first, chosen(chain(), 300))
  end)

  it("only adds some when the percentage is raised", function()
    local few, many = chosen(chain { percent = 10 }, 300), chosen(chain { percent = 30 }, 300)
    for i in pairs(few) do assert.is_true(many[i]) end
  end)

  it("chooses others with another salt", function()
    assert.are_not.same(chosen(chain(), 300), chosen(chain { salt = "other" }, 300))
  end)

  it("goes by the user where there is one, else by the net", function()
    local _, count = chosen(chain { by = "user" }, 500, true)
    assert.is_true(count > 50 and count < 150, count .. " of 500")
    -- One address is chosen or not.
    _, count = chosen(chain(), 100, true)
    assert.is_true(count == 0 or count == 100)
    assert.same(chosen(chain { by = "user" }, 100), chosen(chain(), 100))
  end)

  it("takes a /64 for one key, and addresses by themselves when told to", function()
    local function tags(t)
      local n = 0
      for i = 1, 100 do
        if t:join({ ip = ("2001:db8:1:2::%x"):format(i), udp = false }).session.tags.canary then n = n + 1 end
      end
      return n
    end
    local n = tags(chain())
    assert.is_true(n == 0 or n == 100)
    n = tags(chain { by = "ip", percent = 50 })
    assert.is_true(n > 20 and n < 80, n .. " of 100")
  end)

  it("gives the chosen other tags, another way and other limits", function()
    local t = shipped.chain({ "canary", percent = 100, tags = { ring = "1" }, via = "relay", bps = 65536, idle = 120 },
      { name = "look", chunk = [[return { create = function(ev) assert(ev.session.tags.ring == "1") end }]] })
    local h, c = t:join { udp = "10.0.0.1:4000" }, t:join { udp = "10.0.0.2:4000" }
    assert.same({ ring = "1" }, h.session.tags)
    assert.equal("relay", t:connect(c, h.session.oid, { mode = "connect" }).via)
    t = chain { percent = 0, via = "relay" }
    h, c = t:join { udp = "10.0.0.1:4000" }, t:join { udp = "10.0.0.2:4000" }
    assert.equal("direct", t:connect(c, h.session.oid, { mode = "connect" }).via)
  end)

  it("keeps the relays of the chosen for their own idle time", function()
    -- Whether a relay outlives a minute (the setting is 30 s).
    local function lives(percent)
      local t = chain { percent = percent, idle = 120 }
      local h, c = t:join { udp = "10.0.0.1:4000" }, t:join { udp = "10.0.0.2:4000" }
      local j = t:connect(c, h.session.oid, { mode = "relay" })
      assert.is_true(j.ok)
      t:advance(60)
      return t:close(j.relay.id) == true
    end
    assert.is_true(lives(100))
    assert.is_false(lives(0))
  end)

  it("refuses everybody else when told to", function()
    local t = chain { percent = 0, others = "not-yet" }
    local h = t:join { ip = "10.0.0.1", udp = false }
    assert.same({ "rejected", "not-yet" }, { h.code, h.reason })
    assert.is_true(chain({ percent = 100, others = "not-yet" }):join({ ip = "10.0.0.1", udp = false }).ok)
  end)

  it("refuses settings that cannot be", function()
    for text, cfg in pairs {
      ["set percent: how many of a hundred players"] = {},
      ["percent = 101 (a number from 0 to 100 is expected)"] = { percent = 101 },
      ["via = tunnel (one of relay, direct is expected)"] = { percent = 1, via = "tunnel" },
      ["bps = 0 (a number from 1 is expected)"] = { percent = 1, bps = 0 },
      ["tags (a table of string values is expected)"] = { percent = 1, tags = { canary = true } },
    } do
      cfg[1] = "canary"
      local err = shipped.refusal(cfg)
      assert.truthy(err:find(text, 1, true), err)
    end
  end)
end)
