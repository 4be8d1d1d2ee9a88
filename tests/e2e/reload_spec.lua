-- SPDX-License-Identifier: MIT
-- Reloading: new policies and settings while games run, and nothing at all when something is wrong.
--
-- What is held here, and by which test:
--   HUP reloads, running games go on                      hup_puts_a_changed_policy_in_use_under_traffic
--   an error keeps what was in use, and names file, line  what_is_wrong_changes_nothing_and_is_named
--   --check changes nothing                               a_check_changes_nothing
--   live settings are in force, the others are named      settings_change_as_far_as_they_can
--   ports are added                                       relay_ports_may_be_added
--   ports are taken away                                  the_status_names_the_relay_ports_that_stay
--   rollback                                              rollback_brings_back_policies_and_settings
--   requests wait for each other                          reloads_at_once_come_one_after_the_other
--   many requests without an answer are one               many_hangups_while_one_loads_are_one_more_reload
--   --watch                                               a_changed_file_is_put_in_use_by_watching
--   a stalled control thread is logged and counted        a_policy_that_keeps_the_control_thread_is_told
--   metrics                                               figures_tell_how_reloads_went
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local daemon = require "daemon"
local loop = require "loop"
local control = require "control"
local player = require "player"
local tcp = require "tcp"
local udp = require "udp"

local REFUSED = { "reload: refused" }

local function refusing(word)
  return 'return { register = function() return false, "' .. word .. '" end }\n'
end

local CONFIG = 'return { settings = { %s }, policies = { "./mine.lua", "dynamic" } }\n'

local function config(settings) return CONFIG:format(settings or "") end

local function write(server, name, text)
  local file = assert(io.open(server.dir .. "/" .. name, "wb"))
  assert(file:write(text))
  file:close()
end

-- What a new player is told.
local function answer(server)
  local client = tcp.connect(server.command.ip, server.command.port)
  client:send("register-host\n")
  local line = client:line()
  client:close()
  return line
end

local function with(opts, fn)
  opts.config = opts.config or config()
  opts.files = opts.files or { ["mine.lua"] = refusing("first") }
  opts.set = opts.set or {}
  opts.set.control = "control.sock"
  opts.control_pair = false
  daemon.with(opts, fn)
end

local function post(server, path, body)
  local client = control.connect(server)
  local response = client:request("POST", path, body or "{}", 30)
  client:close()
  return response
end

