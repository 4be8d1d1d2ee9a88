-- SPDX-License-Identifier: MIT
-- A daemon whose calls of the kernel and of libuv fail at places that are told (faults.c), from its first
-- instruction on, and a small game through all of its doors. Start reading at faulty.run.
local control = require "control"
local daemon = require "daemon"
local loop = require "loop"
local player = require "player"
local udp = require "udp"

local faulty = {}

local ERRNO = { EPERM = 1, EINTR = 4, EIO = 5, EAGAIN = 11, ENOMEM = 12, EACCES = 13, EINVAL = 22, ENFILE = 23,
  EMFILE = 24, ENOSPC = 28, EPIPE = 32, ENOSYS = 38, EPROTO = 71, EMSGSIZE = 90, EAFNOSUPPORT = 97, EADDRINUSE = 98,
  EADDRNOTAVAIL = 99, ENETUNREACH = 101, ECONNABORTED = 103, ECONNRESET = 104, ENOBUFS = 105, ENOTCONN = 107,
  ECONNREFUSED = 111 }

--- What each call may fail with. Two of the kernel's are made by nobody now and are here for the day that somebody
--- does.
faulty.CALLS = {
  socket = { "EMFILE", "ENFILE", "ENOBUFS", "ENOMEM", "EAFNOSUPPORT" },
  bind = { "EADDRINUSE", "EACCES", "EADDRNOTAVAIL", "ENOMEM" },
  listen = { "EADDRINUSE" },
  connect = { "EAGAIN", "ENETUNREACH", "ECONNREFUSED", "EADDRNOTAVAIL" },
  setsockopt = { "ENOMEM", "EPERM" },
  getsockname = { "ENOBUFS" },
  accept4 = { "EMFILE", "ENFILE", "ENOBUFS", "ENOMEM", "ECONNABORTED", "EPROTO", "EPERM", "EINTR", "EAGAIN" },
  recvfrom = { "EINTR", "ENOMEM", "ECONNREFUSED", "ENOBUFS", "EAGAIN" },
  recvmsg = { "EINTR", "ENOMEM", "ECONNREFUSED" },
  recvmmsg = { "EINTR", "ENOMEM", "ECONNREFUSED", "EAGAIN" },
  recv = { "EINTR", "ECONNRESET", "ENOMEM" },
  sendto = { "EPERM", "EAGAIN", "ENOBUFS", "EINTR", "EMSGSIZE", "ENETUNREACH", "ECONNREFUSED" },
  sendmsg = { "EAGAIN", "ENOBUFS", "EINTR", "ECONNRESET" },
  sendmmsg = { "EPERM", "EAGAIN", "ENOBUFS", "EINTR", "EMSGSIZE", "ECONNREFUSED" },
  send = { "EAGAIN", "EPIPE", "EINTR", "ENOBUFS" },
  epoll_create1 = { "EMFILE", "ENOMEM" },
  epoll_ctl = { "ENOMEM", "ENOSPC" },
  epoll_wait = { "EINTR" },
  epoll_pwait = { "EINTR" },
  eventfd = { "EMFILE", "ENFILE", "ENOMEM" },
  pthread_create = { "EAGAIN", "EPERM" },
  uv_loop_init = { "EMFILE", "ENOMEM" },
  uv_loop_configure = { "ENOSYS" },
  uv_async_init = { "EMFILE", "ENOMEM" },
  uv_poll_init = { "ENOMEM", "EMFILE" },
  uv_poll_init_socket = { "ENOMEM" },
  uv_poll_start = { "ENOMEM" },
  uv_tcp_init = { "ENOMEM" },
  uv_tcp_open = { "ENOMEM", "EINVAL" },
  uv_read_start = { "ENOMEM", "ENOTCONN" },
  uv_try_write = { "EAGAIN", "ENOBUFS", "EPIPE" },
  uv_write = { "ENOMEM" },
  uv_shutdown = { "ENOTCONN", "ENOMEM" },
  uv_fs_event_init = { "ENOMEM" },
  uv_fs_event_start = { "EMFILE", "ENOSPC" },
  uv_queue_work = { "ENOMEM" },
  uv_random = { "ENOSYS", "EIO" },
  uv_interface_addresses = { "ENOMEM", "ENOSYS" },
}

local CONFIG = 'return { policies = { "./world.lua", "dynamic" }, ports = { [0] = {} } }'

