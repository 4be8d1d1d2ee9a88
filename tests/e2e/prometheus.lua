-- SPDX-License-Identifier: MIT
-- A strict reader of the text format 0.0.4. It takes less than the scrapers do: whatever a scraper might
-- guess about is an error here, with the line. Start reading at prometheus.parse.
local prometheus = {}

local Page = {}
Page.__index = Page

local TYPES = { counter = true, gauge = true, histogram = true, summary = true, untyped = true }

local ESCAPES = { ["\\"] = "\\", ['"'] = '"', n = "\n" }

-- Reads {a="b",c="d"} and returns the labels and the rest of the line; an empty {} and a comma at the end
-- are refused.
local function parse_labels(text, fail)
  local labels, at = {}, 2
  while true do
    local name, from = text:match('^([%a_][%w_]*)="()', at)
    if not name then fail("a label is expected at column " .. at) end
    if labels[name] then fail("the label " .. name .. " is there twice") end
    local value = {}
    at = from
    while true do
      local c = text:sub(at, at)
      if c == "" then fail("a label value has no end") end
      if c == '"' then break end
      if c == "\\" then
        at = at + 1
        c = ESCAPES[text:sub(at, at)] or fail("an unknown escape in a label value")
      end
      value[#value + 1] = c
      at = at + 1
    end
    labels[name] = table.concat(value)
    local separator = text:sub(at + 1, at + 1)
    at = at + 2
    if separator == "}" then return labels, text:sub(at) end
    if separator ~= "," then fail("a comma or } is expected at column " .. at) end
  end
end

local function parse_value(text, fail)
  if text == "+Inf" then return math.huge end
  if text == "-Inf" then return -math.huge end
  if text == "NaN" then return 0 / 0 end
  if not text:find("^[-+]?%d+%.?%d*[eE]?[-+]?%d*$") then fail("not a number: " .. text) end
  return tonumber(text) or fail("not a number: " .. text)
end

--- A series' key: the name and its labels in the order of their names.
local function key_of(name, labels)
  local parts = {}
  for label, value in pairs(labels) do parts[#parts + 1] = label .. "=" .. string.format("%q", value) end
  table.sort(parts)
  return name .. "{" .. table.concat(parts, ",") .. "}"
end

-- The name of the family that a sample belongs to: histograms and summaries have suffixed samples.
local function family_of(page, name)
  if page.families[name] then return name end
  local base, suffix = name:match("^(.-)_(%l+)$")
  if suffix == "bucket" or suffix == "sum" or suffix == "count" then
    local family = page.families[base]
    if family and (family.type == "histogram" or family.type == "summary") then return base end
  end
  return nil
end

local function without_le(labels)
  local rest = {}
  for label, value in pairs(labels) do if label ~= "le" then rest[label] = value end end
  return rest
end

local function check_histogram(name, family)
  local groups = {}
  for _, sample in ipairs(family.samples) do
    local key = key_of(name, without_le(sample.labels))
    local group = groups[key] or { buckets = {} }
    groups[key] = group
    if sample.name == name .. "_bucket" then
      local le = sample.labels.le
      if not le then error("line " .. sample.line .. ": a bucket without le", 0) end
      group.buckets[#group.buckets + 1] = { le = parse_value(le, error), value = sample.value, line = sample.line }
    elseif sample.name == name .. "_sum" then
      group.sum = sample.value
    elseif sample.name == name .. "_count" then
      group.count = sample.value
    else
      error("line " .. sample.line .. ": a bare sample of a histogram", 0)
    end
  end
  for key, group in pairs(groups) do
    local last = { le = -math.huge, value = 0 }
    for _, bucket in ipairs(group.buckets) do
      if bucket.le <= last.le then error("line " .. bucket.line .. ": buckets are not in order", 0) end
      if bucket.value < last.value then error("line " .. bucket.line .. ": buckets are not cumulative", 0) end
      last = bucket
    end
    if last.le ~= math.huge then error(key .. ": the last bucket is not +Inf", 0) end
    if not group.sum then error(key .. ": no _sum", 0) end
    if group.count ~= last.value then error(key .. ": _count differs from the +Inf bucket", 0) end
    if group.count == 0 and group.sum ~= 0 then error(key .. ": a _sum of nothing", 0) end
  end
end

--- Reads a page and returns it; raises with the line for anything that is not exactly the format.
function prometheus.parse(text)
  local page = setmetatable({ families = {}, series = {}, samples = {}, bytes = #text }, Page)
  if text:sub(-1) ~= "\n" then error("the last line has no end", 0) end
  local number, current = 0, nil
  for line in text:gmatch("([^\n]*)\n") do
    number = number + 1
    local function fail(why) error("line " .. number .. ": " .. why .. ": " .. line, 0) end
    local kind, name, rest = line:match("^# (%u+) ([%a_:][%w_:]*) (.+)$")
    if line:find("[\r%z]") then fail("a control character") end
    if kind == "HELP" then
      if page.families[name] then fail("a second HELP or a TYPE before HELP") end
      page.families[name] = { help = rest, samples = {} }
      current = name
    elseif kind == "TYPE" then
      local family = page.families[name] or fail("TYPE without HELP")
      if family.type then fail("a second TYPE") end
      if current ~= name or #family.samples > 0 then fail("TYPE away from its HELP") end
      if not TYPES[rest] then fail("an unknown type") end
      family.type = rest
    elseif line:find("^#") or line == "" then
      fail("neither HELP, TYPE nor a sample")
    else
      local sample, tail = line:match("^([%a_:][%w_:]*)(.*)$")
      if not sample then fail("a name is expected") end
      local labels = {}
      if tail:sub(1, 1) == "{" then labels, tail = parse_labels(tail, fail) end
      local value = tail:match("^ (%S+)$") or fail("one space and a value are expected")
      local family = family_of(page, sample) or fail("a sample without HELP and TYPE")
      if family ~= current then fail("a sample away from its family") end
      if not page.families[family].type then fail("a sample before its TYPE") end
      local key = key_of(sample, labels)
      if page.series[key] then fail("this series is there twice") end
      local entry = { name = sample, labels = labels, value = parse_value(value, fail), line = number }
      if page.families[family].type == "counter" and (entry.value < 0 or entry.value ~= entry.value) then
        fail("a counter below zero")
      end
      page.series[key] = entry
      page.samples[#page.samples + 1] = entry
      table.insert(page.families[family].samples, entry)
    end
  end
  for name, family in pairs(page.families) do
    if not family.type then error(name .. ": HELP without TYPE", 0) end
    if family.type == "histogram" then check_histogram(name, family) end
  end
  return page
end

--- The value of one series, nil when it is not there.
function Page:value(name, labels)
  local entry = self.series[key_of(name, labels or {})]
  return entry and entry.value
end

--- The sum of all series of a name whose labels include the given ones; 0 when there is none.
function Page:sum(name, labels)
  local sum = 0
  for _, sample in ipairs(self.samples) do
    local fits = sample.name == name
    for label, value in pairs(labels or {}) do fits = fits and sample.labels[label] == value end
    if fits then sum = sum + sample.value end
  end
  return sum
end

--- The set of values that a label has in a family.
function Page:label_values(name, label)
  local values = {}
  for _, sample in ipairs(self.families[name] and self.families[name].samples or {}) do
    if sample.labels[label] then values[sample.labels[label]] = true end
  end
  return values
end

return prometheus
