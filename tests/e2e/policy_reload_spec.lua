-- SPDX-License-Identifier: MIT
-- Reloads of the running daemon: what is broken changes nothing and is told with its place, what is good serves from
-- the next decision on, a rollback takes it back; beside a game that loses nothing.
--
-- What is held here, and by which test:
--   syntax, throwing load, unknown hook, wrong return     a_broken_file_is_refused_and_the_old_policies_serve
--   the same by SIGHUP                                    a_broken_file_is_refused_by_a_signal_as_well
--   a failed run never passes later                       what_failed_once_fails_again_until_it_is_mended
--   what is kept                                          sessions_relays_slots_and_stores_outlive_a_reload
--   rollback                                              a_policy_that_refuses_all_is_taken_back
--   a policy that only watches                            a_watching_policy_that_raises_costs_players_nothing
--   many, at once and one after the other                 reloads_at_once_are_done_or_refused_one_by_one
--   timers                                                timers_end_with_their_generation
local daemon = require "daemon"
local loop = require "loop"
local operator = require "operator"
local player = require "player"
local tcp = require "tcp"
local traffic = require "traffic"

local CONFIG = [[return { policies = { "./mine.lua", "dynamic" } }]]

-- Names itself to whoever asks for it.
local function naming(name)
  return [[return { register = function(ev)
    if ev.meta.who then return false, "]] .. name .. [[" end
  end }]]
end

local function with(text, fn, opts)
  opts = operator.options(opts or {})
  opts.config = opts.config or CONFIG
  opts.files = opts.files or {}
  opts.files["mine.lua"] = text
  daemon.with(opts, function(server)
    local game = traffic.start(player.pair(server))
    fn(server)
    game:stop()
  end)
end

local function who(server)
  local client = assert(tcp.connect(server.command.ip, server.command.port))
  client:send("register-host who=1\n")
  local name = client:expect_match("^error register%-host:rejected:(.+)$")
  client:close()
  return name
end

local BROKEN = {
  ["mine.lua:3"] = "return {\n  register = function(ev)\n",
  ["mine.lua:2: no backend"] = "return { load = function()\n  error('no backend') end }",
  ["mine.lua:1: at the top"] = "error('at the top')",
  ["did you mean register"] = "return { regsiter = function() end }",
  ["a table of hooks is expected"] = "return 7",
  ["mine.lua"] = "return { load = function() while true do end end }",
  ["undeclared"] = "return { load = function() undeclared = 1 end }",
  ["register is a string"] = "return { register = 'yes' }",
  ["api 2 is not known"] = "return { api = 2 }",
  ["lookup is a number"] = "return { lookup = 4 }",
  ["no_such_module"] = "local x = require 'no_such_module' return {}",
}

