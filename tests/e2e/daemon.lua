-- SPDX-License-Identifier: MIT
-- The real daemon as a child process. daemon.start brings it up on ports of the kernel's choice and waits
-- for its ready line; daemon:after_case is what must hold after whatever a test did to it; daemon:stop
-- ends it by TERM and looks at what it left. daemon.run is for commands that end by themselves. The
-- program is $MOONRELAY_BIN, else the dev build's. Start reading at daemon.start.
local uv = require "luv"
local http = require "http"
local loop = require "loop"
local player = require "player"
local prometheus = require "prometheus"

local Daemon = {}
Daemon.__index = Daemon

local daemon = {}

--- For udp_host: an address of loopback that is this process's own. On another one a port of the daemon's may have
--- been somebody's before, and what is still sent there would be counted.
daemon.HOST = ("127.70.%d.%d"):format(128 + uv.os_getpid() % 64, 1 + uv.os_getpid() % 250)

-- Ends of a process that is asked to end; a sanitizer's exit takes its time.
local STOP_S = 20
-- A start binds every port of its range.
local START_S = 30
-- An HTTP connection that was left half-way is closed after 10 s.
local FDS_S = 20
-- Memory that was given back is used again soon, so that growth of the process is growth of what is in use.
local SANITIZERS = {
  ASAN_OPTIONS = "quarantine_size_mb=1:detect_leaks=1:abort_on_error=0:exitcode=99",
  UBSAN_OPTIONS = "print_stacktrace=1:halt_on_error=1:exitcode=99",
  TSAN_OPTIONS = "exitcode=99:halt_on_error=0:second_deadlock_stack=1",
}

local REPORTS = { "ERROR: %a+Sanitizer", "WARNING: %a+Sanitizer", "runtime error:", "SUMMARY: %a+Sanitizer",
  "Assertion .* failed", "assertion failed" }

local here = debug.getinfo(1, "S").source:match("^@(.*)/[^/]*$") or "."

-- A file's text, "" when there is none.
local function read_file(path)
  local file = io.open(path, "rb")
  if not file then return "" end
  local text = file:read("*a")
  file:close()
  return text
end

local function write_file(path, text)
  local file = assert(io.open(path, "wb"))
  assert(file:write(text))
  file:close()
end

--- The program under test.
function daemon.program()
  local bin = os.getenv("MOONRELAY_BIN") or (here .. "/../../build/dev/moonrelay")
  local path = uv.fs_realpath(bin)
  if not path then error("no daemon at " .. bin .. " (set MOONRELAY_BIN)", 2) end
  return path
end

local function remove_tree(path)
  local scan = uv.fs_scandir(path)
  while scan do
    local name, kind = uv.fs_scandir_next(scan)
    if not name then break end
    if kind == "directory" then remove_tree(path .. "/" .. name) else uv.fs_unlink(path .. "/" .. name) end
  end
  uv.fs_rmdir(path)
end

