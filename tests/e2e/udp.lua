-- SPDX-License-Identifier: MIT
-- A UDP socket of a player or a stranger, with the sources of what it received. Start reading at udp.open.
local ffi = require "ffi"
local uv = require "luv"
local loop = require "loop"

ffi.cdef [[
int setsockopt(int fd, int level, int name, const void *value, uint32_t len);
]]

local SOL_SOCKET, SO_RCVBUF, SO_RCVBUFFORCE = 1, 8, 33

local Udp = {}
Udp.__index = Udp

local udp = {}

-- Bursts of a test must not be lost in the test's own socket.
local RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024

local function enlarge(handle)
  local fd, size = handle:fileno(), ffi.new("int[1]", RECEIVE_BUFFER_BYTES)
  for _, name in ipairs { SO_RCVBUFFORCE, SO_RCVBUF } do
    if ffi.C.setsockopt(fd, SOL_SOCKET, name, size, ffi.sizeof "int") == 0 then return end
  end
end

-- Addresses that the kernel has chosen so far. A relay outlives its player's socket, and whoever is given the
-- address next would find it there.
local given = {}

local function text_of(name)
  return (name.ip:find(":", 1, true) and "[" .. name.ip .. "]" or name.ip) .. ":" .. name.port
end

local function bound(ip, port)
  local handle = uv.new_udp()
  local ok, err = handle:bind(ip, port)
  if not ok then
    handle:close()
    loop.turn()
    error("cannot bind " .. ip .. ":" .. port .. ": " .. err, 3)
  end
  return handle, handle:getsockname()
end

-- A bound handle with its address; those that were given before stay bound until a new one is found.
local function fresh(ip)
  local handle, name = bound(ip, 0)
  if given[text_of(name)] then
    local another, its_name = fresh(ip)
    handle:close()
    loop.turn()
    return another, its_name
  end
  given[text_of(name)] = true
  return handle, name
end

--- Opens a socket on `ip` (127.0.0.1) and `port` (a free one that no socket of this process has had).
function udp.open(ip, port)
  local self = setmetatable({ queue = {}, head = 1, tail = 0, errors = {} }, Udp)
  local name
  if port and port ~= 0 then
    self.handle, name = bound(ip or "127.0.0.1", port)
  else
    self.handle, name = fresh(ip or "127.0.0.1")
  end
  loop.own(self)
  enlarge(self.handle)
  self.ip, self.port, self.text = name.ip, name.port, text_of(name)
  self:resume()
  return self
end

--- A port for a daemon that must know its number: free, and none that the kernel gives to anybody who asks for
--- any, which would have it before the daemon.
function udp.free_port()
  local file = assert(io.open "/proc/sys/net/ipv4/ip_local_port_range")
  local first, last = file:read("*n", "*n")
  file:close()
  local from, to = 10000, first - 1
  if to - from < 1000 then from, to = last + 1, 65535 end
  for _ = 1, 100 do
    local port, handle = from + uv.hrtime() % (to - from + 1), uv.new_udp()
    local is_free = handle:bind("0.0.0.0", port)
    handle:close()
    loop.turn()
    if is_free then return port end
  end
  error("no port is free", 2)
end

function Udp:resume()
  self.handle:recv_start(function(err, data, from)
    if err then
      self.errors[#self.errors + 1] = err
    elseif from then
      self.tail = self.tail + 1
      self.queue[self.tail] = { data = data, ip = from.ip, port = from.port }
    end
  end)
end

--- Fixes the peer, so that the kernel reports ICMP errors of it in self.errors.
function Udp:connect(ip, port)
  assert(self.handle:connect(ip, port))
  self.connected = true
end

--- Sends one datagram now.
function Udp:send(data, ip, port)
  if self.connected then ip, port = nil, nil end
  local sent, err = self.handle:try_send(data, ip, port)
  if not sent then
    self.errors[#self.errors + 1] = err
    return nil, err
  end
  return sent
end

function Udp:take()
  local datagram = self.queue[self.head]
  if not datagram then return nil end
  self.queue[self.head] = nil
  self.head = self.head + 1
  return datagram
end

--- How many datagrams wait to be received.
function Udp:waiting()
  loop.turn()
  return self.tail - self.head + 1
end

--- The next datagram { data, ip, port }; an error when none comes.
function Udp:recv(seconds)
  local datagram = self:try_recv(seconds)
  if not datagram then error("no datagram at " .. self.text, 2) end
  return datagram
end

function Udp:try_recv(seconds)
  return loop.try(function() return self:take() end, seconds)
end

--- The next datagram must be exactly this one.
function Udp:expect(data, ip, port, seconds)
  local got = self:try_recv(seconds)
  if not got then error(string.format("no datagram at %s, expected %.60q", self.text, data), 2) end
  if got.data ~= data then
    error(string.format("expected %d bytes %.60q, got %d bytes %.60q from port %d", #data, data, #got.data, got.data,
      got.port), 2)
  end
  if ip and got.ip ~= ip then error(string.format("expected it from %s, it came from %s", ip, got.ip), 2) end
  if port and got.port ~= port then
    error(string.format("expected it from port %d, it came from port %d", port, got.port), 2)
  end
  return got
end

--- Everything that is there now, as a list.
function Udp:drain()
  loop.turn()
  local all = {}
  for datagram in function() return self:take() end do all[#all + 1] = datagram end
  return all
end

function Udp:close()
  if not self.handle:is_closing() then self.handle:close() end
  loop.turn()
end

return udp