describe("a reload", function()
  after_each(loop.close_owned)

  it("hup_puts_a_changed_policy_in_use_under_traffic", function()
    with({ files = { ["mine.lua"] = "return { connect = function() end }\n" } }, function(server)
      local pair = player.pair(server)
      write(server, "mine.lua", refusing("second"))
      server:signal_with("sighup")
      server:await_log_match("reload: in use[^\n]*by=HUP generation=2")
      player.exchange(pair)
      assert.equal("error register-host:rejected:second", answer(server))
    end)
  end)

  it("what_is_wrong_changes_nothing_and_is_named", function()
    with({ allow_log = REFUSED }, function(server)
      for file, text in pairs {
        ["mine.lua"] = "return {\n  register = function(\n}",
        ["moonrelay.lua"] = 'return { settings = { pairing = "both" } }\n',
      } do
        local before = daemon.read(server.dir .. "/" .. file)
        write(server, file, text)
        local response = post(server, "/v1/reload")
        assert.equal(422, response.status, response.body)
        assert.is_truthy(response.body:find(file .. ":%d"), response.body)
        assert.equal("error register-host:rejected:first", answer(server))
        server:await_log_match("reload: refused[^\n]*" .. file:gsub("%.", "%%.") .. ":%d")
        write(server, file, before)
      end
      os.remove(server.dir .. "/moonrelay.lua")
      assert.equal(422, post(server, "/v1/reload").status)
      assert.equal("error register-host:rejected:first", answer(server))
    end)
  end)

  it("a_refused_reload_is_one_line_of_the_log_with_where_it_was_raised", function()
    with({ allow_log = REFUSED }, function(server)
      write(server, "mine.lua", "local function f() error('on purpose') end\nreturn { load = function() f() end }")
      assert.equal(422, post(server, "/v1/reload").status)
      server:await_log("on purpose")
      local lines = {}
      for line in server:stdout():gmatch("[^\n]+") do
        if line:find("on purpose", 1, true) then lines[#lines + 1] = line end
      end
      assert.equal(1, #lines, table.concat(lines, "\n"))
      assert.is_truthy(lines[1]:find("refused, what was in use goes on what=reload by=control", 1, true), lines[1])
      assert.is_truthy(lines[1]:find("in function 'f'", 1, true), lines[1])
    end)
  end)

  it("a_check_changes_nothing", function()
    with({ allow_log = REFUSED }, function(server)
      write(server, "mine.lua", refusing("second"))
      local response = post(server, "/v1/reload", '{"check": true}')
      assert.equal(200, response.status, response.body)
      assert.equal("error register-host:rejected:first", answer(server))
      write(server, "mine.lua", "return 7")
      assert.equal(422, post(server, "/v1/reload", '{"check": true}').status)
    end)
  end)

  it("settings_change_as_far_as_they_can", function()
    with({ config = config "errors = true" }, function(server)
      write(server, "moonrelay.lua", config 'errors = false, workers = "1"')
      local response = post(server, "/v1/reload")
      assert.equal(200, response.status, response.body)
      assert.is_truthy(response.body:find('"changed":["errors"]', 1, true), response.body)
      assert.is_truthy(response.body:find('"restart":["workers"]', 1, true), response.body)
      server:await_log_match("needs a restart key=workers")
      local client = tcp.connect(server.command.ip, server.command.port)
      client:send("register-host\necho there\n")
      assert.equal("echo there", client:line()) -- errors = off: not a word about the refusal
    end)
  end)

  it("relay_ports_may_be_added", function()
    with({ config = config 'udp_relay_ports = "0+3"', set = { udp_relay_ports = false },
      files = { ["mine.lua"] = "return {}" } }, function(server)
      assert.equal(4, #server.relay_ports)
      write(server, "moonrelay.lua", config 'udp_relay_ports = "0+7"')
      assert.equal(200, post(server, "/v1/reload").status)
      server:await_metric("moonrelay_ports", { state = "free" }, 8)
      server.base_fds = server:fds()
    end)
  end)

  it("ports_that_somebody_else_has_are_named_by_the_answer", function()
    with({ config = config 'udp_relay_ports = "0+3"', set = { udp_relay_ports = false },
      files = { ["mine.lua"] = "return {}" } }, function(server)
      local open, relay = udp.open("0.0.0.0", 0), udp.open("0.0.0.0", 0)
      write(server, "moonrelay.lua", ('return { settings = { udp_relay_ports = "0+3,%d" },\n  ports = { [%d] = { '
        .. 'target = "127.0.0.1:9000" } } }\n'):format(relay.port, open.port))
      local response = post(server, "/v1/reload")
      assert.equal(200, response.status, response.body)
      local warnings = response.body:match('"warnings":(%b[])')
      for _, words in ipairs {
        ("moonrelay.lua:2: ports[%d]: 0.0.0.0:%d/udp cannot be opened: "):format(open.port, open.port),
        ("udp_relay_ports: 0.0.0.0:%d/udp cannot be opened: "):format(relay.port),
      } do
        assert.is_truthy(warnings:find(words, 1, true), warnings)
      end
      local said = daemon.run { "reload", "--control", server.dir .. "/control.sock" }
      assert.equal(0, said.code, said.stderr)
      local line = ("\nwarning: [^\n]*moonrelay.lua:2: ports%%[%d%%]"):format(open.port)
      assert.is_truthy(said.stdout:find(line), said.stdout)
    end)
  end)

  it("the_status_names_the_relay_ports_that_stay", function()
    with({ config = config 'udp_relay_ports = "0+7"', set = { udp_relay_ports = false },
      files = { ["mine.lua"] = "return {}" } }, function(server)
      local ports = server.relay_ports
      table.sort(ports)
      write(server, "moonrelay.lua", config(('udp_relay_ports = "%d,%d"'):format(ports[1], ports[8])))
      assert.equal(200, post(server, "/v1/reload").status)
      server:await_metric("moonrelay_ports", { state = "free" }, 2)
      local client = control.connect(server)
      local text = client:request("GET", "/v1/status").body:match('"relay":"([^"]*)"')
      client:close()
      assert.equal(ports[1] .. "," .. ports[8], text)
      server.base_fds = server:fds()
    end)
  end)

  it("rollback_brings_back_policies_and_settings", function()
    with({ config = config "errors = true" }, function(server)
      assert.equal(404, post(server, "/v1/rollback").status)
      write(server, "mine.lua", refusing("second"))
      write(server, "moonrelay.lua", config "errors = false")
      assert.equal(200, post(server, "/v1/reload").status)
      os.remove(server.dir .. "/mine.lua") -- what was read then is kept
      local response = post(server, "/v1/rollback")
      assert.equal(200, response.status, response.body)
      assert.is_truthy(response.body:find('"changed":["errors"]', 1, true), response.body)
      assert.equal("error register-host:rejected:first", answer(server))
    end)
  end)

  it("reloads_at_once_come_one_after_the_other", function()
    with({}, function(server)
      local clients = {}
      for i = 1, 8 do
        clients[i] = control.connect(server)
        clients[i]:send("POST", "/v1/reload", "{}")
      end
      local seen = {}
      for i = 1, 8 do
        local response
        loop.wait(function()
          response = clients[i]:take()
          return response
        end, "an answer")
        assert.equal(200, response.status, response.body)
        seen[response.body:match('"generation":(%d+)')] = true
      end
      for generation = 2, 9 do assert.is_true(seen[tostring(generation)], "no generation " .. generation) end
    end)
  end)

  it("many_hangups_while_one_loads_are_one_more_reload", function()
    local slow = 'local relay = require "relay"\nreturn { load = function() relay.sleep(0.5) end }'
    with({ files = { ["mine.lua"] = slow } }, function(server)
      for _ = 1, 50 do
        server:signal_with("sighup")
        loop.turn()
      end
      server:await_metric_at_least("moonrelay_reloads_total", { result = "ok" }, 1)
      assert.equal(200, post(server, "/v1/reload").status) -- comes after those that wait
      local n = server:metric("moonrelay_reloads_total", { result = "ok" })
      assert.is_true(n >= 2 and n <= 12, n .. " reloads")
    end)
  end)

  it("a_changed_file_is_put_in_use_by_watching", function()
    with({ args = { "--watch" }, allow_log = REFUSED }, function(server)
      write(server, "mine.lua", "return {")
      server:await_log_match("reload: refused[^\n]*by=watch")
      assert.equal("error register-host:rejected:first", answer(server))
      write(server, "mine.new", refusing("second")) -- as editors do
      assert(os.rename(server.dir .. "/mine.new", server.dir .. "/mine.lua"))
      server:await_log_match("reload: in use[^\n]*by=watch")
      assert.equal("error register-host:rejected:second", answer(server))
      write(server, "other.lua", refusing("third"))
      write(server, "moonrelay.lua", 'return { policies = { "./other.lua" } }')
      loop.wait(function() return answer(server) == "error register-host:rejected:third" end, "the new config")
    end)
  end)

  it("a_policy_that_keeps_the_control_thread_is_told", function()
    local busy = "return { load = function() local n = relay.now() + 1.5; while relay.now() < n do end end }"
    with({ config = config 'script_load_cpu = "5s"' }, function(server)
      server:await_metric("moonrelay_control_stalls_total", {}, 0)
      write(server, "mine.lua", 'local relay = require "relay"\n' .. busy)
      assert.equal(200, post(server, "/v1/reload").status)
      server:await_metric_at_least("moonrelay_control_stalls_total", {}, 1)
      server:await_log_match("the control thread goes on after a stall seconds=%d")
    end)
  end)

  it("figures_tell_how_reloads_went", function()
    with({ allow_log = REFUSED }, function(server)
      server:await_metric("moonrelay_config_generation", {}, 1)
      server:await_metric("moonrelay_config_last_reload_successful", {}, 1)
      write(server, "mine.lua", "return {")
      assert.equal(422, post(server, "/v1/reload").status)
      server:await_metric("moonrelay_reloads_total", { result = "failed" }, 1)
      server:await_metric("moonrelay_config_last_reload_successful", {}, 0)
      server:await_metric("moonrelay_config_generation", {}, 1)
      write(server, "mine.lua", refusing("second"))
      assert.equal(200, post(server, "/v1/reload").status)
      server:await_metric("moonrelay_reloads_total", { result = "ok" }, 1)
      server:await_metric("moonrelay_config_last_reload_successful", {}, 1)
      server:await_metric("moonrelay_config_generation", {}, 2)
    end)
  end)
end)
