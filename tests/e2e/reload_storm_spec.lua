-- SPDX-License-Identifier: MIT
-- Policies are reloaded as fast as the daemon answers while games are played: nothing of a game is lost, nothing
-- of an old generation is left. `scripts/long reloads` runs this over the release build, whose memory is the one
-- that matters; E2E_RELOADS says another number of reloads.
--
-- What is held here, and by which test:
--   datagrams, joins, timers, memory, failed loads       a_storm_of_reloads_loses_no_datagram_and_leaves_nothing
--   two reloads at once                                  reloads_at_once_are_done_one_after_the_other
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local control = require "control"
local daemon = require "daemon"
local loop = require "loop"
local player = require "player"
local tcp = require "tcp"
local traffic = require "traffic"

local SANITIZER = os.getenv "MR_SANITIZE" or ""
local RELOADS = tonumber(os.getenv "E2E_RELOADS") or SANITIZER == "thread" and 500 or 3000
local PAIRS = 4
-- In the second half of all reloads.
local GROWTH_MAX_BYTES = (SANITIZER == "thread" and 16 or 2) * 1024 * 1024

-- Timers that are mostly not due when their generation ends, one that waits in the middle, a player's hook that
-- waits over the swap, and something that is kept: what a reload must take down.
local POLICY = [[
local relay = require "relay"
local generation = %d
local kept = {}
for i = 1, 1000 do kept[i] = "kept " .. i end
local function tick() relay.log.info("tick of " .. generation, { kept = #kept }) end
return {
  load = function()
    relay.every(0.01, tick)
    relay.after(0.02, tick)
    relay.after(60, tick)
    relay.every(0.01, function()
      relay.sleep(0.01)
      tick()
    end)
    %s
    relay.log.info("start of " .. generation)
  end,
  register = function()
    relay.sleep(0.01)
    return { tags = { generation = generation } }
  end,
}]]

-- Loads that fail, in turn: each must leave the generation before in use.
local BROKEN = { "error('on purpose')", "local x = nil; x.y = 1", "while true end", "relay.sleep(0.001) error('late')" }

describe("reloads under traffic", function()
  after_each(loop.close_owned)

  local function write(server, generation, in_load)
    local path = server.dir .. "/mine.lua"
    local file = assert(io.open(path .. ".new", "wb"))
    file:write(POLICY:format(generation, in_load or ""))
    file:close()
    assert(os.rename(path .. ".new", path))
  end

  local function with(fn, opts)
    opts = opts or {}
    opts.set = { control = "control.sock", udp_relay_timeout = "60s" }
    opts.files = { ["mine.lua"] = POLICY:format(1, "") }
    opts.config = [[return { policies = { "./mine.lua", "dynamic" } }]]
    return daemon.with(opts, fn)
  end

  -- A player who registers again and again; go_on() says how often he was let in.
  local function joiner(server)
    local client, asked, joined = nil, false, 0
    local self = {}
    function self.go_on()
      if not client or joined % 8 == 0 and not asked then
        if client then
          client:close()
          loop.keep(client)
        end
        client = assert(tcp.connect(server.command.ip, server.command.port))
      end
      if not asked then
        client:send "register-host\n"
        asked = true
      end
      for line in function() return client:take_line() end do
        assert.is_truthy(line:find "^set%-[op]id ", line)
        if line:find "^set%-pid " then
          asked = false
          joined = joined + 1
        end
      end
      return joined
    end
    return self
  end

  -- No generation's timer speaks after the start of the next one; returns how often they spoke.
  local function check_ticks(text)
    local current, ticks = 0, 0
    for what, generation in text:gmatch "(%l+) of (%d+)" do
      generation = tonumber(generation)
      if what == "start" then
        assert.is_true(generation > current)
        current = generation
      elseif what == "tick" then
        ticks = ticks + 1
        assert(generation == current, "a timer of generation " .. generation .. " after the start of " .. current)
      end
    end
    return ticks, current
  end

  it("a_storm_of_reloads_loses_no_datagram_and_leaves_nothing", function()
    with(function(server)
      local line, games, players = control.connect(server), {}, joiner(server)
      local half, refused, fds = nil, 0, nil
      for i = 1, PAIRS do games[i] = traffic.start(player.pair(server)) end
      for n = 2, RELOADS + 1 do
        local broken = n % 10 == 0 and BROKEN[n / 10 % #BROKEN + 1]
        write(server, n, broken or nil)
        line:send("POST", "/v1/reload")
        local answer
        loop.wait(function()
          players.go_on()
          answer = answer or line:take()
          return answer
        end, "the answer to reload " .. n)
        if broken then
          assert.is_true(answer.status >= 400, answer.body)
          assert.is_truthy(answer.body:find("mine.lua", 1, true), answer.body)
          refused = refused + 1
        else
          assert.equal(200, answer.status, answer.body)
        end
        if n % 20 == 1 then -- lives as long as two joins take, which wait, so that its timers speak
          local wanted = players.go_on() + 2
          loop.wait(function() return players.go_on() >= wanted end, "two joins")
        end
        if n == math.floor(RELOADS / 2) then half, fds = server:memory(), server:fds() end
      end
      local grown, sum = server:memory() - half, 0
      for _, game in ipairs(games) do sum = sum + game:stop() end
      assert.is_true(sum > RELOADS, sum .. " datagrams")
      assert.is_true(players.go_on() > RELOADS / 20, players.go_on() .. " joins")
      assert.is_true(grown <= GROWTH_MAX_BYTES, grown .. " bytes more than at half-time")
      assert.is_true(server:fds() <= fds + 2)
      local page = server:metrics()
      assert.equal(0, page:sum "moonrelay_log_dropped_total")
      assert.equal(RELOADS - refused, page:value("moonrelay_reloads_total", { result = "ok" }))
      assert.equal(refused, page:value("moonrelay_reloads_total", { result = "failed" }))
      server:await_log("tick of " .. RELOADS + 1)
      local ticks = check_ticks(server:stdout())
      assert.is_true(ticks > RELOADS / 40, ticks .. " ticks")
    end, { allow_log = { "mine", "reload" } })
  end)

  it("reloads_at_once_are_done_one_after_the_other", function()
    with(function(server)
      local lines, answers = { control.connect(server), control.connect(server) }, {}
      write(server, 2, "relay.sleep(0.2)")
      local began = loop.now()
      for _, line in ipairs(lines) do line:send("POST", "/v1/reload") end
      server:signal_with "sighup"
      loop.wait(function()
        for i, line in ipairs(lines) do answers[i] = answers[i] or line:take() end
        return answers[1] and answers[2]
      end, "both answers")
      for _, answer in ipairs(answers) do assert.equal(200, answer.status, answer.body) end
      assert.is_true(loop.now() - began >= 0.4)
      -- The HUP came while one was waiting that reads the same files.
      assert.equal(2, server:metric("moonrelay_reloads_total", { result = "ok" }))
      assert.equal(3, server:metric "moonrelay_config_generation")
    end)
  end)
end)
