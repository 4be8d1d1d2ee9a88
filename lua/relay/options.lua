-- SPDX-License-Identifier: MIT
--
-- A policy's settings, checked: what the shipped policies call first in `load`, and yours may call as
-- well.
--
--     local options = require "relay.options"
--     local o = options(cfg, {
--       url = { "string", needed = "where to post to" },
--       tries = { "number", default = 3, min = 1, max = 5, whole = true },
--       mode = { "string", default = "soft", among = { "soft", "hard" } },
--       tags = { "table", default = { "user" }, each = "string" },
--     })
--
-- gives cfg with the defaults filled in. A key without a rule, a wrong type, a value out of range or a
-- missing one raises one line that says what is expected. The value is shown only where it is a
-- number, a boolean or one of a closed set: others may be secrets.

---@class relay.OptionRule
---@field [1] "string"|"number"|"boolean"|"table"|"table or string" # its type
---@field default? any
---@field needed? string # it must be set; what for
---@field min? number
---@field max? number
---@field whole? boolean
---@field among? string[] # a closed set
---@field each? string|string[] # of a table: the types of its values ("string or number"), or the closed set

---@param rule relay.OptionRule
---@return string
local function expected(rule)
  if rule.among then return "one of " .. table.concat(rule.among, ", ") end
  if rule.each then
    local each = rule.each
    return "a table of " .. (type(each) == "table" and table.concat(each, ", ") or each .. " values")
  end
  if rule[1] ~= "number" then return "a " .. rule[1] end
  return (rule.whole and "a whole number" or "a number") .. (rule.min and " from " .. rule.min or "")
    .. (rule.max and " to " .. rule.max or "")
end

-- Whether "table or string" has the value's type.
local function is_of(types, value)
  return (" " .. types .. " "):find(" " .. type(value) .. " ", 1, true) ~= nil
end

local function is_among(set, value)
  for _, good in ipairs(set) do
    if good == value then return true end
  end
  return false
end

---@param rule relay.OptionRule
---@param value any
---@return boolean
local function fits(rule, value)
  local kind = type(value)
  if not is_of(rule[1], value) then return false end
  if kind == "number" then
    return value >= (rule.min or -math.huge) and value <= (rule.max or math.huge)
      and not (rule.whole and value % 1 ~= 0)
  end
  if kind == "table" and rule.each then
    for _, item in pairs(value) do
      if not (type(rule.each) == "table" and is_among or is_of)(rule.each, item) then return false end
    end
  end
  return not rule.among or is_among(rule.among, value)
end

---@param cfg table
---@param rules table<string, relay.OptionRule>
local function refuse_unknown(cfg, rules)
  for key in pairs(cfg) do
    if not rules[key] then
      local known = {}
      for name in pairs(rules) do known[#known + 1] = name end
      table.sort(known)
      error(("unknown setting '%s' (known: %s)"):format(tostring(key), table.concat(known, ", ")), 0)
    end
  end
end

--- The settings with their defaults; raises what is wrong with them.
---@param cfg table
---@param rules table<string, relay.OptionRule>
---@return table
return function(cfg, rules)
  refuse_unknown(cfg, rules)
  local o = {}
  for key, rule in pairs(rules) do
    local value = cfg[key]
    if value == nil then
      if rule.needed then error(("set %s: %s"):format(key, rule.needed), 0) end
      value = rule.default
    elseif not fits(rule, value) then
      local kind = type(value)
      local shown = (kind == "number" or kind == "boolean" or kind == "string" and rule.among)
        and " = " .. tostring(value) or is_of(rule[1], value) and "" or " is a " .. kind
      error(("%s%s (%s is expected)"):format(key, shown, expected(rule)), 0)
    end
    o[key] = value
  end
  return o
end
