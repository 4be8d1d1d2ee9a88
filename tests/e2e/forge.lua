-- SPDX-License-Identifier: MIT
-- Datagrams with a source of somebody else's choice, over a raw socket: what an attacker on a network
-- without source checks can send. Needs root; forge.is_allowed says. Start reading at forge.send.
local ffi = require "ffi"

ffi.cdef [[
int socket(int domain, int type, int protocol);
int close(int fd);
long sendto(int fd, const void *data, size_t size, int flags, const void *to, uint32_t to_size);
]]

local AF_INET, SOCK_RAW, IPPROTO_RAW = 2, 3, 255

local forge = {}

local function ip_bytes(ip)
  local a, b, c, d = ip:match("^(%d+)%.(%d+)%.(%d+)%.(%d+)$")
  return string.char(a, b, c, d)
end

local function u16(n)
  return string.char(math.floor(n / 256), n % 256)
end

-- IPPROTO_RAW takes our own IP header; the kernel fills in its checksum and length. A UDP checksum of 0
-- is none.
local function packet(from_ip, from_port, to_ip, to_port, data)
  local udp = u16(from_port) .. u16(to_port) .. u16(8 + #data) .. u16(0) .. data
  return string.char(0x45, 0) .. u16(20 + #udp) .. u16(0) .. u16(0) .. string.char(64, 17) .. u16(0)
    .. ip_bytes(from_ip) .. ip_bytes(to_ip) .. udp
end

local function raw_socket()
  local fd = ffi.C.socket(AF_INET, SOCK_RAW, IPPROTO_RAW)
  return fd >= 0 and fd or nil
end

--- Whether this process may forge.
function forge.is_allowed()
  local fd = raw_socket()
  if fd then ffi.C.close(fd) end
  return fd ~= nil
end

--- Sends one datagram from an address that need not be ours.
function forge.send(from_ip, from_port, to_ip, to_port, data)
  local fd = assert(raw_socket(), "no raw socket")
  local bytes = packet(from_ip, from_port, to_ip, to_port, data)
  local to = ffi.new("uint8_t[16]")
  ffi.cast("uint16_t *", to)[0] = AF_INET
  ffi.copy(to + 4, ip_bytes(to_ip), 4)
  local sent = tonumber(ffi.C.sendto(fd, bytes, #bytes, 0, to, 16))
  ffi.C.close(fd)
  assert(sent == #bytes, "a forged datagram was not sent")
end

return forge
