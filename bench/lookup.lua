-- SPDX-License-Identifier: MIT
--
-- What a literal destination costs: 10,000 chained sends from an unconnected endpoint, each started in the
-- callback of the one before, over the bare sendto(2), our endpoint in C and in Lua, and node, bun and deno
-- where they are; and the same with a name, so that a resolver is asked. `scripts/bench lookup`.
--
-- Each program runs its rounds in a process of its own, the first of which only warms it; the programs take
-- turns, several times, so that all of them meet the same machine. All send to a socket of ours that nobody
-- reads. As `lookup.lua chain ...` this file is one of the programs: it prints the milliseconds of a round.
--
-- Options: --quick (a moment, ours only), --passes N. Besides PATH, the JavaScript runtimes are looked for in
-- the folders of MOONRELAY_BENCH_PATH.

local lua = (os.getenv "MR_BINARY_DIR" or "build/release") .. "/lua"
package.path = lua .. "/?.lua;" .. package.path
package.cpath = lua .. "/?.so;" .. package.cpath

local ffi = require "ffi"
local moonrelay = require "moonrelay"

ffi.cdef [[
struct bench_timespec { long tv_sec; long tv_nsec; };
int clock_gettime(int clock, struct bench_timespec *out);
]]

local CLOCK_MONOTONIC = 1
local DATA = ("x"):rep(64)

local time = ffi.new("struct bench_timespec[1]")
local function now_ms()
  ffi.C.clock_gettime(CLOCK_MONOTONIC, time)
  return tonumber(time[0].tv_sec) * 1e3 + tonumber(time[0].tv_nsec) / 1e6
end

-- ---- one of the programs -----------------------------------------------------------------------

local function chain(host, sends, rounds, port)
  local u = moonrelay.udp { family = 4 }
  local left, start = 0, 0
  local function sent(ok, why)
    if not ok then error(why) end
    if left == 0 then
      if start > 0 then print(("%.3f"):format(now_ms() - start)) end
      if rounds == 0 then return u:close() end
      rounds, left, start = rounds - 1, sends, now_ms()
    end
    left = left - 1
    u:send(DATA, host, port, sent)
  end
  u:send(DATA, host, port, sent) -- binds
  moonrelay.run()
end

if arg[1] == "chain" then
  return chain(arg[2], tonumber(arg[3]), tonumber(arg[4]), tonumber(arg[5]))
end

-- ---- the driver --------------------------------------------------------------------------------

local LITERAL = "127.0.0.1"

-- A machine without a hosts file knows no localhost; what is no literal is the resolver's all the same.
local function a_name()
  local hosts = io.open("/etc/hosts")
  local text = hosts and hosts:read("*a") or ""
  if hosts then hosts:close() end
  return text:find("localhost", 1, true) and "localhost" or "127.1"
end

local NAME = a_name()

local options = { rounds = 5, sends = 10000, passes = 5, is_quick = false }
do
  local i = 1
  while arg[i] do
    if arg[i] == "--quick" then
      options = { rounds = 2, sends = 300, passes = 1, is_quick = true }
    elseif arg[i] == "--passes" and tonumber(arg[i + 1]) then
      options.passes = tonumber(arg[i + 1])
      i = i + 1
    else
      io.stderr:write("scripts/bench lookup [--quick] [--passes N]\n")
      os.exit(2)
    end
    i = i + 1
  end
end

local function output(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read("*a")
  pipe:close()
  return text
end

-- The program of that name on PATH or in MOONRELAY_BENCH_PATH, and what version it is; nil and why not.
local function find(name)
  local path = (os.getenv("MOONRELAY_BENCH_PATH") or "") .. ":" .. (os.getenv("PATH") or "")
  for folder in path:gmatch("[^:]+") do
    local file = folder .. "/" .. name
    local is_there = os.execute(("test -x '%s' -a ! -d '%s'"):format(file, file))
    if is_there == 0 or is_there == true then
      local version = output(("'%s' --version 2>/dev/null </dev/null"):format(file)):match("%d+%.%d+[%w.-]*")
      if version then return file, version end
      return nil, file .. " does not run"
    end
  end
  return nil, "not found"
end

local root, build = assert(os.getenv("MR_SOURCE_DIR")), assert(os.getenv("MR_BINARY_DIR"))
local programs = {}

local function add(name, command)
  programs[#programs + 1] = { name = name, command = command, counted = {}, first = {} }
end

local function add_all()
  local bench = ("'%s/bench/bench_lookup' "):format(build)
  local ours = ("luajit '%s/bench/lookup.lua' chain "):format(root)
  local flags = { node = "", bun = "", deno = "run --allow-all --quiet " }
  add("sendto(2) in a loop, C", bench .. "bare")
  add("moonrelay, C", bench .. "c")
  add("moonrelay, Lua", ours .. LITERAL)
  for _, name in ipairs { "node", "bun", "deno" } do
    local file, version = find(name)
    if options.is_quick then
      file, version = nil, "not part of the short run"
    end
    if file then
      local command = ("'%s' %s'%s/bench/lookup.mjs' "):format(file, flags[name], root)
      add(name .. " " .. version, command .. LITERAL)
      add(name .. " " .. version .. ", a name", command .. NAME)
    elseif not options.is_quick then
      io.stderr:write(name .. ": " .. version .. ", left out\n")
    end
  end
  add("moonrelay, C, a name", bench .. "resolver")
  add("moonrelay, Lua, a name", ours .. NAME)
end

local function measure(program, port)
  local command = ("%s %d %d %d </dev/null"):format(program.command, options.sends, options.rounds, port)
  local n = 0
  for line in output(command):gmatch("[^\n]+") do
    local ms = assert(tonumber(line), program.name .. " printed " .. line)
    n = n + 1
    table.insert(n == 1 and program.first or program.counted, ms)
  end
  assert(n == options.rounds, program.name .. " did not run to its end")
end

local function median(list)
  local sorted = { unpack(list) }
  table.sort(sorted)
  local n = #sorted
  return n % 2 == 1 and sorted[(n + 1) / 2] or (sorted[n / 2] + sorted[n / 2 + 1]) / 2
end

local function report()
  local bare = programs[1].counted
  print(("%d sends a round; %d passes of %d rounds, the first of each left out."):format(
    options.sends, options.passes, options.rounds))
  print("")
  print("| | median ms | least ms | us a send | median, of the bare loop | least, of the bare loop |")
  print("|---|--:|--:|--:|--:|--:|")
  for _, p in ipairs(programs) do
    local middle, least = median(p.counted), math.min(unpack(p.counted))
    print(("| %s | %.1f | %.1f | %.2f | %.2f | %.2f |"):format(p.name, middle, least,
      middle * 1e3 / options.sends, middle / median(bare), least / math.min(unpack(bare))))
  end
end

local sink = moonrelay.udp { family = 4 }
sink:bind(LITERAL, 0, function(ok, why) assert(ok, why) end)
moonrelay.run()
local port = assert(sink:address()).port
add_all()
for _ = 1, options.passes do
  for _, program in ipairs(programs) do measure(program, port) end
end
report()
