-- SPDX-License-Identifier: MIT
-- Whatever players, strangers, policies and operators do: a slot has as many holders as there are live
-- sessions and relays with its key. Random stories, played on relay.testing; TESTING_SEED repeats one.
local seed = require "seed"
local testing = require "relay.testing"

local POLICY = [[
local relay = require "relay"

local function think(meta)
  if meta.sleep then relay.sleep(tonumber(meta.sleep)) end
  if meta.raise then error("raised") end
  if meta.no then return false, "no" end
end

return {
  register = function(ev)
    if ev.meta.probe then return { slots = { [ev.meta.probe] = tonumber(ev.meta.max) } } end
    local no, why = think(ev.meta)
    if no == false then return no, why end
    return { slots = { ["s/" .. ev.meta.key] = 4, all = 1000 }, tags = { key = ev.meta.key },
      oid = ev.meta.oid, takeover = ev.meta.oid and true }
  end,

  connect = function(ev) return think(ev.meta) end,

  create = function(ev)
    local no, why = think(ev.meta)
    if no == false then return no, why end
    return { slots = { ["r/" .. ev.addr.net] = 3, relays = 1000 }, tags = { net = ev.addr.net }, idle = 15 }
  end,

  drop = function(ev)
    local word = ev:peek(2)
    if word == "sl" then relay.sleep(1) end
    if word == "no" then return false, "no" end
    return { slots = { ["d/" .. ev.port] = 2 }, tags = { port = ev.port } }
  end,

  left = function() relay.sleep(0.5) end,

  commands = {
    -- What is there, told by what is there and not by what was counted.
    holders = function()
      local n = { all = 0, relays = 0 }
      local function add(key) n[key] = (n[key] or 0) + 1 end
      for _, s in ipairs(relay.sessions()) do
        if s.tags.key then add("s/" .. s.tags.key) add("all") end
      end
      for _, r in ipairs(relay.relays()) do
        if r.tags.net then add("r/" .. r.tags.net) add("relays") end
        if r.tags.port then add("d/" .. r.tags.port) end
      end
      return n
    end,
    block = function(ip) return relay.block(ip, 3, "blocked") .. " ended" end,
    block_tags = function(key) return relay.block({ key = key }, 3, "blocked") .. " ended" end,
    kick = function(id) return relay.kick(id, "kicked") and "yes" or "no" end,
  },
}
]]

local function any(list) return list[math.random(#list)] end

local function think()
  local meta = {}
  if math.random() < 0.25 then meta.sleep = any { 0.1, 0.5, 1.5, 5 } end
  if math.random() < 0.1 then meta.no = 1 end
  if math.random() < 0.05 then meta.raise = 1 end
  return meta
end

local function address() return ("10.0.0.%d"):format(math.random(6)) end

local story = {}

function story.join(w)
  local meta = think()
  meta.key = any { "a", "b", "c" }
  if math.random() < 0.2 then meta.oid = any { "x", "y", "z" } end
  w.port = w.port + 1
  local options = { udp = address() .. ":" .. w.port, meta = meta }
  if math.random() < 0.1 then options.ip, options.udp = address(), false end
  table.insert(w.players, w.t:join(options))
end

function story.leave(w)
  if #w.players == 0 then return end
  table.remove(w.players, math.random(#w.players)):leave(any { "closed", "reset", "timeout" })
end

function story.connect(w)
  if #w.players < 2 then return end
  local client, host = any(w.players), any(w.players)
  for _ = 1, 3 do
    if not (host.ok and client.ok and host ~= client) then client, host = any(w.players), any(w.players) end
  end
  local oid = host.session and host.session.oid or "nobody"
  local j = w.t:connect(client, oid, { mode = any { "relay", "relay", "connect" }, meta = think() })
  table.insert(w.joins, j)
end

function story.drop(w)
  local j = #w.joins > 0 and any(w.joins)
  if not (j and j.relay) then return end
  local port = any { j.relay.port, j.host_relay.port }
  w.t:drop { sender = ("%s:%d"):format(address(), 7000 + math.random(8)), port = port,
    data = any { "slow", "no", "yes", { "yes", "more" } } }
end

function story.advance(w) w.t:advance(any { 0, 0.1, 0.1, 0.3, 0.3, 0.7, 1.6, 3, 16 }) end
function story.reload(w) assert(w.t:reload()) end

function story.close(w)
  local j = #w.joins > 0 and any(w.joins)
  if j and j.relay then w.t:close(j.relay) end
end

function story.block(w)
  if math.random() < 0.5 then return end
  if math.random() < 0.5 then
    w.t:call("p", "block", address())
  else
    w.t:call("p", "block_tags", any { "a", "b", "c" })
  end
end

function story.kick(w)
  local p = #w.players > 0 and any(w.players)
  if p and p.session then w.t:call("p", "kick", p.session.id) end
end

-- One more holder fits when the maximum is one more than there are, and not when it is as many.
local function holds(t, key, n)
  local function fits(max) return t:join { ip = "192.0.2.77", udp = false, meta = { probe = key, max = max } } end
  if n > 0 then
    local full = fits(n)
    if full.ok then full:leave("reset") end
    if full.ok or full.code == "no-ids" then return false, "fewer" end
    assert.equal("full", full.code)
  end
  local more = fits(n + 1)
  if more.code == "no-ids" then return true end -- it fitted
  if not more.ok then return false, "more" end
  more:leave("reset")
  return true
end

local seen = { all = 0, relays = 0 } -- holders in all checks: a story in which nothing lives shows nothing

local function check(w)
  local n = w.t:call("p", "holders")
  for key in pairs(seen) do seen[key] = seen[key] + n[key] end
  for _, key in ipairs { "s/a", "s/b", "s/c" } do n[key] = n[key] or 0 end
  for i = 1, 6 do n["r/10.0.0." .. i] = n["r/10.0.0." .. i] or 0 end
  for key, count in pairs(n) do
    local ok, how = holds(w.t, key, count)
    assert(ok, ("%s has %s holders than the %d that live"):format(key, tostring(how), count))
  end
end

describe("slots", function()
  it("have as many holders as live", function()
    seed.begin()
    local actions = { "join", "join", "join", "leave", "connect", "connect", "connect", "drop", "drop", "advance",
      "advance", "close", "kick", "reload", "block" }
    -- Where ports or ids run out, what was taken before them goes back.
    local worlds = { { udp_relay_ports = "50000-50039" }, { udp_relay_ports = "50000-50004" },
      { udp_relay_ports = "50000-50039", oid_length = 1, oid_charset = "abcdef" } }
    for i = 1, 9 do
      local t = testing.new { seed = math.random(1e6), settings = worlds[i % 3 + 1] }
      local w = { t = t, players = {}, joins = {}, port = 4000 }
      assert(w.t:load { policies = { { chunk = POLICY, name = "p" } } })
      for step = 1, 160 do
        story[any(actions)](w)
        if step % 20 == 0 then check(w) end
      end
      for _, p in ipairs(w.players) do p:leave("reset") end
      w.t:advance(100)
      for key, count in pairs(w.t:call("p", "holders")) do assert.equal(0, count, key) end
      check(w)
    end
    print(("# %d sessions and %d relays held slots"):format(seen.all, seen.relays))
    assert.is_true(seen.all > 50, "sessions: " .. seen.all)
    assert.is_true(seen.relays > 10, "relays: " .. seen.relays)
  end)
end)
