-- SPDX-License-Identifier: MIT
-- What policies cost while games run, over a real daemon: a reload, strangers who are admitted, and what a
-- pair notices of hooks that hang and of a storm of reloads. Run it by `scripts/bench policies [PART...]`:
-- hooks, reload, strangers or latency, all without a name; `--quick` shows only that they run. Figures
-- and how to read them are in bench/README.md. Start reading at the table `parts`.
local root = os.getenv "MR_SOURCE_DIR" or "."
package.path = root .. "/tests/e2e/?.lua;" .. root .. "/bench/lib/?.lua;" .. package.path

local uv = require "luv"
local control = require "control"
local daemon = require "daemon"
local loop = require "loop"
local player = require "player"
local probe = require "probe"
local tcp = require "tcp"
local udp = require "udp"

local bin = os.getenv "MR_BINARY_DIR" or "build/release"
local is_quick = false

local function say(...) io.write(string.format(...), "\n") io.flush() end

-- ---- figures ------------------------------------------------------------------------------------

local percentile, longest_turn = probe.percentile, probe.longest_turn

local function turns(server) return probe.turns(server:metrics()) end

-- CPU time of the control thread: seconds.
local function control_cpu(server) return probe.cpu(server).control end

local function settings(ports)
  return { udp_relay_ports = "0+" .. ports - 1, udp_relay_timeout = "1h", control = "control.sock",
    dynamic_per_address = "65536", dynamic_per_target = "65536", dynamic_share = "100", udp_buffer = "64kb" }
end

-- ---- relays of strangers ------------------------------------------------------------------------

-- Strangers knock until there are `n` relays. Each has an address of its own, whose socket is closed again.
local function fill(server, n)
  local host = player.join(server)
  local knock = player.relay(player.join(server), host).host_port
  local here = 2
  while here < n do
    for _ = 1, math.min(200, n - here) do
      local stranger = udp.open("127.80." .. math.random(0, 255) .. "." .. math.random(0, 255))
      stranger:send("hello", server.command.ip, knock)
      stranger:close()
      loop.keep(stranger)
    end
    local wanted = math.min(n, here + 200)
    loop.try(function()
      here = server:metric("noray_relay_count")
      return here >= wanted
    end, 2)
  end
  host.udp:drain() -- what they were admitted with
end

local OPEN_DOOR = [[
local n = 0
return {
  drop = function(ev) return {} end,
  create = function(ev) n = n + 1 end,
}]]

-- ---- parts --------------------------------------------------------------------------------------

local function hooks()
  assert(os.execute(bin .. "/bench/bench_hook " .. (is_quick and 1000 or 200000)) == 0, "bench_hook failed")
end

local function reload()
  local rounds, many = is_quick and 5 or 200, is_quick and 100 or 10000
  say("| live relays | a reload, median | 99 %% | CPU of the control thread | longest turn of its loop |")
  say("|---|---|---|---|---|")
  for _, relays in ipairs { 0, many } do
    daemon.with({ set = settings(many + 64), files = { ["open.lua"] = OPEN_DOOR }, control_pair = false,
      config = [[return { policies = { "./open.lua", "quota", "dynamic" } }]] }, function(server)
      if relays > 0 then fill(server, relays) end
      local line = control.connect(server)
      local took, cpu, before = {}, control_cpu(server), turns(server)
      for i = 1, rounds do
        local from = uv.hrtime()
        line:reload()
        took[i] = (uv.hrtime() - from) / 1e6
      end
      cpu = (control_cpu(server) - cpu) * 1000 / rounds
      table.sort(took)
      say("| %d | %.2f ms | %.2f ms | %.2f ms | %s |", relays, percentile(took, 0.5), percentile(took, 0.99),
        cpu, longest_turn(before, turns(server)))
      line:close()
    end)
  end
end

