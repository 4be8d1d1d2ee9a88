-- SPDX-License-Identifier: MIT
-- What policies are given against what editors are told of it: every field of every event of a played game is
-- annotated with its type in lua/relay/meta.lua, every annotated one that is not optional is there, and every
-- annotated function is.
local shipped = require "shipped"

local meta = shipped.read("lua/relay/meta.lua")

-- A class's fields by name, those of what it extends among them: { type, is_optional }.
local function fields(class)
  local text, parent
  for head, body in meta:gmatch("%-%-%-@class relay%.([^\n]+)\n(.-)\n\n") do
    local name, from = head:match("^(%w+)"), head:match("^%w+: relay%.(%w+)")
    if name == class then text, parent = body, from end
  end
  assert(text, "no class relay." .. class)
  local set = parent and fields(parent) or {}
  for name, mark, kind in ("\n" .. text):gmatch("\n%-%-%-@field ([%w_]+)(%??) ([^\n#]+)") do
    set[name] = { kind = kind:match("^(.-)%s*$"), is_optional = mark == "?" }
  end
  return set
end

-- Says each field of the event and of what is in it, as "class.field=type" lines in the log.
local TELL = [[
local relay = require "relay"
local inner = { session = "Session", from = "Session", to = "Session", peer = "Session", addr = "Address",
  sender = "Address", relay = "Relay" }
local function tell(class, value)
  local list = {}
  for key, item in pairs(value) do
    list[#list + 1] = key .. "=" .. type(item)
    if type(item) == "table" and inner[key] then tell(inner[key], item) end
  end
  relay.log.info("fields", { class = class, list = table.concat(list, " ") })
end
local policy = {}
for hook, class in pairs { register = "RegisterEvent", connect = "ConnectEvent", create = "CreateEvent",
  drop = "DropEvent", connected = "ConnectedEvent", created = "CreatedEvent", destroyed = "DestroyedEvent",
  left = "LeftEvent" } do
  policy[hook] = function(ev) tell(class, ev) end
end
policy.lookup = function(_, _, ev) tell("LookupEvent", ev) end
return policy
]]

-- Every field seen in a game: class -> name -> set of types; and how often a class was.
local function play()
  local t = shipped.chain({ name = "tell", chunk = TELL }, { "dynamic", from = "anyone" })
  local h, c = t:join { udp = "10.0.0.1:4000" }, t:join { udp = "10.0.0.2:4000", meta = { a = "b" } }
  local j = t:connect(c, h.session.oid, { mode = "relay" })
  t:connect(c, h.session.oid, { mode = "connect" })
  t:drop { sender = "203.0.113.5:4000", port = j.host_relay.port, data = "hi" }
  t:lookup("10.0.0.9", 4)
  t:lookup("10.0.0.9")
  t:close(j.relay.id)
  h:leave("reset")
  t:advance(60)
  local seen, times = {}, {}
  for _, record in ipairs(t.logs) do
    if record.msg == "fields" then
      local class = record.fields.class
      seen[class], times[class] = seen[class] or {}, (times[class] or 0) + 1
      for name, kind in record.fields.list:gmatch("(%w[%w_]*)=(%w+)") do
        seen[class][name] = seen[class][name] or { n = 0 }
        seen[class][name][kind] = true
        seen[class][name].n = seen[class][name].n + 1
      end
    end
  end
  return seen, times
end

-- What Lua's type() says of an annotated type.
local function lua_type(kind)
  if kind:find("^table") or kind:find("^relay%.") then return "table" end
  if kind == "number" or kind == "integer" or kind:find("^%d") then return "number" end
  if kind == "boolean" or kind:find("^fun") then return kind == "boolean" and kind or "function" end
  return "string"
end

describe("the annotations", function()
  local seen, times = play()

  for _, class in ipairs { "RegisterEvent", "ConnectEvent", "CreateEvent", "DropEvent", "ConnectedEvent",
    "CreatedEvent", "DestroyedEvent", "LeftEvent", "LookupEvent", "Session", "Address", "Relay" } do
    it("have what a policy is given in a " .. class, function()
      assert.is_table(seen[class], "no " .. class .. " was seen")
      local annotated = fields(class)
      for name, kinds in pairs(seen[class]) do
        if name ~= "peek" then
          assert.is_table(annotated[name], class .. "." .. name .. " is not annotated")
          local kind = annotated[name].kind
          assert.is_true(kinds[lua_type(kind)], class .. "." .. name .. " is no " .. kind)
        end
      end
      for name, field in pairs(annotated) do
        if not field.is_optional then
          local n = seen[class][name] and seen[class][name].n or 0
          assert.equal(times[class], n, class .. "." .. name .. " is there in " .. n .. " of " .. times[class])
        end
      end
    end)
  end

  it("have no function that is not there", function()
    local list, objects = {}, { nets = "relay.cidr {}", store = "relay.store('x')",
      limiter = "relay.limiter('x', { rate = 1 })", metric = "relay.metric('x', 'gauge', 'x')",
      log = "relay.log", json = "relay.json", crypto = "relay.crypto" }
    for owner, name in meta:gmatch("\nfunction (%l+)[.:]([%w_]+)%(") do
      if owner ~= "udp" then -- there are no endpoints without sockets; meta_spec compares with what they have
        local object = owner == "relay" and "relay" or objects[owner]
        assert.is_string(object, "nothing is known of " .. owner)
        list[#list + 1] = ("assert(type((%s).%s) == 'function', '%s.%s')"):format(object, name, owner, name)
      end
    end
    assert.is_true(#list > 30)
    shipped.chain { name = "ask",
      chunk = "local relay = require 'relay'\n" .. table.concat(list, "\n") .. "\nreturn {}" }
  end)
end)