-- Told where things are by the command, since a start has them from the kernel.
local WORLD = [[
local relay = require "relay"
local target
return {
  drop = function(ev) return target and ev.reason == "new_flow" and { target = target, idle = 1 } or nil end,
  commands = {
    target = function(where) target = where return "ok" end,
    read = function() return relay.read "world.txt" or "failed" end,
    ask = function(url) return (relay.http { url = url, timeout = 3 } or {}).body or "failed" end,
    say = function(host, port)
      local u, heard = relay.udp { family = 4 }, nil
      if not u then return "failed" end
      u:on_message(function(data) heard = data end)
      local ok = u:bind("127.0.0.1") and u:send("from a policy", host, tonumber(port))
      for _ = 1, 100 do
        if not ok or heard then break end
        relay.sleep(0.01)
      end
      u:close()
      return heard or "failed"
    end,
  },
}
]]

local ATTEMPTS, ATTEMPT_S = 6, 3

--- What must come through in the end, and each of it only costs what a fault met.
local function again(what, fn, ...)
  local ok, err
  local deadline = loop.DEADLINE_S
  loop.DEADLINE_S = ATTEMPT_S
  for _ = 1, ATTEMPTS do
    ok, err = pcall(fn, ...)
    if ok then break end
  end
  loop.DEADLINE_S = deadline
  if ok then return err end
  error(what .. ": " .. tostring(err), 0)
end

local function ask(server, method, path, body)
  local client = control.connect(server)
  local ok, response = pcall(client.request, client, method, path, body, 3)
  client:close()
  if not ok then error(response, 0) end
  if response.status ~= 200 then error(path .. ": " .. response.status .. " " .. response.body, 0) end
  return response.body
end

local function call(server, verb, ...)
  local args = { ... }
  for i, arg in ipairs(args) do args[i] = ("%q"):format(arg) end
  local body = ('{"policy":"world","verb":"%s","args":[%s]}'):format(verb, table.concat(args, ","))
  local answer = ask(server, "POST", "/v1/call", body)
  if answer:find "failed" then error(verb .. " has failed", 0) end
  return answer
end

-- Two players for the whole run.
local function open_pair(server)
  again("a game", function()
    local ok, err = pcall(server.open_control_pair, server)
    if not ok then
      loop.close_owned()
      error(err, 0)
    end
  end)
end

local function play(server)
  again("players who come and go", function()
    local pair = player.pair(server)
    for i = 1, 40 do pair.client.udp:send("burst " .. i, pair.ip, pair.host_port) end
    loop.try(function() return pair.host.udp:waiting() >= 40 end, 0.2)
    player.flush(pair)
    player.exchange(pair)
    pair.client:send "echo bye"
    pair.client.tcp:expect("echo bye", 2)
    pair.host:leave()
    pair.client:leave()
  end)
end

local function echo_server()
  local self = udp.open()
  self.handle:recv_stop()
  self.handle:recv_start(function(_, data, from) if from then self.handle:try_send(data, from.ip, from.port) end end)
  return self
end

local function reach_out(server)
  local game = echo_server()
  loop.keep(game)
  again("the target is told", call, server, "target", game.text)
  again("a flow to a target", function()
    local stranger = udp.open("127.66.40.1")
    stranger:send("hello", "127.0.0.1", server.open_ports[1])
    local got = stranger:try_recv(1)
    stranger:close()
    assert(got and got.data == "hello", "no answer")
  end)
  again("a policy reads", call, server, "read")
  again("a policy asks over HTTP", call, server, "ask", "http://127.0.0.1:" .. server.http.port .. "/livez")
  again("a policy says something", call, server, "say", "127.0.0.1", tostring(game.port))
  game:close()
end

