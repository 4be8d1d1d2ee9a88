-- SPDX-License-Identifier: MIT
-- What holds for every shipped policy: its size, its header comment, its settings.
local shipped = require "shipped"

local function source(name) return shipped.read("lua/policies/" .. name .. ".lua") end

-- The keys that a policy's load reads.
local function settings(name)
  local rules = source(name):match("options%(cfg, (%b{})%)"):sub(2, -2):gsub("%b{}", "RULE")
  local keys = {}
  for key in rules:gmatch("([%w_]+) = RULE") do keys[#keys + 1] = key end
  return keys
end

-- Settings without which an entry cannot be loaded.
local NEEDED = { bans = { source = "bans.txt" }, allowlist = { nets = { "10.0.0.0/8" } }, ticket = { key = "k" },
  region = { regions = {}, here = "eu" }, webhook = { url = "https://x/" }, canary = { percent = 5 } }

local function entry(name, key, value)
  local e = { name }
  for k, v in pairs(NEEDED[name] or {}) do e[k] = v end
  if key then e[key] = value end
  return e
end

describe("a shipped policy", function()
  for _, name in ipairs(shipped.names) do
    it(name .. " has fewer than 60 lines of code", function()
      local lines = 0
      for line in source(name):gmatch("[^\n]+") do
        if not line:find("^%s*%-%-") and line:find("%S") then lines = lines + 1 end
      end
      assert.is_true(lines < 60, lines .. " lines")
    end)

    it(name .. " says in its header how to use it and what each setting is", function()
      local head = source(name):match("^(.-)\n\n")
      assert.equal("-- SPDX-License-Identifier: MIT", head:match("^[^\n]*"))
      assert.truthy(head:find('"' .. name .. '"', 1, true), "no example")
      assert.truthy(head:find("cost", 1, true), "not what it costs")
      local keys = settings(name)
      assert.is_true(#keys > 0)
      for _, key in ipairs(keys) do
        assert.truthy(head:find("%f[%w_]" .. key .. "%f[^%w_]"), key .. " is not in the header")
      end
    end)

    it(name .. " refuses settings that it does not know and names those it knows", function()
      local err = shipped.refusal(entry(name, "percents", 1), function(t) t.files["bans.txt"] = "10.0.0.0/8\n" end)
      assert.truthy(err:find("unknown setting 'percents' (known: ", 1, true), err)
      for _, key in ipairs(settings(name)) do assert.truthy(err:find(key, 1, true), err) end
    end)

    it(name .. " refuses a setting of another type and shows no text that may be a secret", function()
      for _, key in ipairs(settings(name)) do
        local err = shipped.refusal(entry(name, key, { { {} } }), function(t) t.files["bans.txt"] = "10.0.0.0/8\n" end)
        assert.truthy(err:find(key, 1, true), err)
      end
    end)
  end

  it("is one of those whose names are listed here", function()
    local pipe = io.popen("ls '" .. shipped.root .. "/lua/policies'")
    local found = {}
    for file in pipe:lines() do found[#found + 1] = (file:gsub("%.lua$", "")) end
    pipe:close()
    assert.same(shipped.names, found)
  end)
end)
