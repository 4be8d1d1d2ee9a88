-- SPDX-License-Identifier: MIT
-- A resolver for a daemon under test: what its names are, which of them hang, and how often each was asked
-- for. It takes the place of getaddrinfo in that process (resolver.c), so no name leaves the machine.
--
--   local names = resolver.new { ["a.fleet"] = { "::1", "127.0.0.1" }, ["h.fleet"] = "hang" }
--   daemon.with(names:options { set = ... }, function(server) ... names:calls("a.fleet") ... end)
--   names:set("h.fleet", "127.0.0.1") -- lets go who hangs; nil: there is no such name
--   names:close()
local daemon = require "daemon"

local Resolver = {}
Resolver.__index = Resolver

local resolver = {}

-- Replaced at once, so that no call reads half of it.
local function write(self)
  local lines = {}
  for name, answers in pairs(self.names) do
    for _, answer in ipairs(type(answers) == "table" and answers or { answers }) do
      local family = answer:find(":", 1, true) and "6" or answer:find("^%d") and "4" or "any"
      lines[#lines + 1] = name .. " " .. family .. " " .. answer .. "\n"
    end
  end
  local path = self.dir .. "/names"
  local file = assert(io.open(path .. ".new", "w"))
  assert(file:write(table.concat(lines)))
  file:close()
  assert(os.rename(path .. ".new", path))
end

--- `names`: to an address, several of them, "none", "again" (the name server does not answer) or "hang".
function resolver.new(names)
  local self = setmetatable({ dir = daemon.directory(), names = {} }, Resolver)
  for name, answer in pairs(names or {}) do self.names[name] = answer end
  write(self)
  return self
end

function Resolver:set(name, answer)
  self.names[name] = answer
  write(self)
end

--- What daemon.start and daemon.with are given, with further options.
function Resolver:options(opts)
  opts = opts or {}
  opts.env = opts.env or {}
  opts.env.MR_TEST_NAMES, opts.env.MR_TEST_NAMES_LOG = self.dir .. "/names", self.dir .. "/log"
  opts.preload = daemon.program():match("^(.*)/[^/]*$") .. "/tests/resolver.so"
  return opts
end

--- How often getaddrinfo was called: for a name, or at all. An abandoned call counts.
function Resolver:calls(name)
  local n = 0
  for line in daemon.read(self.dir .. "/log"):gmatch("[^\n]+") do
    if not name or line:match("^(.*) %S+$") == name then n = n + 1 end
  end
  return n
end

function Resolver:close()
  daemon.remove(self.dir)
end

return resolver
