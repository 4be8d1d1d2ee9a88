-- SPDX-License-Identifier: MIT
-- The shipped policy `dynamic` by itself: which senders it admits, and which settings it takes.
local path = (os.getenv("MR_SOURCE_DIR") or ".") .. "/lua/policies/dynamic.lua"

local function load_with(cfg)
  local policy = dofile(path)
  policy.load(cfg)
  return policy
end

local function knock(reason, known)
  return { reason = reason, known = known, sender = { ip = "203.0.113.5" }, tags = {}, meta = {} }
end

describe("dynamic", function()
  it("admits an address that has a session here", function()
    local policy = load_with {}
    assert.same({}, policy.drop(knock("unknown_sender", true)))
  end)

  it("has no opinion on a stranger", function()
    local policy = load_with { from = "sessions" }
    assert.is_nil(policy.drop(knock("unknown_sender", false)))
  end)

  it("admits a stranger when anyone may come", function()
    local policy = load_with { from = "anyone" }
    assert.same({}, policy.drop(knock("unknown_sender", false)))
  end)

  it("leaves players of another game and free ports alone", function()
    local policy = load_with { from = "anyone" }
    for _, reason in ipairs { "not_paired", "unknown_target", "new_flow" } do
      assert.is_nil(policy.drop(knock(reason, true)))
    end
  end)

  it("refuses settings it does not know", function()
    assert.has_error(function() load_with { from = "all" } end,
      'from = all (one of sessions, anyone is expected)')
    assert.has_error(function() load_with { from = true } end,
      'from = true (one of sessions, anyone is expected)')
    assert.has_error(function() load_with { form = "anyone" } end,
      "unknown setting 'form' (known: from)")
  end)

  it("is under 60 lines, as shipped policies are", function()
    local lines = 0
    for _ in io.lines(path) do lines = lines + 1 end
    assert.is_true(lines < 60)
  end)
end)
