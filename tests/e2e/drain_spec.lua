-- SPDX-License-Identifier: MIT
-- A drain of the real daemon, by each who may ask for one, and its end.
--
-- What is held here, and by which test:
--   a running game loses a player, who rejoins; a new host    a_running_game_goes_on_and_takes_back_whom_it_lost
--     cannot be joined; /livez 200, /readyz 503
--   netfox reads every line                                   an_unmodified_game_reads_what_it_is_told
--   --cancel, status, usage                                   an_operator_drains_looks_and_takes_it_back
--   it ends when empty and at its time                        it_ends_when_nobody_is_left, it_ends_at_its_time
--   TERM drains for drain_timeout, a second one ends at once  term_lets_games_end_within_drain_timeout
--   USR1                                                      usr1_drains_for_the_preset_time
--   relay.drain in a policy                                   a_policys_command_drains
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local control = require "control"
local daemon = require "daemon"
local loop = require "loop"
local netfox = require "netfox"
local operator = require "operator"
local player = require "player"
local tcp = require "tcp"

-- moonrelay call maintenance start 30: tells every player, lets running games end.
local MAINTENANCE = [[
local relay = require "relay"
return {
  commands = {
    start = function(minutes)
      for _, s in ipairs(relay.sessions()) do relay.notify(s.id, "maintenance-in-" .. minutes .. "m") end
      relay.drain(tonumber(minutes) * 60)
      return "draining"
    end,
  },
}
]]

-- Starts one without a control pair, whose relays would have to be waited for.
local function start(opts)
  opts.control_pair = false
  opts.is_short = true
  return daemon.start(operator.options(opts))
end

-- It ends by itself with status 0, and removes its socket.
local function ends(server, seconds)
  server:reap(seconds or 20, "a daemon that drains")
  assert.same({ 0, 0 }, { server.code, server.signal }, server:tail())
  assert.equal("", server:stderr())
  assert.equal("", daemon.read(server.dir .. "/control.sock"))
  local log = server:stdout()
  for _, bad in ipairs { "ERROR: %a+Sanitizer", "runtime error:", "%serror%s", "%sfatal%s" } do
    assert.is_nil(log:find(bad), log)
  end
  loop.close_owned()
  daemon.remove(server.dir)
  return log
end

-- Runs fn with a daemon that has ended when fn returns.
local function with(opts, fn)
  local server = start(opts)
  local ok, err = xpcall(fn, debug.traceback, server)
  if not ok then
    local tail = server:tail()
    if server:is_running() then pcall(server.kill, server) end
    daemon.remove(server.dir)
    error(tostring(type(err) == "table" and err.message or err) .. "\n" .. tail, 0)
  end
end

local function drain(server, body)
  local c = control.connect(server)
  local response = c:request("POST", "/v1/drain", body)
  c:close()
  return response
end

local function is_ready(server)
  assert.equal(200, server:get("/livez").status)
  return server:get("/readyz").status == 200
end

