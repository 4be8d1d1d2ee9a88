-- SPDX-License-Identifier: MIT
-- A daemon that root starts and that serves as somebody else. Only root can try; others get a `pending`.
--
-- What is held here, and by which test:
--   low ports are bound, nothing of root is left in any thread   it_binds_low_ports_and_keeps_nothing_of_root
--   what policies read is read as the user                       policies_load_with_the_rights_of_the_user
--   the control socket is his, and goes at the end               it_binds_low_ports_and_keeps_nothing_of_root
--   a reload cannot bind low ports and says so                   a_reload_leaves_out_low_ports_and_says_so
--   a config that he cannot read                                 a_config_he_cannot_read_is_warned_of
--   unknown users, root, not started by root                     a_user_that_cannot_be_become_stops_the_start
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local uv = require "luv"
local control = require "control"
local daemon = require "daemon"
local loop = require "loop"
local operator = require "operator"
local player = require "player"

local NAME = "nobody"

-- Numbers of the user, who need not be in a file.
local uid, gid
do
  local entry = assert(io.popen("getent passwd " .. NAME))
  local u, g = entry:read("*a"):match("^" .. NAME .. ":[^:]*:(%d+):(%d+):")
  entry:close()
  uid, gid = tonumber(u), tonumber(g)
end

local function run_as_root(name, fn)
  it(name, function()
    if uv.getuid() ~= 0 or not uid then return pending("only root can become " .. NAME) end
    fn()
  end)
end

-- A process that has changed its user cannot be traced, so leaks are not looked for at its end.
local ENV = { ASAN_OPTIONS = "detect_leaks=0:abort_on_error=0:exitcode=99" }

