-- SPDX-License-Identifier: MIT
-- The shipped policy `audit`: a record for each thing that happened, and none that was not asked for.
local shipped = require "shipped"

local NAMES = { name = "names", chunk = [[
return { register = function(ev) return { tags = { user = ev.meta.user, team = "red" } } end }]] }

-- A game from its first to its last moment; its records by name.
local function play(entry)
  local t = shipped.chain(NAMES, entry)
  local h = t:join { udp = "192.0.2.1:4000", meta = { user = "hanna" } }
  local c = t:join { udp = "[2001:db8:1:2::3]:4000", meta = { user = "carl" } }
  local j = t:connect(c, h.session.oid, { mode = "relay" })
  assert.is_true(j.ok)
  t:close(j.relay.id)
  c:leave("reset")
  local records = {}
  for _, record in ipairs(t.logs) do
    if record.policy == "audit" then
      records[record.msg] = records[record.msg] or {}
      table.insert(records[record.msg], record)
    end
  end
  return records, h, c, j
end

local function count(records)
  local n = {}
  for name, list in pairs(records) do n[name] = #list end
  return n
end

describe("audit", function()
  it("records who met whom, and what began and ended", function()
    local records, h, c, j = play { "audit" }
    assert.same({ connected = 1, created = 2, destroyed = 1, left = 1 }, count(records))
    local f = records.connected[1].fields
    assert.same({ h.session.oid, c.session.oid, "hanna", "carl", "192.0.2.1", "2001:db8:1:2::3", "relay" },
      { f.to, f.from, f.to_user, f.from_user, f.to_ip, f.from_ip, f.mode })
    assert.equal("info", records.connected[1].level)
    f = records.destroyed[1].fields
    assert.same({ j.relay.id, "api", "[2001:db8:1:2::3]:4000" }, { f.relay, f.reason, f.peer })
    assert.is_number(tonumber(f.bytes_in))
    f = records.left[1].fields
    assert.same({ c.session.oid, "carl", "reset" }, { f.player, f.player_user, f.reason })
  end)

  it("records those events only that are named", function()
    assert.same({ left = 1 }, count((play { "audit", events = { "left" } })))
    assert.same({}, count((play { "audit", events = {} })))
  end)

  it("shows addresses as nets or not at all", function()
    local f = play({ "audit", addresses = "net" }).connected[1].fields
    assert.same({ "192.0.2.1", "2001:db8:1:2::/64" }, { f.to_ip, f.from_ip })
    for _, list in pairs((play { "audit", addresses = "none" })) do
      for _, record in ipairs(list) do
        for key, value in pairs(record.fields) do
          assert.falsy(tostring(value):find("2001", 1, true) or tostring(value):find("192.0", 1, true), key)
        end
      end
    end
  end)

  it("tells the tags that are named, at the level that is named", function()
    local record = play({ "audit", tags = { "team" }, level = "debug" }).connected[1]
    assert.same({ "red", nil, "debug" }, { record.fields.to_team, record.fields.to_user, record.level })
  end)

  it("refuses events, tags and levels that are none", function()
    for text, cfg in pairs {
      ["events (a table of connected, created, destroyed, left is expected)"] = { events = { "load" } },
      ["tags: 'Team!' cannot name a field"] = { tags = { "Team!" } },
      ["level = loud (one of debug, info, warn is expected)"] = { level = "loud" },
      ["addresses = some (one of full, net, none is expected)"] = { addresses = "some" },
    } do
      cfg[1] = "audit"
      local err = shipped.refusal(cfg)
      assert.truthy(err:find(text, 1, true), err)
    end
  end)
end)