describe("a drain", function()
  after_each(loop.close_owned)

  it("a_running_game_goes_on_and_takes_back_whom_it_lost", function()
    with({}, function(server)
      local pair = player.pair(server)
      player.exchange(pair)
      assert.is_true(is_ready(server))
      assert.equal(200, drain(server, '{"seconds": 600}').status)
      pair.host.tcp:expect("notice draining:600")
      pair.client.tcp:expect("notice draining:600")
      player.exchange(pair)
      -- The player is lost without a word, comes from another port, and is back in his game.
      pair.client.tcp:reset()
      pair.client.udp:close()
      local back = player.join(server)
      back.tcp:expect_match("^notice draining:%d+$")
      local again = player.relay(back, pair.host)
      player.exchange(again)
      -- A new host gets his ids and is told; nobody joins him.
      local late = player.join(server)
      late.tcp:expect_match("^notice draining:%d+$")
      back:send("connect-relay " .. late.oid)
      back.tcp:expect("error connect-relay:draining")
      back:send("connect?7 " .. late.oid)
      back.tcp:expect("!7 draining")
      late.tcp:expect_nothing_more()
      assert.is_false(is_ready(server))
      local health = server:get("/healthz")
      assert.equal(503, health.status)
      assert.is_truthy(health.body:find("^draining: %d+ s left\n?$"), health.body)
      assert.equal(1, server:metric("moonrelay_draining"))
      player.exchange(again)
      server:signal_with("sigterm")
      again.host.tcp:expect("error session:drained")
      again.host.tcp:expect_end()
      assert.is_truthy(ends(server):find("server: draining seconds=600 by=control", 1, true))
    end)
  end)

  it("an_unmodified_game_reads_what_it_is_told", function()
    with({}, function(server)
      local host = netfox.connect(server.command.ip, server.command.port)
      host:register(server.registrar.port)
      drain(server, '{"seconds": 90}')
      assert.same({ "notice", "draining:90" }, { host:command() })
      local client = netfox.connect(server.command.ip, server.command.port)
      client:register(server.registrar.port)
      assert.equal("notice", (client:command()))
      client:connect_relay(host.oid)
      local to_host = client:endpoint(client:command())
      local to_client = host:endpoint(host:command())
      assert.is_true(netfox.shake(client:handshake(to_host), host:handshake(to_client)))
      client:connect_relay(client.oid)
      assert.same({ "error", "connect-relay:draining" }, { client:command() })
      server:signal_with("sigterm")
      assert.same({ "error", "session:drained" }, { client:command() })
      ends(server)
    end)
  end)

  it("an_operator_drains_looks_and_takes_it_back", function()
    with({}, function(server)
      local host = player.join(server)
      assert.is_truthy(operator.fails(server, "drain", "--cancel"):find("there is no drain", 1, true))
      assert.equal("ok, draining for 10m00s at most\n", operator.does(server, "drain", "10m"))
      host.tcp:expect("notice draining:600")
      assert.is_truthy(operator.does(server, "status"):find("draining     9m%d%ds at most\n"))
      local status = operator.does(server, "status", "--json")
      assert.is_truthy(status:find('"draining": 59%d%.'), status)
      assert.is_truthy(status:find('"not_ready": "draining: %d+ s left"'), status)
      assert.equal("ok, no drain\n", operator.does(server, "drain", "--cancel"))
      host.tcp:expect("notice drain-cancelled")
      assert.is_true(is_ready(server))
      assert.is_truthy(operator.does(server, "status", "--json"):find('"draining": null', 1, true))
      -- Without a time it is half an hour.
      assert.is_truthy(operator.does(server, "drain", "--json"):find('"seconds_left": 1[78]%d%d%.?'))
      host.tcp:expect("notice draining:1800")
      for _, args in ipairs { { "drain", "soon" }, { "drain", "0s" }, { "drain", "5m", "--cancel" },
        { "drain", "5m", "6m" }, { "status", "--cancel" } } do
        local result = operator.run(server, unpack(args))
        assert.equal(2, result.code, table.concat(args, " "))
      end
      for _, body in ipairs { '{"seconds": 0}', '{"seconds": "5"}', '{"time": 5}', '{"cancel": 1}',
        '{"cancel": true, "seconds": 5}' } do
        assert.equal(400, drain(server, body).status, body)
      end
      host.tcp:expect_nothing_more()
      server:signal_with("sigterm")
      ends(server)
    end)
  end)

  it("it_ends_when_nobody_is_left", function()
    with({ set = { udp_relay_timeout = "1s" } }, function(server)
      local pair = player.pair(server)
      local late
      operator.does(server, "drain", "10m")
      late = player.join(server)
      pair.host.tcp:close()
      pair.client.tcp:close()
      -- Who came later does not keep it.
      loop.keep(late.tcp)
      assert.is_truthy(ends(server):find("server: drained why=\"nobody is left\"", 1, true))
      late.tcp:expect_match("^notice draining:%d+$")
      late.tcp:expect("error session:drained")
      late.tcp:expect_end()
      late.tcp:close()
    end)
  end)

  it("of_an_idle_daemon_answers_and_ends_it", function()
    for _ = 1, 5 do
      with({}, function(server)
        assert.is_truthy(operator.does(server, "drain", "1h"):find("^ok, draining for"))
        ends(server)
      end)
    end
  end)

  it("it_ends_at_its_time", function()
    with({}, function(server)
      local pair = player.pair(server)
      loop.keep(pair.host.tcp)
      assert.equal(200, drain(server, '{"seconds": 0.3}').status)
      assert.is_truthy(ends(server):find("server: drained why=\"the time is over\"", 1, true))
      pair.host.tcp:expect("notice draining:1")
      pair.host.tcp:expect("error session:drained")
      pair.host.tcp:expect_end()
      pair.host.tcp:close()
    end)
  end)

  it("term_lets_games_end_within_drain_timeout", function()
    with({ set = { drain_timeout = "300s" } }, function(server)
      local pair = player.pair(server)
      server:signal_with("sigterm")
      pair.host.tcp:expect("notice draining:300")
      player.exchange(pair)
      assert.is_false(is_ready(server))
      -- New connections are still taken, since players may come back; nobody takes the stop back.
      local back = player.join(server)
      back.tcp:expect_match("^notice draining:%d+$")
      player.exchange(player.relay(back, pair.host))
      assert.is_truthy(operator.fails(server, "drain", "--cancel"):find("it is stopping already", 1, true))
      assert.is_truthy(operator.fails(server, "drain", "1h"):find("it is stopping already", 1, true))
      server:signal_with("sigterm")
      ends(server)
    end)
    with({ set = { drain_timeout = "1s" } }, function(server)
      player.pair(server)
      server:signal_with("sigint")
      assert.is_truthy(ends(server):find("the time is over", 1, true))
    end)
    with({ set = { drain_timeout = "300s" } }, function(server)
      server:signal_with("sigterm") -- nobody is there
      ends(server)
    end)
  end)

  it("drain_timeout_changes_by_a_reload", function()
    with({ config = "return { settings = { drain_timeout = '0s' } }" }, function(server)
      local pair = player.pair(server)
      operator.write(server, "moonrelay.lua", "return { settings = { drain_timeout = '200s' } }")
      assert.is_truthy(operator.does(server, "reload"):find("changed: drain_timeout", 1, true))
      server:signal_with("sigterm")
      pair.host.tcp:expect("notice draining:200")
      server:signal_with("sigint")
      ends(server)
    end)
  end)

  it("usr1_drains_for_the_preset_time", function()
    with({ set = { drain_timeout = "90s" } }, function(server)
      local host = player.join(server)
      server:signal_with("sigusr1")
      host.tcp:expect("notice draining:90")
      -- It is no stop: it can be taken back.
      operator.does(server, "drain", "--cancel")
      host.tcp:expect("notice drain-cancelled")
      server:signal_with("sigusr1")
      host.tcp:expect("notice draining:90")
      host.tcp:close()
      assert.is_truthy(ends(server):find("by=USR1", 1, true))
    end)
  end)

  it("a_policys_command_drains", function()
    with({ config = "return { policies = { './maintenance.lua', 'dynamic' } }",
      files = { ["maintenance.lua"] = MAINTENANCE } }, function(server)
      local pair = player.pair(server)
      assert.equal("draining\n", operator.does(server, "call", "maintenance", "start", "30"))
      for _, p in ipairs { pair.host, pair.client } do
        p.tcp:expect("notice maintenance-in-30m")
        p.tcp:expect("notice draining:1800")
      end
      player.exchange(pair)
      assert.is_false(is_ready(server))
      operator.does(server, "call", "maintenance", "start", "0")
      pair.host.tcp:expect("notice maintenance-in-0m")
      pair.host.tcp:expect("notice draining:0")
      assert.is_truthy(ends(server):find("by=maintenance", 1, true))
    end)
  end)

  it("a_daemon_that_drains_closes_to_nobody_who_is_connected", function()
    with({}, function(server)
      local host = player.join(server)
      local idle = assert(tcp.connect(server.command.ip, server.command.port))
      operator.does(server, "drain", "10m")
      host.tcp:expect("notice draining:600")
      idle:send("echo still here\n")
      idle:expect("echo still here") -- and no notice before: it is no player
      server:signal_with("sigterm")
      ends(server)
    end)
  end)
end)
