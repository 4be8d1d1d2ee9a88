-- SPDX-License-Identifier: MIT
-- What a supervisor is told (sd_notify), over a real datagram socket.
--
-- What is held here, and by which test:
--   READY when it serves, STOPPING at the end, STATUS      it_says_when_it_serves_and_when_it_stops
--   RELOADING and READY around a reload                    a_reload_is_told_from_beginning_to_end
--   WATCHDOG at half of the time, not for another process  the_watchdog_is_fed_at_half_of_its_time
--   a stop that drains asks for the time that it takes     a_stop_that_drains_asks_for_time
--   nobody listens                                         nobody_need_listen
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local uv = require "luv"
local daemon = require "daemon"
local loop = require "loop"
local operator = require "operator"
local player = require "player"
local supervisor = require "supervisor"

local serial = 0

-- Runs fn with an ear and the options of a daemon that speaks to it.
local function with_ear(env, opts, fn)
  serial = serial + 1
  local path = ("@moonrelay-e2e-%d-%d"):format(uv.os_getpid(), serial)
  if opts.is_file then path = ("/tmp/moonrelay-e2e-%d-%d"):format(uv.os_getpid(), serial) end
  local ear = supervisor.listen(path, env)
  opts.env, opts.control_pair = ear.env, false
  local ok, err = pcall(daemon.with, operator.options(opts), function(server)
    fn(server, ear)
    ear:close() -- before it is looked at what a test leaves
  end)
  ear:close()
  if not ok then error(err, 0) end
end

local function ends(server)
  server:reap(20, "a daemon that was told to end")
  assert.same({ 0, 0 }, { server.code, server.signal })
end

describe("a supervisor", function()
  after_each(loop.close_owned)

  it("it_says_when_it_serves_and_when_it_stops", function()
    for _, is_file in ipairs { false, true } do
      with_ear({}, { is_file = is_file }, function(server, ear)
        local ready = ear:expect("READY")
        assert.same({ READY = "1", STATUS = "serving; 0 sessions, 0 relays" }, ready)
        server:signal_with("sigterm")
        assert.equal("1", ear:expect("STOPPING").STOPPING)
        ends(server)
      end)
    end
  end)

  it("a_reload_is_told_from_beginning_to_end", function()
    with_ear({}, { config = "return {}", allow_log = { "reload: refused" } }, function(server, ear)
      ear:expect("READY")
      server:signal_with("sighup")
      assert.is_truthy(tonumber(ear:expect("RELOADING").MONOTONIC_USEC))
      ear:expect("READY")
      operator.write(server, "moonrelay.lua", "return {")
      server:signal_with("sighup")
      ear:expect("RELOADING")
      ear:expect("READY") -- what was in use goes on
    end)
  end)

  it("the_watchdog_is_fed_at_half_of_its_time", function()
    with_ear({ WATCHDOG_USEC = "400000" }, {}, function(server, ear)
      for _ = 1, 3 do ear:expect("WATCHDOG") end
      -- A process that stands still says nothing.
      uv.kill(server.pid, "sigstop")
      loop.wait(function() return daemon.read("/proc/" .. server.pid .. "/stat"):find("%) T ") end, "that it stands")
      ear:poll()
      ear.messages = {}
      assert.is_nil(loop.try(function()
        ear:poll()
        return #ear.messages > 0
      end, 1))
      uv.kill(server.pid, "sigcont")
      ear:expect("WATCHDOG")
      player.exchange(player.pair(server))
      assert.is_truthy(ear:expect("STATUS").STATUS:find("^serving; %d sessions, %d relays$"))
    end)
    with_ear({ WATCHDOG_USEC = "400000", WATCHDOG_PID = "1" }, {}, function(_, ear)
      ear:expect("READY")
      assert.is_nil(loop.try(function()
        ear:poll()
        return ear.messages[1] and ear.messages[1].WATCHDOG
      end, 1))
    end)
  end)

  it("a_stop_that_drains_asks_for_time", function()
    with_ear({ WATCHDOG_USEC = "400000" }, { set = { drain_timeout = "300s" } }, function(server, ear)
      local host = player.join(server)
      ear:expect("READY")
      server:signal_with("sigterm")
      local stopping = ear:expect("STOPPING")
      assert.is_truthy(tonumber(stopping.EXTEND_TIMEOUT_USEC) > 300e6)
      assert.is_truthy(stopping.STATUS:find("^draining: %d+ s left; 1 sessions"), stopping.STATUS)
      host.tcp:expect("notice draining:300")
      ear:expect("WATCHDOG") -- it lives
      server:signal_with("sigterm")
      ends(server)
    end)
  end)

  it("nobody_need_listen", function()
    for _, path in ipairs { "/nonexistent/socket", "@moonrelay-nobody", ("/x"):rep(200), "" } do
      daemon.with({ env = { NOTIFY_SOCKET = path, WATCHDOG_USEC = "junk" }, control_pair = false }, function(server)
        player.exchange(player.pair(server))
      end)
    end
  end)
end)
