-- SPDX-License-Identifier: MIT
-- Every call of the kernel and of libuv may fail, the first one and any later one: a start says in one line why it
-- ends, or it serves; and what fails while it serves costs what it was for. The game and what must hold after it are
-- in faulty.lua, which calls there are and with what they fail too.
--
-- Here each call fails at two places. With MR_FAULTS = N (scripts/faults) it is one run for each of N places of each
-- call, spread over all of its calls from the program's first to the game's last.
--
-- What is held here, and by which test:
--   a start that meets a fault                            a_start_that_meets_a_fault_serves_or_says_why_not
--   a fault while it serves                               a_call_that_fails_while_it_serves_costs_what_it_was_for
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local faulty = require "faulty"
local loop = require "loop"

local PLACES = tonumber(os.getenv "MR_FAULTS")

local names = {}
for name in pairs(faulty.CALLS) do names[#names + 1] = name end
table.sort(names)

local function fault(name, n, turn)
  local errors = faulty.CALLS[name]
  return ("%s %d %s"):format(name, n, errors[turn % #errors + 1])
end

-- The i-th of a sequence that spreads over 0 to 1 at any length.
local function spread(i) return i * 0.6180339887 % 1 end

describe("faults", function()
  local plain -- a run without any

  setup(function() plain = faulty.run {} end)
  after_each(loop.close_owned)

  if not PLACES then
    it("a_start_that_meets_a_fault_serves_or_says_why_not", function()
      local came, refused = 0, 0
      for i, name in ipairs(names) do
        local calls = plain.at_start[name] or 0
        if calls > 0 then
          local result = faulty.run({ fault(name, 1 + math.floor(spread(i) * calls), i) }, { is_brief = true })
          came = came + result.hit
          refused = refused + (result.outcome == "refused" and 1 or 0)
        end
      end
      assert.is_true(came >= 10, came .. " faults came about")
      assert.is_true(refused >= 5, refused .. " starts were refused")
    end)

    it("a_call_that_fails_while_it_serves_costs_what_it_was_for", function()
      local TOGETHER = 6
      local faults, came, wanted = {}, 0, 0
      local function run()
        local result = faulty.run(faults, { descriptors = plain.descriptors })
        assert.equal("served", result.outcome)
        came, wanted, faults = came + result.hit, wanted + #faults, {}
      end
      for i, name in ipairs(names) do
        local first = plain.at_start[name] or 0
        local calls = (plain.counts[name] or 0) - first
        if calls > 0 then faults[#faults + 1] = fault(name, first + 1 + math.floor(spread(i) * calls * 0.9), i) end
        if #faults == TOGETHER then run() end
      end
      faults[#faults + 1] = "uv_try_write 4 EAGAIN" -- or nobody calls the next
      faults[#faults + 1] = "uv_write 1 ENOMEM"
      run()
      assert.is_true(came >= wanted / 2, came .. " of " .. wanted .. " faults came about")
    end)
    return
  end

  local figures = { runs = 0, faults = 0, refused = 0, served = 0, without = {} }

  local function try(faults)
    local result = faulty.run(faults, { descriptors = plain.descriptors })
    figures.runs = figures.runs + 1
    figures.faults = figures.faults + result.hit
    figures[result.outcome] = figures[result.outcome] + 1
  end

  for _, name in ipairs(names) do
    it("whatever_call_of_" .. name .. "_fails_it_serves_or_says_why_not", function()
      local calls = plain.counts[name] or 0
      local failures = {}
      if calls == 0 and name ~= "uv_write" then figures.without[#figures.without + 1] = name end
      for k = 1, math.min(calls, PLACES) do
        local n = calls <= PLACES and k or 1 + math.floor((k - 1) * (calls - 1) / math.max(PLACES - 1, 1) + 0.5)
        local ok, err = pcall(try, { fault(name, n, k) })
        if not ok then failures[#failures + 1] = err end
      end
      if name == "uv_write" then
        for n = 1, 10 do try { ("uv_try_write %d EAGAIN"):format(n), "uv_write 1 ENOMEM" } end
      end
      assert.equal("", table.concat(failures, "\n\n"))
    end)
  end

  teardown(function()
    local f = figures
    print(("faults: %d came about in %d runs; %d starts were refused with one line, %d runs served; nobody calls %s")
      :format(f.faults, f.runs, f.refused, f.served, table.concat(f.without, ", ")))
  end)
end)
