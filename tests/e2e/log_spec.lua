-- SPDX-License-Identifier: MIT
-- The log: one record a line, no secret, no control character, and never in the way.
--
-- What is held here, and by which test:
--   json: one object a line                               a_json_log_is_one_object_a_line
--   control characters are escaped                        control_characters_are_escaped
--   a PID appears at no level                             a_pid_is_in_no_log_at_any_level
--   levels                                                a_level_keeps_out_what_is_below_it
--   addresses as they are, by net, or not at all          addresses_are_logged_as_asked
--   a full pipe stops nothing                             a_full_pipe_stops_nothing
--   ... dropped lines are counted                         (a_full_pipe_stops_nothing)
--   a closed pipe                                         a_closed_pipe_ends_nothing
--   a full disk                                           a_full_disk_stops_nothing
--   rate limited                                          (a flood in a_pid_is_in_no_log_at_any_level stays small)
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local ffi = require "ffi"
local uv = require "luv"
local dkjson = require "dkjson"
local daemon = require "daemon"
local http = require "http"
local loop = require "loop"
local player = require "player"
local tcp = require "tcp"
local udp = require "udp"

ffi.cdef [[
int pipe(int fds[2]);
long read(int fd, void *buffer, size_t size);
int fcntl(int fd, int command, ...);
]]

local F_SETFL, O_NONBLOCK, F_SETFD, FD_CLOEXEC = 4, 2048, 2, 1

