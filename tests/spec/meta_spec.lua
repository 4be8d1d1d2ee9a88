-- SPDX-License-Identifier: MIT
-- What editors are told of the module `relay` against what src/script/module.c and service/hooks.h have.
local root = os.getenv("MR_SOURCE_DIR") or "."

local function read(path)
  local file = assert(io.open(root .. "/" .. path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

local meta = read("lua/relay/meta.lua")

local function sorted(set)
  local list = {}
  for name in pairs(set) do list[#list + 1] = name end
  table.sort(list)
  return list
end

local function names(text, pattern)
  local set = {}
  for name in text:gmatch(pattern) do set[name] = true end
  return sorted(set)
end

-- The initializer of a C table.
local function table_of(text, start)
  local from = assert(text:find(start, 1, true), start)
  return text:sub(from, (assert(text:find("};", from, true))))
end

-- The names in the C tables of functions or methods of that name, of all parts of the module.
local function runtime(array)
  local set = {}
  local parts = assert(io.popen("ls '" .. root .. "'/src/script/module*.c"))
  for file in parts:lines() do
    local text = read(file:sub(#root + 2))
    for list in text:gmatch("luaL_Reg " .. array .. "%[%] = (%b{});") do
      for name in list:gmatch('{%s*"([%w_]+)",') do set[name] = true end
    end
  end
  parts:close()
  return sorted(set)
end

describe("the annotations of module relay", function()
  it("have the functions of the runtime", function()
    local functions = runtime("functions")
    functions[#functions + 1] = "await" -- the one that is Lua (module_time.c)
    table.sort(functions)
    assert.same(functions, names(meta, "function relay%.([%w_]+)%("))
  end)

  for _, part in ipairs { "log", "json", "crypto" } do
    it("have the functions of relay." .. part, function()
      assert.same(runtime(part .. "_functions"), names(meta, "function " .. part .. "%.([%w_]+)%("))
    end)
  end

  for _, object in ipairs { "nets", "store", "limiter", "metric", "udp" } do
    it("have the methods of " .. object, function()
      assert.same(runtime(object .. "_methods"), names(meta, "function " .. object .. ":([%w_]+)%("))
    end)
  end

  it("have the hooks of the service", function()
    local list = table_of(read("src/service/hooks.h"), "#define MR_HOOKS(X)"):match("^(.-)\n\n")
    local hooks = names(list, '"(%w+)"')
    local policy = meta:match("%-%-%-@class relay%.Policy\n(.-)\n\n")
    local annotated = {}
    for name in policy:gmatch("@field (%w+)%? fun") do
      if name ~= "load" then annotated[name] = true end
    end
    assert.same(hooks, sorted(annotated))
  end)

  it("have the keys of a spec", function()
    local keys = names(table_of(read("src/script/answer.c"), "spec_keys[] = {"), '{"([%w_]+)", read_')
    local spec = meta:match("%-%-%-@class relay%.Spec\n(.-)\n\n")
    local annotated = names(spec, "@field ([%w_]+)%?")
    table.sort(annotated)
    assert.same(keys, annotated)
  end)

  it("have the fields that events are made of", function()
    local list = read("src/script/event.c"):match("#define EVENT_KEYS%(X%)(.-)\n\n")
    local made = names(list, "X%(([%w_]+)%)")
    local annotated, class = {}, ""
    for line in meta:gmatch("[^\n]+") do
      class = line:match("@class relay%.(%w+)") or class
      local is_event = class:find("Event$") or class == "Session" or class == "Relay" or class == "Address"
      local field = is_event and line:match("@field ([%w_]+)")
      if field then annotated[field] = true end
    end
    annotated.peek = true -- a method
    assert.same(made, sorted(annotated))
  end)
end)
