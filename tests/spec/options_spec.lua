-- SPDX-License-Identifier: MIT
-- relay.options: what a policy's settings are held to, and the one line that says what is wrong.
local options = require "relay.options"

local function refused(text, cfg, rules)
  local ok, err = pcall(options, cfg, rules)
  assert.is_false(ok)
  assert.equal(text, err)
end

describe("relay.options", function()
  it("fills in defaults and keeps what was set", function()
    local rules = { a = { "number", default = 7 }, b = { "string" }, c = { "boolean", default = true } }
    assert.same({ a = 7, c = true }, options({}, rules))
    assert.same({ a = 1, b = "x", c = false }, options({ a = 1, b = "x", c = false }, rules))
  end)

  it("leaves the config's own table alone", function()
    local cfg = {}
    options(cfg, { a = { "number", default = 7 } })
    assert.same({}, cfg)
  end)

  it("names the known settings for an unknown one", function()
    refused("unknown setting 'c' (known: a, b)", { c = 1 }, { b = { "string" }, a = { "string" } })
    refused("unknown setting '1' (known: a)", { "x" }, { a = { "string" } })
  end)

  it("says what a setting that must be there is for", function()
    refused("set url: where to post to", {}, { url = { "string", needed = "where to post to" } })
  end)

  it("says which type is expected and never shows a text that may be a secret", function()
    refused("a is a string (a number is expected)", { a = "s3cret" }, { a = { "number" } })
    refused("a = 7 (a string is expected)", { a = 7 }, { a = { "string" } })
    refused("a = true (a table or string is expected)", { a = true }, { a = { "table or string" } })
    assert.same({ a = "x" }, options({ a = "x" }, { a = { "table or string" } }))
  end)

  it("holds numbers to their range, and to whole ones", function()
    local rule = { "number", min = 1, max = 5, whole = true }
    for _, good in ipairs { 1, 5, 3 } do assert.same({ n = good }, options({ n = good }, { n = rule })) end
    for bad, shown in pairs { [0] = "0", [6] = "6", [1.5] = "1.5", [math.huge] = "inf" } do
      refused("n = " .. shown .. " (a whole number from 1 to 5 is expected)", { n = bad }, { n = rule })
    end
    refused("n = nan (a number from 1 is expected)", { n = 0 / 0 }, { n = { "number", min = 1 } })
  end)

  it("holds words to a closed set", function()
    local rule = { "string", among = { "soft", "hard" } }
    assert.same({ m = "hard" }, options({ m = "hard" }, { m = rule }))
    refused("m = firm (one of soft, hard is expected)", { m = "firm" }, { m = rule })
    refused("m = 7 (one of soft, hard is expected)", { m = 7 }, { m = rule })
  end)

  it("holds what is in a table to its types or its set", function()
    assert.same({ t = { "a", x = 7 } }, options({ t = { "a", x = 7 } }, { t = { "table", each = "string or number" } }))
    refused("t (a table of string or number values is expected)", { t = { true } },
      { t = { "table", each = "string or number" } })
    refused("t (a table of a, b is expected)", { t = { "a", "c" } }, { t = { "table", each = { "a", "b" } } })
  end)
end)