describe("the log", function()
  after_each(loop.close_owned)

  -- Everything a log might have to say something about.
  local function make_noise(server)
    local pair = player.pair(server)
    player.exchange(pair)
    local client = assert(tcp.connect(server.command.ip, server.command.port))
    client:send("unknown\nconnect nope\nregister-host\nconnect nope\n")
    client:send("\27[31mred\27[0m x\nconnect \27]0;t\7\nec\0ho\n\r\r\n")
    client:lines(5)
    client:send_all(string.rep("x", 20000) .. "\n")
    client:expect("error line:too-long")
    local junk = udp.open("127.66.30.1")
    for _, data in ipairs { "", "x", string.rep("y", 128), pair.host.pid .. "\n", pair.host.pid:sub(1, 127) } do
      junk:send(data, server.registrar.ip, server.registrar.port)
      for _, port in ipairs(server.relay_ports) do junk:send(data, pair.ip, port) end
    end
    pair.host.udp = udp.open("127.0.0.71")
    pair.host:register()
    player.exchange(pair)
    pair.host.tcp:reset()
    server:get("/nothing")
    return pair
  end

  local function lines(text)
    return text:gmatch("([^\n]*)\n")
  end

  it("a_json_log_is_one_object_a_line", function()
    local log = daemon.with({ set = { log_format = "json", loglevel = "trace" } }, make_noise)
    local n, ready = 0, 0
    for line in lines(log) do
      local record, at, err = dkjson.decode(line)
      assert.is_table(record, (err or "") .. " in " .. line)
      assert.equal(#line + 1, at)
      assert.is_string(record.level)
      assert.is_string(record.msg)
      if record.msg:find("ready", 1, true) then ready = ready + 1 end
      n = n + 1
    end
    assert.is_true(n > 5)
    assert.is_true(ready >= 1)
    assert.equal("\n", log:sub(-1))
  end)

  it("control_characters_are_escaped", function()
    for _, format in ipairs { "text", "json" } do
      local log = daemon.with({ set = { log_format = format, loglevel = "trace" },
        files = { ["noisy.lua"] = [[
          local relay = require "relay"
          return { connect = function(ev)
            relay.log.info("asked\nfor \27[31m" .. ev.oid, { oid = ev.oid, ["two"] = "a\tb\nc" })
          end }]] }, policies = { "./noisy.lua" } }, function(server)
        make_noise(server)
        server:await_log("asked")
      end)
      local byte = log:find("[%z\1-\9\11-\31\127]")
      assert.is_nil(byte, byte and string.format("byte %d in %q", log:byte(byte), log:sub(byte - 40, byte + 10)))
      for line in lines(log) do assert.is_truthy(line ~= "") end
    end
  end)

  it("a_pid_is_in_no_log_at_any_level", function()
    for _, set in ipairs { { loglevel = "trace" }, { loglevel = "trace", log_format = "json" } } do
      local pair
      local log = daemon.with({ set = set }, function(server)
        pair = make_noise(server)
        local junk = udp.open("127.0.0.72")
        for _ = 1, 200 do junk:send(pair.client.pid .. "!", server.registrar.ip, server.registrar.port) end
        pair.client:send("connect " .. pair.client.pid)
        pair.client.tcp:expect("error connect:unknown-oid")
        pair.client:send("echo " .. pair.client.pid)
        pair.client.tcp:expect("echo " .. pair.client.pid)
        pair.client:send(pair.client.pid .. " x")
        pair.client.tcp:expect_nothing_more()
        assert.is_nil(server:get("/metrics").body:find(pair.client.pid:sub(1, 20), 1, true))
      end)
      for _, one in ipairs { pair.host, pair.client } do
        for at = 1, 128 - 20, 12 do
          local there = log:find(one.pid:sub(at, at + 19), 1, true)
          assert.is_nil(there, there and "a PID in the log: " .. log:sub(math.max(1, there - 100), there + 20))
        end
      end
      assert.is_true(#log < 1024 * 1024)
    end
  end)

  it("a_level_keeps_out_what_is_below_it", function()
    local sizes = {}
    for _, level in ipairs { "error", "info", "trace" } do
      local log = daemon.with({ set = { loglevel = level } }, make_noise)
      assert.is_truthy(log:find("ready command=", 1, true))
      sizes[#sizes + 1] = #log
    end
    assert.is_true(sizes[1] < sizes[2] and sizes[2] < sizes[3], table.concat(sizes, " "))
  end)

  it("addresses_are_logged_as_asked", function()
    local function run(how)
      return daemon.with({ set = { loglevel = "trace", log_addresses = how, socket_host = "127.0.0.1" },
        control_pair = false }, function(server)
        local one = player.join(server, { tcp_ip = "127.20.30.41", udp_ip = "127.20.30.42" })
        local two = player.join(server, { tcp_ip = "127.20.30.43", udp_ip = "127.20.30.44" })
        player.exchange(player.relay(one, two))
        one:leave()
        server:await_metric("noray_active_hosts", {}, 1)
      end)
    end
    assert.is_truthy(run("full"):find("127%.20%.30%.4[1-4]"))
    -- The net of a v4 address is the address; the port is what tells players behind it apart.
    assert.is_nil(run("net"):find("127%.20%.30%.4[1-4]:%d"))
    assert.is_nil(run("none"):find("127.20", 1, true))
  end)

  local TALKATIVE = [[
    local relay = require "relay"
    return { register = function(ev)
      if ev.meta.quiet then return end
      for i = 1, 100 do relay.log.info(("talk "):rep(100)) end
      return false, "heard"
    end }]]

  -- A daemon whose log goes to a pipe. fn(server, read, close): read() takes what is there.
  local function with_pipe(set, fn)
    local fds = ffi.new("int[2]")
    assert(ffi.C.pipe(fds) == 0)
    local reader, writer = fds[0], fds[1]
    ffi.C.fcntl(reader, F_SETFL, ffi.cast("int", O_NONBLOCK))
    ffi.C.fcntl(reader, F_SETFD, ffi.cast("int", FD_CLOEXEC))
    ffi.C.fcntl(writer, F_SETFD, ffi.cast("int", FD_CLOEXEC))
    loop.keep { handle = { is_closing = function() return reader == nil and writer == nil end } }
    local buffer, text = ffi.new("char[4096]"), ""
    local function read()
      local n = tonumber(ffi.C.read(reader, buffer, 4096))
      while n > 0 do
        text = text .. ffi.string(buffer, n)
        n = tonumber(ffi.C.read(reader, buffer, 4096))
      end
      return text
    end
    local function close()
      if reader then uv.fs_close(reader) end
      reader = nil
    end
    set.script_cpu = "5s" -- a sanitizer makes each line of its log dear
    local opts = { set = set, stdout_fd = writer, read_ready = read, files = { ["talkative.lua"] = TALKATIVE },
      policies = { "./talkative.lua" }, control_pair = false }
    local ok, err = pcall(daemon.with, opts, function(server)
      uv.fs_close(writer)
      writer = nil
      fn(server, read, close)
    end)
    close()
    if writer then uv.fs_close(writer) end
    if not ok then error(err, 0) end
  end

  local function flood(server)
    local client = assert(tcp.connect(server.command.ip, server.command.port))
    for _ = 1, 20 do
      client:send("register-host\n")
      client:expect("error register-host:rejected:heard")
    end
    client:close()
  end

  it("a_full_pipe_stops_nothing", function()
    with_pipe({ loglevel = "trace" }, function(server)
      local pair = player.pair(server, { words = "quiet=yes" })
      player.exchange(pair)
      loop.wait(function()
        flood(server)
        return server:metric("moonrelay_log_dropped_total") > 0
      end, "that the log drops lines")
      -- It still answers, on every channel, and relays.
      player.exchange(pair)
      local client = assert(tcp.connect(server.command.ip, server.command.port))
      client:send("echo x\n")
      client:expect("echo x")
      udp.open("127.66.31.1"):send(string.rep("x", 128), server.registrar.ip, server.registrar.port)
      server:await_metric("moonrelay_registrar_total", { result = "unknown" }, 1)
    end)
  end)

  it("a_full_disk_stops_nothing", function()
    local full = assert(uv.fs_open("/dev/full", "w", 0))
    local ports = {}
    for i = 1, 7 do ports[i] = udp.free_port() end
    local at = "127.0.0.1:%d"
    local set = { loglevel = "trace", socket_port = ports[1], udp_registrar_port = ports[2], http_port = ports[3],
      udp_relay_ports = table.concat(ports, ",", 4), script_cpu = "5s" }
    -- Nobody can read where it listens.
    local function read_ready()
      local is_up, answer = pcall(http.get, "127.0.0.1", ports[3], "/readyz")
      if not is_up or answer.status ~= 200 then return "" end
      return ("ready command=%s registrar=%s http=%s relay=%s\n"):format(at:format(ports[1]), at:format(ports[2]),
        at:format(ports[3]), set.udp_relay_ports)
    end
    local ok, err = pcall(daemon.with, { set = set, stdout_fd = full, read_ready = read_ready, control_pair = false,
    }, function(server)
      uv.fs_close(full)
      full = nil
      local pair = player.pair(server)
      player.exchange(pair)
      for _ = 1, 20 do player.join(server):leave() end
      player.exchange(pair)
      assert.is_true(server:metric("moonrelay_log_dropped_total") > 0)
    end)
    if full then uv.fs_close(full) end
    if not ok then error(err, 0) end
  end)

  it("a_closed_pipe_ends_nothing", function()
    with_pipe({ loglevel = "trace" }, function(server, _, close)
      close()
      flood(server)
      flood(server)
    end)
  end)
end)
