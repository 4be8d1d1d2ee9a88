-- SPDX-License-Identifier: MIT
-- The seed of tests that draw random numbers, as in tests/unit/test.h: one number for everybody, so that a red
-- run concerns the change and not luck; TEST_SEED=<n> in the environment is another, TEST_SEED=random a fresh one.
local seed = {}

local DEFAULT = 1 -- any number; the same in test.h

local function of_this_run()
  local given = os.getenv "TEST_SEED" or ""
  if given == "" then return DEFAULT end
  if given ~= "random" then
    return tonumber(given) or error(("TEST_SEED=%s: a number or \"random\" is expected"):format(given), 0)
  end
  local file = assert(io.open("/dev/urandom", "rb"))
  local n = 0
  for _, byte in ipairs { file:read(6):byte(1, 6) } do n = n * 256 + byte end
  file:close()
  return n
end

local drawn

--- Begins the sequence of math.random anew, so that a test that is run alone does the same, and prints the seed.
---@return number seed
function seed.begin()
  drawn = drawn or of_this_run()
  print(("# TEST_SEED=%.17g"):format(drawn))
  math.randomseed(drawn)
  return drawn
end

return seed