-- Ports below 1024 that nobody has.
local function low_ports(n)
  local list = {}
  for port = 1023, 513, -1 do
    local tcp, udp = uv.new_tcp(), uv.new_udp()
    local is_free = tcp:bind("0.0.0.0", port) == 0 and tcp:listen(1, function() end) == 0
      and udp:bind("0.0.0.0", port) == 0
    tcp:close()
    udp:close()
    loop.turn()
    if is_free then list[#list + 1] = port end
    if #list == n then return list end
  end
  error("no low ports are free")
end

local function options(opts)
  opts = operator.options(opts)
  opts.set.user, opts.env, opts.owner = NAME, ENV, { uid, gid }
  return opts
end

local function threads(server)
  local list = {}
  local scan = uv.fs_scandir("/proc/" .. server.pid .. "/task")
  while scan do
    local tid = uv.fs_scandir_next(scan)
    if not tid then break end
    list[#list + 1] = daemon.read("/proc/" .. server.pid .. "/task/" .. tid .. "/status")
  end
  return list
end

describe("a daemon of another user", function()
  after_each(loop.close_owned)

  run_as_root("it_binds_low_ports_and_keeps_nothing_of_root", function()
    local low = low_ports(4)
    local path
    daemon.with(options { groups = "0,4", set = { socket_port = tostring(low[1]), udp_registrar_port = tostring(low[2]),
      http_port = tostring(low[3]), udp_relay_ports = "0+15," .. low[4], workers = "3" } }, function(server)
      assert.equal(low[1], server.command.port)
      assert.equal(17, #server.relay_ports)
      player.exchange(player.pair(server))
      local list = threads(server)
      assert.is_true(#list >= 5, "threads: " .. #list) -- control, workers, log
      local ids = ("\t%d\t%d\t%d\t%d\n"):format(uid, uid, uid, uid)
      local gids = ("\t%d\t%d\t%d\t%d\n"):format(gid, gid, gid, gid)
      for _, status in ipairs(list) do
        assert.is_truthy(status:find("Uid:" .. ids, 1, true), status)
        assert.is_truthy(status:find("Gid:" .. gids, 1, true), status)
        assert.is_nil(status:match("Groups:([^\n]*)"):find("%f[%d]0%f[%D]"), status)
        assert.equal("0000000000000000", status:match("CapPrm:%s*(%x+)"))
        assert.equal("0000000000000000", status:match("CapEff:%s*(%x+)"))
        assert.equal("1", status:match("NoNewPrivs:%s*(%d)"))
      end
      path = server.dir .. "/control.sock"
      local stat = uv.fs_stat(path)
      assert.same({ uid, gid, tonumber("600", 8) }, { stat.uid, stat.gid, stat.mode % 512 })
      assert.is_truthy(server:stdout():find("running as another user user=" .. NAME, 1, true))
      server:signal_with("sigterm")
      server:reap(20, "a daemon that was told to end")
      assert.equal(0, server.code)
      assert.is_nil((uv.fs_stat(path)))
    end)
  end)

  run_as_root("the_folder_of_its_control_socket_is_made_for_it", function()
    local opts = options { set = {} }
    opts.owner, opts.mode = nil, tonumber("755", 8) -- root's: he could not make a folder in it
    opts.set.control = "run/control.sock"
    daemon.with(opts, function(server)
      local stat = uv.fs_stat(server.dir .. "/run")
      assert.same({ uid, gid, tonumber("700", 8) }, { stat.uid, stat.gid, stat.mode % 512 })
      local c = control.connect(server)
      assert.equal(200, c:request("GET", "/v1/status").status)
      c:close()
    end)
  end)

  run_as_root("policies_load_with_the_rights_of_the_user", function()
    daemon.with(options { config = "return { policies = { './reads.lua', 'dynamic' } }", files = { ["reads.lua"] = [[
      local relay = require "relay"
      return { load = function()
        for _, path in ipairs { "mine.txt", "roots.txt" } do
          local text, _, code = relay.read(path)
          relay.log.info("read", { path = path, text = text or "", code = code or "" })
        end
      end }]], ["mine.txt"] = "his", ["roots.txt"] = "roots" }, private = { "roots.txt" } }, function(server)
      assert.is_truthy(server:stdout():find('path=mine.txt text=his', 1, true) or
        server:stdout():find('text=his', 1, true), server:tail())
      assert.is_truthy(server:stdout():find('code=denied', 1, true), server:tail())
      assert.is_nil(server:stdout():find('text=roots', 1, true))
    end)
  end)

  run_as_root("a_reload_leaves_out_low_ports_and_says_so", function()
    local low = low_ports(1)[1]
    daemon.with(options { config = "return { settings = { udp_relay_ports = '0+15' } }",
      set = { udp_relay_ports = false }, allow_stderr = true }, function(server)
      operator.write(server, "moonrelay.lua", "return { settings = { udp_relay_ports = '0+15," .. low .. "' } }")
      assert.is_truthy(operator.does(server, "reload"):find("changed: udp_relay_ports", 1, true))
      server:await_log_match("relay ports cannot be opened ports=1 first=0.0.0.0:" .. low .. '[^\n]*Permission denied')
    end)
  end)

  run_as_root("a_config_he_cannot_read_is_warned_of", function()
    daemon.with(options { config = "return {}", private = { "moonrelay.lua" }, allow_stderr = true,
      allow_log = { "reload: refused" } }, function(server)
      assert.is_truthy(server:stdout():find("user nobody cannot read the config file", 1, true), server:tail())
      local said = operator.fails(server, "reload")
      assert.is_truthy(said:find("moonrelay.lua", 1, true), said)
    end)
  end)

  it("a_user_that_cannot_be_become_stops_the_start", function()
    local function refused(user)
      local result = daemon.run({ "check", "--set", "user=" .. user })
      assert.equal(2, result.code)
      return result.stderr
    end
    assert.is_truthy(refused("no-such-user"):find('user = "no-such-user": there is no such user', 1, true))
    assert.is_truthy(refused("root"):find('user = "root": this is root', 1, true))
  end)

  run_as_root("only_root_becomes_another_user_and_nobody_needs_root_to_stay_himself", function()
    local function run(as)
      return daemon.run({ "--reuid", tostring(as), "--regid", tostring(gid), "--clear-groups", daemon.program(),
        "check", "--set", "user=" .. NAME }, { program = uv.fs_realpath("/usr/bin/setpriv"), cwd = "/", env = ENV })
    end
    local other = run(uid - 1)
    if other.code == 127 or other.code == 126 then return pending(NAME .. " cannot reach the program") end
    assert.equal(2, other.code, other.stderr)
    assert.is_truthy(other.stderr:find('user = "nobody": only root can become another user', 1, true), other.stderr)
    local himself = run(uid)
    assert.equal(0, himself.code, himself.stderr)
  end)
end)