describe("a reload of policies", function()
  it("a_broken_file_is_refused_and_the_old_policies_serve", function()
    with(naming "first", function(server)
      for text, source in pairs(BROKEN) do
        operator.write(server, "mine.lua", source)
        for _, args in ipairs { { "reload", "--check" }, { "reload" } } do
          local said = operator.fails(server, unpack(args))
          assert.truthy(said:find(text, 1, true), said)
        end
        assert.equal("first", who(server))
      end
      for text, config in pairs { ["moonrelay.lua:1"] = "return { policies = { './mine.lua'", ["polices"] =
        "return { polices = {} }", ["missing.lua"] = "return { policies = { './missing.lua' } }" } do
        operator.write(server, "mine.lua", naming "second")
        operator.write(server, "moonrelay.lua", config)
        local said = operator.fails(server, "reload")
        assert.truthy(said:find(text, 1, true), said)
        assert.equal("first", who(server))
      end
      assert.equal(0, server:metric("moonrelay_config_last_reload_successful"))
      operator.write(server, "moonrelay.lua", CONFIG)
      operator.does(server, "reload", "--check")
      assert.equal("first", who(server))
      operator.does(server, "reload")
      assert.equal("second", who(server))
      assert.equal(1, server:metric("moonrelay_config_last_reload_successful"))
    end, { allow_log = { "refused, what was in use" } })
  end)

  it("a_broken_file_is_refused_by_a_signal_as_well", function()
    with(naming "first", function(server)
      operator.write(server, "mine.lua", "return {\n  register = function(ev)\n")
      server:signal_with("sighup")
      server:await_log("mine.lua:3")
      assert.equal("first", who(server))
      operator.write(server, "mine.lua", naming "second")
      server:signal_with("sighup")
      loop.wait(function() return who(server) == "second" end, "the new policies")
    end, { allow_log = { "refused, what was in use" } })
  end)

  it("what_failed_once_fails_again_until_it_is_mended", function()
    with(naming "first", function(server)
      operator.write(server, "lib.lua", "error('not ready')")
      operator.write(server, "mine.lua", "local name = require 'lib'\n" .. naming("second"))
      for _ = 1, 3 do
        local said = operator.fails(server, "reload")
        assert.truthy(said:find("lib.lua:1: not ready", 1, true), said)
        assert.equal("first", who(server))
      end
      operator.write(server, "lib.lua", "return 'ready'")
      operator.does(server, "reload")
      assert.equal("second", who(server))
    end, { allow_log = { "refused, what was in use" } })
  end)

  it("sessions_relays_slots_and_stores_outlive_a_reload", function()
    with([[
      local relay = require "relay"
      local store = relay.store("seen", { max = 100 })
      return { register = function(ev)
        if ev.meta.who then return false, "seen-" .. store:count() end
        if ev.meta.user then
          store:add(ev.meta.user, true)
          return { slots = { ["user/" .. ev.meta.user] = 1 } }
        end
      end }]], function(server)
      local pair = player.pair(server, { host = { words = "user=alice" }, client = {} })
      for i = 1, 5 do
        operator.does(server, "reload")
        assert.equal("seen-1", who(server))
        local other = assert(tcp.connect(server.command.ip, server.command.port))
        other:send("register-host user=alice\n")
        other:expect("error register-host:full:user/alice")
        player.exchange(pair, "after reload " .. i)
      end
      pair.client:send("connect-relay " .. pair.host.oid)
      pair.client.tcp:expect("connect-relay " .. pair.host_port)
    end)
  end)

  it("a_policy_that_refuses_all_is_taken_back", function()
    with(naming "first", function(server)
      operator.write(server, "mine.lua", "return { register = function() return false, 'all-closed' end }")
      operator.does(server, "reload")
      assert.equal("all-closed", who(server))
      operator.does(server, "rollback")
      assert.equal("first", who(server))
      player.join(server)
      -- The file on disk is still the bad one.
      operator.does(server, "reload")
      assert.equal("all-closed", who(server))
      operator.does(server, "rollback")
      assert.equal("first", who(server))
    end)
  end)

  it("a_watching_policy_that_raises_costs_players_nothing", function()
    with([[
      local function fail() error("the log is full") end
      return { register = fail, connect = fail, create = fail, drop = fail, connected = fail, created = fail,
        destroyed = fail, left = fail }]], function(server)
      local pair = player.pair(server)
      player.exchange(pair)
      pair.client:leave()
      server:await_log("the log is full")
      player.exchange(player.pair(server))
    end, { config = [[return { policies = { { "./mine.lua", on_error = "skip" }, "dynamic" } }]],
      allow_log = { "the log is full" } })
  end)

  it("reloads_at_once_are_done_or_refused_one_by_one", function()
    with(naming "first", function(server)
      for i = 1, 20 do
        operator.write(server, "mine.lua", naming("gen" .. i))
        for _ = 1, 10 do server:signal_with("sighup") end
      end
      loop.wait(function() return who(server) == "gen20" end, "the last of the policies")
      operator.does(server, "reload")
      assert.equal("gen20", who(server))
    end)
  end)

  it("timers_end_with_their_generation", function()
    with([[
      local relay = require "relay"
      local store = relay.store("ticks", { max = 100 })
      return {
        load = function() relay.every(0.01, function() store:incr("n") end) end,
        register = function(ev)
          if ev.meta.who then
            local before = store:get("n") or 0
            store:set("n", 0)
            return false, "ticks-" .. before
          end
        end,
      }]], function(server)
      local first = server:metric("moonrelay_config_generation")
      for i = 1, 20 do
        server:signal_with("sighup")
        server:await_metric("moonrelay_config_generation", {}, first + i)
      end
      -- Those of old generations would count as well: a hundred a second are right.
      who(server)
      local from = loop.now()
      loop.wait(function() return loop.now() - from >= 1 end, "a second")
      local ticks = tonumber(who(server):match("^ticks%-(%d+)$"))
      assert.is_true(ticks <= (loop.now() - from) * 100 + 2, ticks .. " ticks")
    end)
  end)
end)