local function strangers()
  local rate, seconds = 100, is_quick and 1 or 20
  daemon.with({ set = settings(rate * seconds + 64), files = { ["open.lua"] = OPEN_DOOR },
    control_pair = false, config = [[return { policies = { "./open.lua", "dynamic" } }]] }, function(server)
    local host = player.join(server)
    local knock = player.relay(player.join(server), host).host_port
    local took, began, cpu, before = {}, uv.hrtime(), control_cpu(server), turns(server)
    for i = 1, rate * seconds do
      local stranger = udp.open("127.80.1." .. i % 200 + 1)
      loop.try(function() return uv.hrtime() - began >= (i - 1) / rate * 1e9 end)
      local from = uv.hrtime()
      stranger:send("hello " .. i, server.command.ip, knock)
      host.udp:expect("hello " .. i)
      took[i] = (uv.hrtime() - from) / 1e6
      stranger:close()
      loop.keep(stranger)
    end
    local share = (control_cpu(server) - cpu) / ((uv.hrtime() - began) / 1e9)
    local page = server:metrics()
    assert(page:value("noray_relay_count") == rate * seconds + 2)
    table.sort(took)
    say("%d strangers, %d a second: control thread %.2f %% of a core, %.0f us each", #took, rate, share * 100,
      share / rate * 1e6)
    say("first datagram at the host: median %.2f ms, 99 %% %.2f ms, most %.2f ms; longest turn %s",
      percentile(took, 0.5), percentile(took, 0.99), took[#took], longest_turn(before, turns(server)))
  end)
end

local HANG = [[
local function recurse(n) return 1 + recurse(n + 1) end
local hang = {
  loop = function() while true do end end,
  pcall = function() while true do pcall(function() while true do end end) end end,
  coroutine = function() while true do coroutine.wrap(function() while true do end end)() end end,
  index = function() return setmetatable({}, { __index = function() while true do end end }).x end,
  pattern = function() return ("."):rep(4096):find("^(.-)%.(.-)%.(.+)=$") end,
  memory = function() local s = "x" while true do s = s .. s end end,
  rep = function() return ("x"):rep(2 ^ 30) end,
  recursion = function() return recurse(1) end,
}
return { register = function(ev)
  if not ev.meta.how then return end
  if hang[ev.meta.how] then hang[ev.meta.how]() end
  return false, "done"
end }]]

-- What is done to the server while a pair plays. Each gives what there was of it.
local function hang_by(how, commands)
  return function(server, seconds)
    local clients, answers = {}, 0
    for i = 1, commands do
      clients[i] = assert(tcp.connect(server.command.ip, server.command.port))
      clients[i]:send("register-host how=" .. how .. "\n")
    end
    local ends = loop.now() + seconds
    loop.try(function()
      for _, client in ipairs(clients) do
        if client:take_line() then
          answers = answers + 1
          client:send("register-host how=" .. how .. "\n")
        end
      end
      return loop.now() >= ends
    end, seconds + 5)
    for _, client in ipairs(clients) do
      client:line() -- what is still under way belongs to this phase
      client:close()
      loop.keep(client)
    end
    return string.format("%.0f hooks/s", answers / seconds)
  end
end

local function reload_all_the_time(server, seconds)
  local line, n, ends = control.connect(server), 0, loop.now() + seconds
  while loop.now() < ends do
    line:reload()
    n = n + 1
  end
  line:close()
  return string.format("%.0f reloads/s", n / seconds)
end

-- The yardstick: a program that has nothing to do with the daemon and wants a core for itself.
local function another_program(_, seconds)
  local ended
  local handle = uv.spawn("luajit", { args = { "-e", "while true do end" } }, function() ended = true end)
  loop.try(function() return false end, seconds)
  handle:kill "sigkill"
  loop.wait(function() return ended end, "the end of the other program")
  handle:close()
  return ""
end

local function nothing(_, seconds)
  loop.try(function() return false end, seconds)
  return ""
end

local DISTURBANCES = {
  { "another program that loops", another_program },
  { "a hook that returns at once", hang_by("nothing", 4) },
  { "endless loop", hang_by("loop", 4) },
  { "the same inside pcall", hang_by("pcall", 4) },
  { "in a coroutine", hang_by("coroutine", 4) },
  { "in `__index`", hang_by("index", 4) },
  { "a pattern that backtracks", hang_by("pattern", 4) },
  { "a string without end", hang_by("memory", 4) },
  { "a string of 1 GB", hang_by("rep", 4) },
  { "endless recursion", hang_by("recursion", 4) },
  { "reloads without a pause", reload_all_the_time },
}

-- Quiet and disturbed phases in turn, so that what the machine does besides concerns both.
local function plan(rounds, seconds)
  local steps = {}
  local function step(name, run) steps[#steps + 1] = { name, function(server) return run(server, seconds) end } end
  for _ = 1, rounds do
    for _, disturbance in ipairs(DISTURBANCES) do
      step(#steps == 0 and "nothing, before" or "nothing, between", nothing)
      step(disturbance[1], disturbance[2])
    end
  end
  step("nothing, after", nothing)
  return steps
end

local function latency()
  local rounds, seconds = is_quick and 1 or 3, is_quick and 0.1 or 4
  daemon.with({ set = { udp_relay_ports = "0+15", control = "control.sock" }, control_pair = false,
    files = { ["hang.lua"] = HANG }, config = [[return { policies = { "./hang.lua", "dynamic" } }]],
    allow_log = { "hang" } }, function(server)
    local rows, by_name = probe.measure(server, { { player.pair(server), us = 1000 } }, plan(rounds, seconds))
    local quiet = by_name["nothing, between"].pairs[1]
    say("| meanwhile | | datagrams | lost | median | 99 %% | 99.9 %% | most | median/quiet | 99 %%/quiet |")
    say("|---|---|---|---|---|---|---|---|---|---|")
    for _, row in ipairs(rows) do
      local one = row.pairs[1]
      local half, late = percentile(one.took, 0.5), percentile(one.took, 0.99)
      say("| %s | %s | %d | %d | %.0f us | %.0f us | %.0f us | %.0f us | %.2f | %.2f |", row.name, row.what,
        one.sent, one.lost, half, late, percentile(one.took, 0.999), one.took[#one.took] or 0 / 0,
        half / percentile(quiet.took, 0.5), late / percentile(quiet.took, 0.99))
    end
  end)
end

local parts = { { "hooks", hooks }, { "reload", reload }, { "strangers", strangers }, { "latency", latency } }

local wanted = {}
for _, word in ipairs(arg) do
  if word == "--quick" then is_quick = true else wanted[word] = true end
end
local all = next(wanted) == nil
for _, part in ipairs(parts) do
  if all or wanted[part[1]] then
    say("%s== %s (load average %s)", part == parts[1] and "" or "\n", part[1],
      daemon.read("/proc/loadavg"):match "^%S+")
    part[2]()
    wanted[part[1]] = nil
  end
end
if next(wanted) then
  io.stderr:write("policies: no part '" .. next(wanted) .. "'; there are hooks, reload, strangers, latency\n")
  os.exit(2)
end
