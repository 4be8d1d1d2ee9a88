-- SPDX-License-Identifier: MIT
-- A network of one's own: a process that requires this moves into a new network namespace, which the programs
-- that it starts inherit and where there is only `lo`. So tests that run at the same time cannot have each other's
-- datagrams, when a port that one gave back is given to the other. Needs CAP_SYS_ADMIN; without it the process stays
-- where it is. network.with makes another one, which can be unplugged.
local ffi = require "ffi"
local uv = require "luv"

ffi.cdef [[
int socket(int domain, int type, int protocol);
int close(int fd);
int unshare(int flags);
int setns(int fd, int type);
int ioctl(int fd, unsigned long request, void *argument);
struct mr_test_route { // rtentry of route.h
  unsigned long pad1;
  uint16_t to[8], gateway[8], mask[8];
  unsigned short flags;
  short pad2;
  unsigned long pad3;
  void *pad4;
  short metric;
  const char *interface;
  unsigned long mtu, window;
  unsigned short irtt;
};
]]

local AF_INET, AF_INET6, SOCK_DGRAM, CLONE_NEWNET = 2, 10, 2, 0x40000000
local SIOCADDRT, SIOCSIFFLAGS, SIOCSIFADDR, IFF_UP, RTF_UP = 0x890b, 0x8914, 0x8916, 1, 1

local network = {}

local function set_lo(flags)
  local request = ffi.new("uint8_t[40]") -- struct ifreq: a name of 16 bytes, flags
  ffi.copy(request, "lo")
  ffi.cast("int16_t *", request + 16)[0] = flags
  local fd = ffi.C.socket(AF_INET, SOCK_DGRAM, 0)
  local rc = ffi.C.ioctl(fd, SIOCSIFFLAGS, request)
  ffi.C.close(fd)
  assert(rc == 0, "cannot change lo")
end

local is_own = ffi.C.unshare(CLONE_NEWNET) == 0
if is_own then set_lo(IFF_UP) end

-- Where this process is, for as long as it lives. Opened before daemon.lua counts what is open.
local home = assert(uv.fs_open("/proc/thread-self/ns/net", "r", 0))

--- Gives `lo` one more address, for as long as this process lives. false: this is the machine's own network.
function network.add_address(ip)
  if not is_own then return false end
  local request = ffi.new("uint8_t[40]") -- struct ifreq: a name, then a struct sockaddr_in
  ffi.copy(request, "lo:1")
  ffi.cast("uint16_t *", request + 16)[0] = AF_INET
  local i = 20
  for byte in ip:gmatch("%d+") do
    request[i], i = tonumber(byte), i + 1
  end
  local fd = ffi.C.socket(AF_INET, SOCK_DGRAM, 0)
  local rc = ffi.C.ioctl(fd, SIOCSIFADDR, request)
  ffi.C.close(fd)
  assert(rc == 0, "cannot give lo another address")
  return true
end

--- The same in IPv6: the address whose bytes these are, `"\32\1\13\184..."`.
function network.add_address6(bytes)
  if not is_own then return false end
  local request = ffi.new("uint8_t[24]") -- struct in6_ifreq: an address, the bits of its net, an interface
  ffi.copy(request, bytes, 16)
  ffi.cast("uint32_t *", request + 16)[0] = 128
  ffi.cast("int32_t *", request + 20)[0] = 1 -- `lo` is the first one of a network
  local fd = ffi.C.socket(AF_INET6, SOCK_DGRAM, 0)
  local rc = fd < 0 and -1 or ffi.C.ioctl(fd, SIOCSIFADDR, request)
  ffi.C.close(fd)
  return rc == 0
end

--- From now on everything that is not ours is sent to `lo`.
function network.add_default_route()
  local route = ffi.new("struct mr_test_route", { flags = RTF_UP, interface = "lo" })
  for _, address in ipairs { route.to, route.gateway, route.mask } do address[0] = AF_INET end
  local fd = ffi.C.socket(AF_INET, SOCK_DGRAM, 0)
  local rc = ffi.C.ioctl(fd, SIOCADDRT, route)
  ffi.C.close(fd)
  assert(rc == 0, "cannot add a route")
end

--- From now on nothing arrives anywhere, and nobody is told.
function network.unplug() set_lo(0) end

function network.plug() set_lo(IFF_UP) end

--- Runs fn in a network of its own. false: this process may make none.
function network.with(fn)
  if ffi.C.unshare(CLONE_NEWNET) ~= 0 then return false end
  local ok, err = xpcall(function()
    network.plug()
    fn()
  end, debug.traceback)
  assert(ffi.C.setns(home, CLONE_NEWNET) == 0)
  if not ok then error(err, 0) end
  return true
end

return network
