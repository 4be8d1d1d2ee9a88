-- SPDX-License-Identifier: MIT
-- A supervisor's ear, as systemd's: a datagram socket with a path, or with a name that begins with "@", to which
-- the daemon speaks when NOTIFY_SOCKET names it. Start reading at supervisor.listen.
local ffi = require "ffi"
local loop = require "loop"

ffi.cdef [[
int socket(int domain, int type, int protocol);
int bind(int fd, const void *address, uint32_t size);
int close(int fd);
int unlink(const char *path);
long recv(int fd, void *data, size_t size, int flags);
]]

local AF_UNIX, SOCK_DGRAM, SOCK_FLAGS = 1, 2, 0x80000 + 0x800 -- close-on-exec, nonblocking
local TEXT_MAX = 4096

local Supervisor = {}
Supervisor.__index = Supervisor

local supervisor = {}

--- Listens there. self.env is what the daemon is started with, self.messages what it has said: tables of
--- KEY = value.
function supervisor.listen(path, env)
  local self = setmetatable({ path = path, messages = {}, env = env or {} }, Supervisor)
  self.env.NOTIFY_SOCKET = path
  local address = ffi.new("uint8_t[112]")
  ffi.cast("uint16_t *", address)[0] = AF_UNIX
  ffi.copy(address + 2, (path:gsub("^@", "\0")), #path)
  self.fd = ffi.C.socket(AF_UNIX, SOCK_DGRAM + SOCK_FLAGS, 0)
  assert(self.fd >= 0 and ffi.C.bind(self.fd, address, 2 + #path + (path:sub(1, 1) == "@" and 0 or 1)) == 0)
  return self
end

function Supervisor:poll()
  local buffer = ffi.new("uint8_t[?]", TEXT_MAX)
  while true do
    local n = tonumber(ffi.C.recv(self.fd, buffer, TEXT_MAX, 0))
    if n < 0 then return end
    local message = {}
    for line in ffi.string(buffer, n):gmatch("[^\n]+") do
      local key, value = line:match("^([A-Z_]+)=(.*)$")
      assert(key, "no assignment: " .. line)
      message[key] = value
    end
    self.messages[#self.messages + 1] = message
  end
end

--- The next message that has KEY; those before it are gone.
function Supervisor:expect(key, seconds)
  return loop.wait(function()
    self:poll()
    while #self.messages > 0 do
      local message = table.remove(self.messages, 1)
      if message[key] then return message end
    end
  end, "a message with " .. key, seconds)
end

function Supervisor:close()
  if self.fd < 0 then return end
  ffi.C.close(self.fd)
  self.fd = -1
  if self.path:sub(1, 1) ~= "@" then ffi.C.unlink(self.path) end
end

return supervisor