-- The environment of a child: nothing of ours but what finds programs, so that a developer's settings
-- change no test.
local function environment(extra)
  local env, list = {}, {}
  for _, name in ipairs { "PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH" } do env[name] = os.getenv(name) end
  for name, value in pairs(SANITIZERS) do
    local outer = os.getenv(name)
    env[name] = outer and outer .. ":" .. value or value
  end
  for name, value in pairs(extra or {}) do env[name] = value end
  for name, value in pairs(env) do list[#list + 1] = name .. "=" .. value end
  return list
end

--- Makes a directory with the given files: { ["moonrelay.lua"] = text }. The caller removes it with
--- daemon.remove.
function daemon.directory(files)
  local dir = assert(uv.fs_mkdtemp((os.getenv("TMPDIR") or "/tmp") .. "/moonrelay-e2e-XXXXXX"))
  for name, text in pairs(files or {}) do
    local sub = name:match("^(.*)/[^/]+$")
    if sub then uv.fs_mkdir(dir .. "/" .. sub, 493) end
    write_file(dir .. "/" .. name, text)
  end
  return dir
end

daemon.remove = remove_tree
daemon.read = read_file

local function count_entries(path)
  local n, scan = 0, uv.fs_scandir(path)
  while scan and uv.fs_scandir_next(scan) do n = n + 1 end
  return n
end

-- The loop's own descriptors exist once something was spawned and a stream was made.
do
  local ended
  uv.new_tcp():close()
  local handle = assert(uv.spawn("true", {}, function() ended = true end))
  loop.wait(function() return ended end, "the end of true")
  handle:close()
  loop.turn()
end
local own_fds, running = count_entries("/proc/self/fd"), 0

-- What a test leaves behind in this process is a failure of the test.
local function check_self()
  if running > 0 or loop.kept_open() > 0 then return end
  local fds = count_entries("/proc/self/fd")
  if fds > own_fds then error("the test has left " .. fds - own_fds .. " descriptors open", 0) end
  local pid = uv.os_getpid()
  local children = read_file("/proc/" .. pid .. "/task/" .. pid .. "/children")
  if children:find("%d") then error("the test has left children: " .. children, 0) end
  local handles = loop.handles()
  if handles > 0 then error("the test has left " .. handles .. " handles open", 0) end
end

-- Starts the program with its output in two files. The child dies with us, also when we are killed.
local function spawn(args, opts)
  local self = setmetatable({ dir = opts.dir }, Daemon)
  self.stdout_path, self.stderr_path = self.dir .. "/stdout", self.dir .. "/stderr"
  local out = opts.stdout_fd or assert(uv.fs_open(self.stdout_path, "w", 420))
  local err = assert(uv.fs_open(self.stderr_path, "w", 420))
  local argv = { "--pdeathsig", "KILL" }
  if opts.groups then
    argv[#argv + 1] = "--groups"
    argv[#argv + 1] = opts.groups
  end
  if opts.as then
    for _, arg in ipairs { "--reuid", opts.as[1], "--regid", opts.as[2], "--clear-groups" } do
      argv[#argv + 1] = tostring(arg)
    end
  end
  if opts.limit_files then
    for _, arg in ipairs { "/bin/sh", "-c", "ulimit -n " .. opts.limit_files .. ' && exec "$0" "$@"' } do
      argv[#argv + 1] = arg
    end
  end
  if opts.preload then -- of the daemon alone; a sanitizer's library must be the first one
    local own = read_file(daemon.program():match("^(.*)/[^/]*$") .. "/preload"):match("%S+")
    argv[#argv + 1] = "env"
    argv[#argv + 1] = "LD_PRELOAD=" .. (own and own .. ":" or "") .. opts.preload
  end
  argv[#argv + 1] = opts.program or daemon.program()
  for _, arg in ipairs(args) do argv[#argv + 1] = arg end
  local pid
  self.handle, pid = uv.spawn("setpriv", { args = argv, stdio = { nil, out, err }, cwd = opts.cwd or self.dir,
    env = environment(opts.env) }, function(code, signal) self.code, self.signal = code, signal end)
  if not opts.stdout_fd then uv.fs_close(out) end
  uv.fs_close(err)
  if not self.handle then error("cannot start the daemon: " .. tostring(pid), 3) end
  self.pid = pid
  running = running + 1
  return self
end

function Daemon:stdout() return read_file(self.stdout_path) end
function Daemon:stderr() return read_file(self.stderr_path) end

function Daemon:is_running() return self.code == nil end

function Daemon:reap(seconds, what)
  local ended = loop.try(function() return self.code ~= nil end, seconds)
  if not ended then
    uv.process_kill(self.handle, "sigkill")
    loop.wait(function() return self.code ~= nil end, "the end of a killed process", STOP_S)
  end
  if not self.handle:is_closing() then
    self.handle:close()
    running = running - 1
  end
  loop.turn()
  if not ended then error(what .. ": still there after " .. seconds .. " s\n" .. self:tail(), 3) end
end

function Daemon:tail()
  return "-- stdout\n" .. self:stdout():sub(-3000) .. "\n-- stderr\n" .. self:stderr():sub(-3000)
end

--- Runs a command to its end and returns { code, signal, stdout, stderr }. `opts.files` are written into
--- its working directory; `opts.env` is added to its environment.
function daemon.run(args, opts)
  opts = opts or {}
  local dir = daemon.directory(opts.files)
  local self = spawn(args, { dir = dir, env = opts.env, program = opts.program, cwd = opts.cwd,
    limit_files = opts.limit_files, preload = opts.preload })
  local ok, err = pcall(self.reap, self, opts.seconds or START_S, "moonrelay " .. table.concat(args, " "))
  local result = { code = self.code, signal = self.signal, stdout = self:stdout(), stderr = self:stderr(), dir = dir }
  remove_tree(dir)
  if not ok then error(err, 2) end
  for _, report in ipairs(REPORTS) do
    if result.stderr:find(report) or result.stdout:find(report) then error(result.stdout .. result.stderr, 2) end
  end
  return result
end

-- "127.0.0.1:4000" or "[::1]:4000"
local function parse_address(text)
  local ip, port = text:match("^%[?([%x%.:]-)%]?:(%d+)$")
  if not ip then error("the ready line has an address that is none: " .. text, 0) end
  return { ip = ip, port = tonumber(port), text = text }
end

-- Where a client goes to reach a listener.
local function reachable(address)
  if address.ip == "0.0.0.0" or address.ip == "::" then address.ip = "127.0.0.1" end
  return address
end

-- "40000-40007,40010", perhaps after an address.
local function parse_ports(text)
  local ports = {}
  text = text:gsub("^%[.-%]:", ""):gsub("^%d+%.%d+%.%d+%.%d+:", "")
  for part in text:gmatch("[^,%s]+") do
    local first, last = part:match("^(%d+)%-?(%d*)$")
    if not first then error("the ready line has relay ports that are none: " .. text, 0) end
    for port = tonumber(first), tonumber(last) or tonumber(first) do ports[#ports + 1] = port end
  end
  return ports
end

-- "0.0.0.0:7777,0.0.0.0:7778": the numbers.
local function parse_open(text)
  local ports = {}
  for address in text:gmatch("[^,]+") do ports[#ports + 1] = parse_address(address).port end
  return ports
end

local function parse_ready(text)
  local command, registrar, web, relay = text:match(
    "ready command=([^%s\"]+) registrar=([^%s\"]+) http=([^%s\"]+) relay=([^%s\"]+)[^\n]*\n")
  if not command then -- the same as a record of a log in JSON
    command, registrar, web, relay = text:match(
      '"msg":"ready","command":"([^"]+)","registrar":"([^"]+)","http":"([^"]+)","relay":"([^"]+)"')
  end
  if not command then return nil end
  return { command = reachable(parse_address(command)), registrar = reachable(parse_address(registrar)),
    http = reachable(parse_address(web)), relay_ports = parse_ports(relay), relay_text = relay,
    open_ports = parse_open(text:match("ready [^\n]* open=([^%s\"]+)") or "") }
end

local DEFAULTS = { socket_port = "0", http_port = "0", udp_registrar_port = "0", udp_relay_ports = "0+63",
  udp_relay_timeout = "6s", control = "" }

local function arguments(opts, dir)
  local args = { "serve" }
  if opts.config then
    write_file(dir .. "/moonrelay.lua", opts.config)
    args[#args + 1] = "--config"
    args[#args + 1] = dir .. "/moonrelay.lua"
  end
  for _, policy in ipairs(opts.policies or {}) do
    args[#args + 1] = "--policy"
    args[#args + 1] = policy
  end
  local set = {}
  for key, value in pairs(DEFAULTS) do set[key] = value end
  for key, value in pairs(opts.set or {}) do set[key] = value end
  for key, value in pairs(set) do
    if value ~= false then
      args[#args + 1] = "--set"
      args[#args + 1] = key .. "=" .. value
    end
  end
  for _, arg in ipairs(opts.args or {}) do args[#args + 1] = arg end
  return args
end

-- The folder and what is in it, but not what is root's private matter.
local function give_away(dir, opts)
  if opts.mode then assert(uv.fs_chmod(dir, opts.mode)) end
  if not opts.owner then return end
  local scan = uv.fs_scandir(dir)
  while scan do
    local name = uv.fs_scandir_next(scan)
    if not name then break end
    assert(uv.fs_chown(dir .. "/" .. name, opts.owner[1], opts.owner[2]))
  end
  assert(uv.fs_chown(dir, opts.owner[1], opts.owner[2]))
  for _, name in ipairs(opts.private or {}) do
    assert(uv.fs_chown(dir .. "/" .. name, 0, 0))
    assert(uv.fs_chmod(dir .. "/" .. name, tonumber("600", 8)))
  end
end

--- Starts the daemon and waits until it is ready. `opts.set` are settings ({ key = value }, false: leave
--- it out), `opts.config` is the text of a config file, `opts.files` further files beside it,
--- `opts.policies` go to --policy, `opts.control_pair = false` opens none (for tests that count),
--- `opts.preload` is a library for the daemon (see resolver.lua), `opts.quiet` is for a level that prints no
--- ready line, `opts.owner` ({ uid, gid }), `opts.private` (files that stay root's) and `opts.mode` are for its folder,
--- `opts.as` ({ uid, gid }) is who starts it where we are root. With `opts.may_refuse` one that ends instead
--- gives nil and { code, signal, stdout, stderr }; with `opts.untouched` nobody has spoken to it yet.
--- `opts.groups` ("0,4") are further ones that root starts it with.
function daemon.start(opts)
  opts = opts or {}
  local dir = daemon.directory(opts.files)
  local args = arguments(opts, dir)
  give_away(dir, opts)
  local ok, self = pcall(spawn, args, { dir = dir, env = opts.env, stdout_fd = opts.stdout_fd,
    limit_files = opts.limit_files, groups = opts.groups, preload = opts.preload, as = opts.as })
  if not ok then
    remove_tree(dir)
    error(self, 2)
  end
  self.allowed, self.opts = opts.allow_log or {}, opts
  self.read_ready = opts.read_ready or function() return self:stdout() end
  local ready = loop.try(function() return parse_ready(self.read_ready()) or not self:is_running() end, START_S)
  if opts.may_refuse and not self:is_running() then
    self:reap(STOP_S, "a start that is refused")
    local said = { code = self.code, signal = self.signal, stdout = self:stdout(), stderr = self:stderr() }
    remove_tree(dir)
    return nil, said
  end
  if type(ready) ~= "table" then
    local why = self:is_running() and "no ready line" or ("exit status " .. tostring(self.code))
    local tail = self:tail()
    pcall(self.kill, self)
    remove_tree(dir)
    error("the daemon did not start: " .. why .. "\n" .. tail, 2)
  end
  for key, value in pairs(ready) do self[key] = value end
  if opts.untouched then return self end
  if opts.control_pair ~= false then self:open_control_pair() end
  self:get("/healthz") -- what is opened at the first request and kept
  self.base_fds = self:fds()
  return self
end

--- Ends it at once, without a word.
function Daemon:kill()
  if self:is_running() then uv.process_kill(self.handle, "sigkill") end
  self:reap(STOP_S, "a killed daemon")
  self:close_control_pair()
end

function Daemon:signal_with(name)
  assert(uv.process_kill(self.handle, name))
end

--- How many descriptors the process has open.
function Daemon:fds()
  return count_entries("/proc/" .. self.pid .. "/fd")
end

--- Resident memory in bytes.
function Daemon:memory()
  return tonumber(read_file("/proc/" .. self.pid .. "/status"):match("VmRSS:%s*(%d+) kB")) * 1024
end

function Daemon:get(path, opts)
  return http.get(self.http.ip, self.http.port, path, opts)
end

--- The metrics page through the strict reader.
function Daemon:metrics()
  local response = self:get("/metrics")
  if response.status ~= 200 then error("/metrics answers " .. response.status .. ": " .. response.body, 2) end
  return prometheus.parse(response.body)
end

function Daemon:metric(name, labels)
  local value = self:metrics():value(name, labels)
  if not value then error("no series " .. name, 2) end
  return value
end

--- Waits until a metric has this value.
function Daemon:await_metric(name, labels, wanted, seconds)
  local last
  local ok = loop.try(function()
    last = self:metrics():value(name, labels)
    return last == wanted
  end, seconds)
  if not ok then error(name .. " is " .. tostring(last) .. ", expected " .. tostring(wanted), 2) end
end

--- Waits until a metric is at least this.
function Daemon:await_metric_at_least(name, labels, wanted, seconds)
  local last
  local ok = loop.try(function()
    last = self:metrics():value(name, labels)
    return last and last >= wanted
  end, seconds)
  if not ok then error(name .. " is " .. tostring(last) .. ", expected at least " .. tostring(wanted), 2) end
end

--- Waits for text (plain) in the log.
function Daemon:await_log(text, seconds)
  loop.wait(function() return self:stdout():find(text, 1, true) end,
    function() return "the log line " .. text .. "\n" .. self:tail() end, seconds)
end

--- Waits for a line that the pattern matches.
function Daemon:await_log_match(pattern, seconds)
  loop.wait(function() return self:stdout():find(pattern) end,
    function() return "a log line like " .. pattern .. "\n" .. self:tail() end, seconds)
end

--- A line with this pattern in the log is expected and no failure.
function Daemon:allow(pattern)
  self.allowed[#self.allowed + 1] = pattern
end

-- Two players on an address of their own whose game must survive whatever the tests do. They speak often
-- enough to stay, whenever the loop turns.
function Daemon:open_control_pair()
  local host = player.join(self, { udp_ip = "127.0.0.200", tcp_ip = "127.0.0.200" })
  local client = player.join(self, { udp_ip = "127.0.0.200", tcp_ip = "127.0.0.200" })
  local pair = player.relay(client, host)
  for _, object in ipairs { host.tcp, host.udp, client.tcp, client.udp } do loop.keep(object) end
  self.pair, self.keeper = pair, uv.new_timer()
  self.keeper:start(500, 500, function()
    pair.host.udp:send("keep", self.registrar.ip, pair.client_port)
    pair.client.udp:send("keep", self.registrar.ip, pair.host_port)
  end)
  self.keeper:unref()
end

function Daemon:close_control_pair()
  if not self.pair then return end
  self.keeper:close()
  for _, object in ipairs { self.pair.host.tcp, self.pair.host.udp, self.pair.client.tcp, self.pair.client.udp } do
    object:close()
  end
  self.pair = nil
  loop.turn()
end

local function receive_all(socket, port, sent)
  local missing, others = 0, {}
  for _ in pairs(sent) do missing = missing + 1 end
  loop.try(function()
    for datagram in function() return socket:take() end do
      if sent[datagram.data] and datagram.port == port then
        sent[datagram.data] = nil
        missing = missing - 1
      elseif datagram.data ~= "keep" then
        others[#others + 1] = string.format("%q from %d", datagram.data, datagram.port)
      end
    end
    return missing == 0
  end)
  if missing > 0 then error(missing .. " of 100 datagrams of the control pair are missing", 3) end
  if #others > 0 then error("the control pair received what it was not sent: " .. table.concat(others, ", "), 3) end
end

--- 100 of 100 datagrams pass between the control players, both ways.
function Daemon:check_control_pair()
  local pair = self.pair
  local up, down = {}, {}
  for i = 1, 100 do
    local data = string.format("control %d", i)
    up[data], down[data] = true, true
    pair.host.udp:send(data, self.registrar.ip, pair.client_port)
    pair.client.udp:send(data, self.registrar.ip, pair.host_port)
  end
  receive_all(pair.client.udp, pair.host_port, up)
  receive_all(pair.host.udp, pair.client_port, down)
end

--- What must hold after every test: it lives, is healthy, the control pair plays, no descriptor stays.
function Daemon:after_case()
  loop.close_owned()
  if not self:is_running() then error("the daemon has ended with status " .. self.code .. "\n" .. self:tail(), 2) end
  if self.pair then self:check_control_pair() end
  local health = self:get("/healthz")
  if health.status ~= 200 then error("/healthz answers " .. health.status .. ": " .. health.body, 2) end
  local fds
  local ok = loop.try(function()
    fds = self:fds()
    return fds <= self.base_fds
  end, FDS_S)
  if not ok then error("the daemon has " .. fds .. " descriptors, before the test " .. self.base_fds, 2) end
end

local function check_log(self)
  local text = self:stdout() .. "\n" .. self:stderr()
  for _, report in ipairs(REPORTS) do
    if text:find(report) then error("a report in the log:\n" .. self:tail(), 3) end
  end
  for line in text:gmatch("[^\n]+") do
    local bad = line:lower():find("^%S*%s*%[?error%f[%W]") or line:lower():find("^%S*%s*%[?fatal%f[%W]")
      or line:find('"level":"error"', 1, true) or line:find('"level":"fatal"', 1, true)
    for _, pattern in ipairs(self.allowed) do bad = bad and not line:find(pattern) end
    if bad then error("an unexpected line in the log: " .. line, 3) end
  end
  local stderr = self:stderr()
  if stderr ~= "" and not self.opts.allow_stderr then error("output on stderr: " .. stderr, 3) end
end

--- Ends it by TERM: status 0, no report, no unexpected error in the log, and no relay of a test is left
--- after the idle timeout.
function Daemon:stop(signal)
  loop.close_owned()
  local ok, err = pcall(function()
    if self.pair and not self.opts.is_short then self:await_metric("noray_relay_count", {}, 2, 20) end
    if not self:is_running() then error("the daemon has ended with status " .. self.code .. "\n" .. self:tail(), 0) end
    self:signal_with(signal or "sigterm")
    self:reap(STOP_S, "a daemon that was told to end")
    if self.code ~= 0 or self.signal ~= 0 then
      error("ended with status " .. self.code .. ", signal " .. self.signal .. "\n" .. self:tail(), 0)
    end
    check_log(self)
  end)
  if self:is_running() then self:kill() end
  self:close_control_pair()
  local log = self:stdout()
  remove_tree(self.dir)
  if not ok then error(err, 2) end
  check_self()
  return log
end

-- An error with the lines of the specs that led to it.
local function with_places(err)
  if type(err) ~= "string" then return err end -- luassert's own
  for place in debug.traceback("", 2):gmatch("[^\n]-(%w+_spec%.lua:%d+)[^\n]*") do err = err .. "\n  at " .. place end
  return err
end

--- Runs fn with a daemon of its own settings, checks and stops it, also when fn fails.
function daemon.with(opts, fn)
  opts.is_short = true -- it ends before the relays of the test are idle
  local self = daemon.start(opts)
  local ok, err = xpcall(fn, with_places, self)
  if not ok then
    local tail = self:tail()
    loop.close_owned()
    pcall(self.kill, self)
    remove_tree(self.dir)
    if type(err) == "string" then err = err .. "\n" .. tail end
    error(err, 0)
  end
  if self:is_running() then
    self:after_case()
    return self:stop()
  end
  self:close_control_pair()
  loop.close_owned()
  remove_tree(self.dir)
end

return daemon
