-- SPDX-License-Identifier: MIT
-- The one event loop of an end-to-end test. A test runs straight down and calls loop.wait where something
-- must happen elsewhere first: it turns the loop until the condition holds or the deadline passes, so
-- that nothing sleeps and nothing is missed. Handles opened through loop.own are closed between tests;
-- keep() takes one out. Start reading at loop.wait; sockets are in tcp.lua and udp.lua, the daemon's
-- process in daemon.lua.
local ffi = require "ffi"
local uv = require "luv"

require "network"

-- A write to a connection that the daemon has just ended is an error of that write, and not our silent end. The
-- programs that we start have their default back (libuv).
ffi.cdef "void (*signal(int number, void (*handler)(int)))(int);"
local SIGPIPE, SIG_IGN = 13, ffi.cast("void (*)(int)", 1)
ffi.C.signal(SIGPIPE, SIG_IGN)

local loop = {}

-- Generous: it bounds how long a failure takes, not how long a success does. A machine with sanitizers
-- and other work on two cores stalls for a second now and then.
loop.DEADLINE_S = 10

-- The timer that makes conditions on files, processes and metrics be looked at again. It exists once and
-- is stopped outside of loop.wait.
local ticker
-- A condition may wait itself, for an answer over HTTP above all.
local waits = 0
local owned, kept = {}, {}

--- Seconds on a clock that never goes back.
function loop.now()
  return uv.hrtime() / 1e9
end

--- Runs what is ready and returns at once.
function loop.turn()
  uv.run("nowait")
end

--- Turns the loop until pred() is true and returns what it gave; nil when `seconds` have passed.
function loop.try(pred, seconds)
  local result = pred()
  if result then return result end
  local ends = loop.now() + (seconds or loop.DEADLINE_S)
  ticker = ticker or uv.new_timer()
  waits = waits + 1
  ticker:start(5, 5, function() end)
  local ok, err = pcall(function()
    repeat
      uv.run("once")
      result = pred()
    until result or loop.now() >= ends
  end)
  waits = waits - 1
  if waits == 0 then ticker:stop() end
  if not ok then error(err, 0) end
  return result or nil
end

--- Like loop.try, and an error that names `what` when the deadline passes. `what` may be a function that
--- says more.
function loop.wait(pred, what, seconds)
  local result = loop.try(pred, seconds)
  if result then return result end
  if type(what) == "function" then what = what() end
  error("nothing within " .. (seconds or loop.DEADLINE_S) .. " s: " .. (what or "the condition"), 2)
end

--- Registers something with a close method to be closed when the test ends.
function loop.own(object)
  owned[object] = true
  return object
end

--- Takes an object out of what the end of the test closes; whoever calls closes it.
function loop.keep(object)
  owned[object] = nil
  kept[object] = true
  return object
end

--- How many objects were taken out and are still open.
function loop.kept_open()
  local n = 0
  for object in pairs(kept) do
    if object.handle:is_closing() then kept[object] = nil else n = n + 1 end
  end
  return n
end

--- Closes what the test opened and lets the close callbacks run.
function loop.close_owned()
  for object in pairs(owned) do object:close() end
  owned = {}
  loop.turn()
end

--- How many handles of the loop are neither closed nor ours to keep. For the check that a file leaves
--- none behind.
function loop.handles()
  if ticker then
    ticker:close()
    ticker = nil
  end
  loop.turn()
  local n = 0
  uv.walk(function(handle)
    if not uv.is_closing(handle) and uv.handle_get_type(handle) ~= "signal" then n = n + 1 end
  end)
  return n
end

return loop
