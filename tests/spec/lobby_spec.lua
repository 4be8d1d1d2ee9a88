-- SPDX-License-Identifier: MIT
-- The shipped policy `lobby`: codes that can be typed, kept over a reconnect, and rooms that are found.
local shipped = require "shipped"

local NAMES = { name = "names",
  chunk = [[return { register = function(ev) return { tags = { user = ev.meta.user, game = ev.meta.game } } end }]] }

local function chain(extra)
  local entry = { "lobby" }
  for key, value in pairs(extra or {}) do entry[key] = value end
  return shipped.chain(NAMES, entry)
end

local port = 4000
local function join(t, meta)
  port = port + 1
  return t:join { udp = "10.0.0.1:" .. port, meta = meta }
end

describe("lobby", function()
  it("gives codes of four letters that are not mistaken for others", function()
    local t, seen = chain(), {}
    for _ = 1, 200 do
      local oid = t:join({ ip = "10.0.0.1", udp = false }).session.oid
      assert.truthy(oid:find("^[A-HJKMNP-TV-Z][A-HJKMNP-TV-Z][A-HJKMNP-TV-Z][A-HJKMNP-TV-Z]$"), oid)
      assert.is_nil(seen[oid])
      seen[oid] = true
    end
    assert.equal(7, #join(chain { length = 7 }).session.oid)
  end)

  it("finds a room by its code in any case", function()
    local t = chain()
    local h, c = join(t), join(t)
    for _, oid in ipairs { h.session.oid, h.session.oid:lower() } do
      assert.is_true(t:connect(c, oid, { mode = "relay" }).ok)
    end
    assert.equal("unknown-oid", t:connect(c, "zzzzz", { mode = "relay" }).code)
  end)

  it("keeps a user's code over a reconnect, a takeover and a reload, for its time", function()
    local t = chain { keep = 100 }
    local first = join(t, { user = "alice" })
    local oid = first.session.oid
    first:leave("reset")
    local second = join(t, { user = "alice" })
    assert.equal(oid, second.session.oid)
    assert(t:reload())
    -- The new session has it, also when the old one is still there.
    local third = join(t, { user = "alice" })
    assert.equal(oid, third.session.oid)
    local j = t:connect(join(t), oid, { mode = "relay" })
    assert.is_true(j.ok)
    assert.are_not.equal(oid, join(t, { user = "bob" }).session.oid)
    third:leave("closed")
    t:advance(101)
    assert.are_not.equal(oid, join(t, { user = "alice" }).session.oid)
  end)

  it("finds an open room of somebody else", function()
    local t = chain()
    local c = join(t, { open = "yes" })
    local j = t:connect(c, "lobby:any", { mode = "relay" })
    assert.same({ "rejected", "no-open-room" }, { j.code, j.reason })
    join(t) -- not open
    join(t, { open = "no" })
    assert.equal("no-open-room", t:connect(c, "lobby:any", { mode = "relay" }).reason)
    local h = join(t, { open = "yes" })
    assert.is_true(t:connect(c, "lobby:any", { mode = "relay" }).ok)
    assert.truthy(table.concat(t.lines[h.session.id], "\n"):find("connect%-relay %d+"))
  end)

  it("finds a room among thousands within its budget", function()
    local t = shipped.new({ max_connections = 8192, caps_exempt = "10.0.0.0/8" })
    assert(t:load { policies = { NAMES, { "lobby", length = 8 } } })
    local first = join(t, { open = "yes" })
    for _ = 1, 4000 do t:join { ip = "10.0.0.1", udp = false, meta = { open = "yes" } } end
    assert.is_true(t:connect(join(t), "lobby:any", { mode = "relay" }).ok)
    assert.truthy(table.concat(t.lines[first.session.id], "\n"):find("connect-relay", 1, true))
  end)

  it("finds a room of the same game only, or of what else must be the same", function()
    local t = chain()
    local chess = join(t, { open = "yes", game = "chess" })
    local c = join(t, { game = "go" })
    assert.equal("no-open-room", t:connect(c, "lobby:any", { mode = "relay" }).reason)
    assert.is_true(t:connect(join(t, { game = "chess" }), "lobby:any", { mode = "relay" }).ok)
    assert.truthy(#t.lines[chess.session.id] > 0)
    t = chain { same = {} }
    join(t, { open = "yes", game = "chess" })
    assert.is_true(t:connect(join(t, { game = "go" }), "lobby:any", { mode = "relay" }).ok)
  end)

  it("finds rooms by another word", function()
    local t = chain { any = "quick" }
    join(t, { open = "yes" })
    local c = join(t)
    assert.is_true(t:connect(c, "quick", { mode = "relay" }).ok)
    assert.equal("unknown-oid", t:connect(c, "lobby:any", { mode = "relay" }).code)
  end)

  it("refuses settings that cannot be", function()
    for text, cfg in pairs {
      ["length = 2 (a whole number from 3 to 12 is expected)"] = { length = 2 },
      ["keep = 0 (a number from 1 to 86400 is expected)"] = { keep = 0 },
      ["any = true (a string is expected)"] = { any = true },
      ["same (a table of string values is expected)"] = { same = { 7 } },
    } do
      cfg[1] = "lobby"
      local err = shipped.refusal(cfg)
      assert.truthy(err:find(text, 1, true), err)
    end
  end)
end)
