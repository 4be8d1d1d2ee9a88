-- SPDX-License-Identifier: MIT
-- A pair whose datagrams a process of its own times (bench/pair_probe.c) while something is done to the
-- server, phase after phase: quiet ones in between, so that what the machine does besides concerns both.
-- Start reading at probe.measure.
local ffi = require "ffi"
local uv = require "luv"
local daemon = require "daemon"
local loop = require "loop"

local bin = os.getenv "MR_BINARY_DIR" or "build/release"
local NEVER = 0xffffffffffffffffULL

local probe = {}

function probe.percentile(sorted, p)
  return sorted[math.max(1, math.ceil(#sorted * p))] or 0 / 0
end

--- Starts a program of bench/ whose stdin is a pipe: stop() closes that and returns what it has printed.
--- `fds` are its descriptors from 3 on.
function probe.spawn(server, name, args, fds)
  local path = ("%s/%s.%d"):format(server.dir, name, uv.hrtime() % 1e9)
  local out, pipe = assert(uv.fs_open(path, "w", 420)), uv.new_pipe(false)
  local stdio, ended = { pipe, out, 2 }, nil
  for _, fd in ipairs(fds or {}) do stdio[#stdio + 1] = fd end
  local handle, pid = uv.spawn(bin .. "/bench/" .. name, { args = args, stdio = stdio },
    function(code) ended = code end)
  assert(handle, pid)
  uv.fs_close(out)
  local self = {}
  function self.has_ended() return ended ~= nil end
  function self.stop()
    pipe:close()
    loop.wait(function() return ended end, "the end of " .. name, 30)
    handle:close()
    loop.turn()
    assert(ended == 0, name .. " has failed")
    return daemon.read(path)
  end
  return self
end

--- Plays pairs of players (player.pair), from the client to the host. Each of `pairs` is { pair, us = between two
--- datagrams, bytes = 64 }. stop() gives { { pair = number, at = ns, took = us, or nil: it did not come } ... }.
function probe.start(server, pairs)
  local args, fds = {}, {}
  for i, one in ipairs(pairs) do
    local pair = one[1]
    for _, side in ipairs { pair.client, pair.host } do
      side.udp.handle:recv_stop()
      fds[#fds + 1] = side.udp.handle:fileno()
    end
    args[i] = ("%d:%d:%d"):format(pair.host_port, one.us, one.bytes or 64)
  end
  local program = probe.spawn(server, "pair_probe", args, fds)
  return { stop = function()
    local text, list = program.stop(), {}
    local raw = ffi.cast("const uint64_t *", text)
    for i = 0, #text / 24 - 1 do
      local took = raw[3 * i + 2]
      list[i + 1] = { pair = tonumber(raw[3 * i]) + 1, at = tonumber(raw[3 * i + 1]),
        took = took ~= NEVER and tonumber(took) / 1000 or nil }
    end
    return list
  end }
end

--- Sorts samples into phases { name, what, from, to } (ns): one row a name in the order of appearance, { name, what,
--- pairs = { [number] = { took = sorted us, sent, lost } } }, and by name.
function probe.gather(phases, samples)
  local rows, by_name, at = {}, {}, 1
  for _, phase in ipairs(phases) do
    local row = by_name[phase.name]
    if not row then
      row = { name = phase.name, what = phase.what, pairs = {} }
      by_name[phase.name], rows[#rows + 1] = row, row
    end
    while samples[at] and samples[at].at < phase.to do
      local sample = samples[at]
      local one = row.pairs[sample.pair] or { took = {}, sent = 0, lost = 0 }
      row.pairs[sample.pair] = one
      if sample.at >= phase.from then
        one.sent = one.sent + 1
        if sample.took then one.took[#one.took + 1] = sample.took else one.lost = one.lost + 1 end
      end
      at = at + 1
    end
  end
  for _, row in ipairs(rows) do
    for _, one in pairs(row.pairs) do table.sort(one.took) end
  end
  return rows, by_name
end

--- Runs `plan`, a list of { name, fn }, one after the other while the pairs are played; fn(server) returns what
--- there was of it. Returns what probe.gather does, and how many datagrams were sent in all.
function probe.measure(server, pairs, plan)
  local program, phases = probe.start(server, pairs), {}
  for i, step in ipairs(plan) do
    local from = uv.hrtime()
    local what = step[2](server)
    phases[i] = { name = step[1], what = what, from = from, to = uv.hrtime() }
  end
  local samples = program.stop()
  local rows, by_name = probe.gather(phases, samples)
  return rows, by_name, #samples
end

--- Turns the loop for so long.
function probe.rest(seconds)
  loop.try(function() return false end, seconds)
end

-- ---- the process ---------------------------------------------------------------------------------

--- CPU time of its threads in seconds: { control =, workers =, others = }.
function probe.cpu(server)
  local cpu = { control = 0, workers = 0, others = 0 }
  local scan = uv.fs_scandir("/proc/" .. server.pid .. "/task")
  while scan do
    local tid = uv.fs_scandir_next(scan)
    if not tid then break end
    local place = "/proc/" .. server.pid .. "/task/" .. tid
    local who = tonumber(tid) == server.pid and "control"
      or daemon.read(place .. "/comm"):find "^mr%-worker" and "workers" or "others"
    cpu[who] = cpu[who] + (tonumber(daemon.read(place .. "/schedstat"):match "^%d+") or 0) / 1e9
  end
  return cpu
end

--- The histogram of the control loop's turns on a page of metrics, as { { bound =, count = } ... }.
function probe.turns(page)
  local found = {}
  for _, sample in ipairs(page.samples) do
    if sample.name == "moonrelay_control_stall_seconds_bucket" then
      found[#found + 1] = { bound = sample.labels.le, count = sample.value }
    end
  end
  return found
end

--- The bound of the longest turn between two looks, as text.
function probe.longest_turn(before, after)
  local all = after[#after].count - before[#before].count
  for i, bucket in ipairs(after) do
    if bucket.count - before[i].count == all then
      return bucket.bound == "+Inf" and "more than " .. after[i - 1].bound * 1000 .. " ms"
        or "at most " .. bucket.bound * 1000 .. " ms"
    end
  end
end

return probe
