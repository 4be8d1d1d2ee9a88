-- SPDX-License-Identifier: MIT
-- A TCP client that reads lines: what a game's connection to the command port is, and byte for byte where
-- a test asks for it. Start reading at tcp.connect.
local uv = require "luv"
local loop = require "loop"

local Tcp = {}
Tcp.__index = Tcp

local tcp = {}

--- Connects and returns the client. `opts.from` is the local address, `opts.paused` does not read.
function tcp.connect(ip, port, opts)
  opts = opts or {}
  local self = setmetatable({ buffer = "", raw = {}, ended = false, failure = nil, count = 0 }, Tcp)
  self.handle = uv.new_tcp()
  loop.own(self)
  if opts.from then assert(self.handle:bind(opts.from, opts.from_port or 0)) end
  local done, err
  assert(self.handle:connect(ip, port, function(e) done, err = true, e end))
  loop.wait(function() return done end, "a TCP connection to " .. ip .. ":" .. port)
  if err then
    self:close()
    return nil, err
  end
  self.handle:nodelay(true)
  if not opts.paused then self:resume() end
  return self
end

function Tcp:resume()
  self.handle:read_start(function(err, data)
    if err then
      self.failure, self.ended = err, true
    elseif data then
      self.count = self.count + #data
      self.buffer = self.buffer .. data
    else
      self.ended = true
    end
  end)
end

--- Reads no more, until Tcp:resume.
function Tcp:pause()
  self.handle:read_stop()
end

--- Sends bytes as they are; a failure of the connection shows in the reads.
function Tcp:send(bytes)
  self.handle:write(bytes, function(err) if err then self.failure = self.failure or err end end)
  loop.turn()
end

--- Sends and waits until the kernel took it all: for lines that are larger than a socket's buffer.
function Tcp:send_all(bytes)
  local done, err
  self.handle:write(bytes, function(e) done, err = true, e end)
  loop.wait(function() return done end, "that the peer reads", 60)
  return not err, err
end

--- Half-closes: the peer sees the end of what we send and may still answer.
function Tcp:finish()
  local done
  self.handle:shutdown(function() done = true end)
  loop.wait(function() return done end, "a half-close")
end

--- Ends with RST instead of FIN.
function Tcp:reset()
  if not self.handle:is_closing() then self.handle:close_reset() end
  loop.turn()
end

function Tcp:take_line()
  local at = self.buffer:find("\n", 1, true)
  if not at then return nil end
  local line = self.buffer:sub(1, at - 1)
  self.buffer = self.buffer:sub(at + 1)
  return line
end

--- The next line without its LF; an error when none comes.
function Tcp:line(seconds)
  local line = self:try_line(seconds)
  if line then return line end
  error("no line from the server" .. (self.ended and ", the connection has ended" or "") .. "; so far: "
    .. string.format("%q", self.buffer), 2)
end

--- The next line, or nil when the connection ends or the deadline passes.
function Tcp:try_line(seconds)
  local line
  loop.try(function()
    line = self:take_line()
    return line or self.ended
  end, seconds)
  return line
end

--- The next `n` lines.
function Tcp:lines(n, seconds)
  local lines = {}
  for i = 1, n do lines[i] = self:line(seconds) end
  return lines
end

--- Reads one line and compares it whole.
function Tcp:expect(wanted, seconds)
  local got = self:line(seconds)
  if got ~= wanted then error(string.format("expected the line %q, got %q", wanted, got), 2) end
end

--- Reads one line that the pattern matches and returns its captures.
function Tcp:expect_match(pattern, seconds)
  local got = self:line(seconds)
  if not got:find(pattern) then error(string.format("expected a line like %q, got %q", pattern, got), 2) end
  return got:match(pattern)
end

local serial = 0

--- Checks that everything sent so far was answered by what was read: the next line is the answer to an
--- echo that is sent now. This is how a test sees silence without waiting for it.
function Tcp:expect_nothing_more()
  serial = serial + 1
  local token = "quiet-" .. serial
  self:send("echo " .. token .. "\n")
  local got = self:line()
  if got ~= "echo " .. token then error(string.format("expected no further line, got %q", got), 2) end
end

--- Waits for the server's end of the connection and returns the bytes that were left.
function Tcp:expect_end(seconds)
  loop.wait(function() return self.ended end, "that the server closes the connection", seconds)
  return self.buffer
end

function Tcp:local_address()
  local name = self.handle:getsockname()
  return name.ip, name.port
end

function Tcp:close()
  if not self.handle:is_closing() then self.handle:close() end
end

return tcp