local function administer(server)
  again("the metrics", function() server:metrics() end)
  again("the relays are listed", ask, server, "GET", "/v1/relays")
  again("a reload", ask, server, "POST", "/v1/reload")
  again("a drained port", ask, server, "POST", "/v1/drain", '{"seconds":600}')
  again("a drain that is taken back", ask, server, "POST", "/v1/drain", '{"cancel":true}')
  -- Put there and let go at once: what watches has seen it.
  local before = server:stdout()
  local file = assert(io.open(server.dir .. "/world.lua", "a"))
  file:write "\n"
  file:close()
  loop.try(function() return server:stdout():find("by=watch", #before, true) end, 1)
end

local function conserve(server)
  local into, accounted
  local ok = loop.try(function()
    local page = server:metrics()
    into = page:value("moonrelay_packets_total", { direction = "in" })
    accounted = page:value("moonrelay_packets_total", { direction = "out" }) + page:sum("moonrelay_drops_total")
      + page:value("moonrelay_held")
    return into == accounted
  end, 3)
  if not ok then error(("%d datagrams came, %d are accounted for"):format(into, accounted), 0) end
end

-- After every fault: it lives, is healthy, the pair from before plays, nothing stays behind.
local function judge(server, descriptors)
  if not server:is_running() then error("it has ended with status " .. server.code, 0) end
  local health = server:get("/healthz")
  if health.status ~= 200 then error("/healthz: " .. health.status .. " " .. health.body, 0) end
  server:check_control_pair()
  conserve(server)
  server:await_metric("noray_relay_count", {}, 2)
  if not descriptors then return end
  local fds
  local ok = loop.try(function()
    fds = server:fds()
    return fds <= descriptors
  end)
  if not ok then error(fds .. " descriptors are open, without a fault " .. descriptors, 0) end
end

local function read_counts(path)
  local counts = {}
  for name, n in daemon.read(path):gmatch "(%S+) +(%d+)\n" do counts[name] = tonumber(n) end
  return counts
end

local function refusal(said)
  local line = said.stderr:match "^moonrelay: [^\n]+\n$"
  if said.signal ~= 0 or said.code ~= 1 or not line then
    error(("a start that ends with status %d, signal %d and says: %s"):format(said.code, said.signal,
      said.stdout .. said.stderr), 0)
  end
  return { outcome = "refused", line = line }
end

-- The whole of it; the counts of calls are those before it was judged.
local function play_all(server, hit, counts, descriptors)
  play(server)
  reach_out(server)
  administer(server)
  local called, before = counts(), hit()
  loop.close_owned()
  local is_good, why = pcall(judge, server, descriptors)
  if not is_good and hit() > before then
    judge(server, descriptors) -- one came about just now
  elseif not is_good then
    error(why, 0)
  end
  return called
end

-- For faults of the start alone.
local function greet(server)
  server:check_control_pair()
  again("the health", function() assert(server:get("/healthz").status == 200, "not healthy") end)
  again("the control socket", ask, server, "GET", "/v1/status")
end

--- Starts a daemon with these faults ("CALL N ERRNO", ...), plays and judges, or only looks whether it serves when
--- `opts.is_brief`. Gives { outcome = "refused", line } or { outcome = "served", at_start, counts, descriptors }, and
--- how many faults came about as `hit`; raises what is wrong. `opts.descriptors` is how many a run without faults had
--- in the end.
function faulty.run(faults, opts)
  opts = opts or {}
  local notes = daemon.directory()
  local plan = {}
  for i, fault in ipairs(faults) do
    plan[i] = fault:gsub("%u+$", function(name) return tostring(assert(ERRNO[name], name)) end)
  end
  local server, said = daemon.start { config = CONFIG, files = { ["world.lua"] = WORLD, ["world.txt"] = "the world" },
    args = { "--watch" }, untouched = true, may_refuse = true, is_short = true, allow_log = {},
    set = { control = "control.sock", udp_relay_timeout = "4s", udp_relay_ports = "0+15", workers = "2" },
    preload = daemon.program():match "^(.*)/[^/]*$" .. "/tests/faults.so",
    env = { MR_TEST_FAULT_AT = #plan > 0 and table.concat(plan, ",") or nil, MR_TEST_FAULT_LOG = notes .. "/log",
      MR_TEST_FAULT_COUNTS = notes .. "/counts" } }
  local result
  local function counts() return read_counts(notes .. "/counts") end
  local function hit() return select(2, daemon.read(notes .. "/log"):gsub("\n", "")) end
  local ok, err = pcall(function()
    if not server then
      result = refusal(said)
      return
    end
    result = { outcome = "served", at_start = counts() }
    open_pair(server)
    if opts.is_brief then greet(server) else result.counts = play_all(server, hit, counts, opts.descriptors) end
    result.descriptors = server:fds()
    server:stop()
  end)
  if result then result.hit = hit() end
  loop.close_owned()
  if not ok and server then
    err = tostring(err) .. "\n" .. server:tail()
    pcall(server.kill, server)
    daemon.remove(server.dir)
  end
  daemon.remove(notes)
  if not ok then error((#faults > 0 and table.concat(faults, ", ") or "no fault") .. ": " .. tostring(err), 0) end
  return result
end

return faulty
