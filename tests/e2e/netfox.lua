-- SPDX-License-Identifier: MIT
-- A game with netfox.noray, as far as its bytes go: the TCP commands it sends, how it takes a line apart,
-- the registration over UDP, and the handshake that both sides run before ENet starts. The facts are
-- netfox's; a server that this file cannot play with is of no use to a game. Start reading at
-- netfox.connect.
local loop = require "loop"
local tcp = require "tcp"
local udp = require "udp"

local Game = {}
Game.__index = Game

local netfox = {}

-- netfox sends its PID and its handshake every 0.1 s.
netfox.INTERVAL_S = 0.1
-- netfox tries for 8 s; a machine under sanitizers may need more.
netfox.PATIENCE_S = 20

--- Takes bytes apart as netfox does: lines at LF, then words at each space, of which it looks at the
--- first two. Returns the list of { command, parameter } and what is left without a line's end.
function netfox.parse(buffer)
  local commands = {}
  local last = 0
  for line, at in buffer:gmatch("([^\n]*)\n()") do
    last = at - 1
    if line ~= "" then
      local words = {}
      for word in (line .. " "):gmatch("([^ ]*) ") do words[#words + 1] = word end
      commands[#commands + 1] = { words[1], words[2] or "" }
    end
  end
  return commands, buffer:sub(last + 1)
end

--- Connects as a game does. `opts.from` is the local address.
function netfox.connect(ip, port, opts)
  local self = setmetatable({ address = ip, commands = {}, buffer = "", local_port = nil }, Game)
  self.from = opts and opts.from or "127.0.0.1"
  self.tcp = assert(tcp.connect(ip, port, { from = self.from }))
  return self
end

-- What arrives goes through the parser at once; netfox keeps the ids and hands the rest to the game.
function Game:poll()
  local commands
  commands, self.tcp.buffer = netfox.parse(self.tcp.buffer)
  for _, command in ipairs(commands) do
    if command[1] == "set-oid" then
      self.oid = command[2]
    elseif command[1] == "set-pid" then
      self.pid = command[2]
    else
      self.commands[#self.commands + 1] = command
    end
  end
end

--- The next command that is no id: its name and parameter.
function Game:command(seconds)
  local command = loop.wait(function()
    self:poll()
    return table.remove(self.commands, 1)
  end, "a command to the game", seconds)
  return command[1], command[2]
end

function Game:register_host()
  self.tcp:send("register-host\n")
  loop.wait(function()
    self:poll()
    return self.oid and self.pid
  end, "an oid and a pid")
end

--- Sends the PID every 0.1 s until OK and closes the socket on it; any other reply is a failure. The
--- game's own socket is then bound to the same port.
function Game:register_remote(registrar_port)
  local socket = udp.open(self.from)
  local next_send, reply = 0, nil
  loop.wait(function()
    if loop.now() >= next_send then
      socket:send(self.pid, self.address, registrar_port)
      next_send = loop.now() + netfox.INTERVAL_S
    end
    reply = socket:take()
    return reply
  end, "the registrar's reply", netfox.PATIENCE_S)
  self.local_port = socket.port
  socket:close()
  loop.keep(socket)
  if reply.data ~= "OK" then error("the registrar replied " .. reply.data, 2) end
  self.registrar_port = registrar_port
  self.udp = udp.open(self.from, self.local_port)
end

--- Whether a datagram is the answer to a PID that was sent again before the first answer came.
function Game:is_late_ok(datagram)
  return datagram.data == "OK" and datagram.ip == self.address and datagram.port == self.registrar_port
end

--- Both ids, the UDP address: what a game does before it hosts or joins.
function Game:register(registrar_port)
  self:register_host()
  self:register_remote(registrar_port)
end

function Game:connect_nat(oid) self.tcp:send("connect " .. oid .. "\n") end
function Game:connect_relay(oid) self.tcp:send("connect-relay " .. oid .. "\n") end

--- Where a command tells the game to play: netfox splits `connect` at the colon and goes to the relay's
--- port at the server's own address.
function Game:endpoint(command, parameter)
  if command == "connect" then
    local ip, port = parameter:match("^([^:]*):([^:]*)$")
    if not port then error("netfox crashes on: connect " .. parameter, 2) end
    return { ip = ip, port = tonumber(port) }
  end
  if command == "connect-relay" then return { ip = self.address, port = tonumber(parameter) } end
  error("no endpoint in " .. command .. " " .. parameter, 2)
end

-- One side of the handshake: three flags in a text datagram. "w": I have sent; "r": I have read yours;
-- "x": you have read mine.
local Handshake = {}
Handshake.__index = Handshake

local function flags(state)
  return "$" .. (state.did_read and "r" or "-") .. (state.did_write and "w" or "-")
    .. (state.did_handshake and "x" or "-")
end

--- The handshake of a peer that can read its socket.
function Game:handshake(endpoint)
  return setmetatable({ game = self, endpoint = endpoint, did_write = true, next_send = 0, seen = {} }, Handshake)
end

function Handshake:take(data)
  self.seen[#self.seen + 1] = data
  self.did_read = true
  if data:find("r", 1, true) then self.did_handshake = true end
  if data:find("x", 1, true) and self.did_handshake then self.done = true end
end

function Handshake:poll()
  for datagram in function() return self.game.udp:take() end do
    if not self.game:is_late_ok(datagram) then
      if datagram.ip ~= self.endpoint.ip or datagram.port ~= self.endpoint.port then
        error(string.format("a datagram from %s:%d, the game was told %s:%d", datagram.ip, datagram.port,
          self.endpoint.ip, self.endpoint.port), 0)
      end
      self:take(datagram.data)
    end
  end
  if loop.now() >= self.next_send and not self.is_mute then
    self.game.udp:send(flags(self), self.endpoint.ip, self.endpoint.port)
    self.next_send = loop.now() + netfox.INTERVAL_S
  end
  return self.done
end

--- The handshake of a host whose socket belongs to ENet: it cannot read and pretends that all went well.
function Game:blind_handshake(endpoint)
  return setmetatable({ game = self, endpoint = endpoint, did_write = true, did_read = true, did_handshake = true,
    next_send = 0, seen = {}, is_blind = true }, Handshake)
end

--- Runs both sides until the side that can read is done; false when it is not within `seconds`. A side
--- that both read must have seen "$rwx".
function netfox.shake(a, b, seconds)
  local ok = loop.try(function()
    local a_done, b_done = a:poll(), b:poll()
    return (a_done or a.is_blind) and (b_done or b.is_blind)
  end, seconds or netfox.PATIENCE_S)
  return ok ~= nil
end

--- ENet-like payloads, `n` each way, byte for byte and in order; handshakes that are still under way are
--- skipped as ENet skips them.
function netfox.play(a, a_endpoint, b, b_endpoint, n)
  local function payload(tag, i)
    local head = string.char(0x80 + i % 64, i % 256, 0, tag, i % 256, 0x06, 0xff, 0x0a)
    return head .. string.rep(string.char(i * 7 % 256), (i * 37) % 1200)
  end
  local function receive(game, endpoint, tag)
    for i = 1, n do
      local got
      repeat got = game.udp:recv() until not got.data:find("^%$[r-][w-][x-]$") and not game:is_late_ok(got)
      if got.data ~= payload(tag, i) then error("payload " .. i .. " is not what was sent", 3) end
      if got.port ~= endpoint.port then error("payload " .. i .. " comes from port " .. got.port, 3) end
    end
  end
  for i = 1, n do
    a.udp:send(payload(1, i), a_endpoint.ip, a_endpoint.port)
    b.udp:send(payload(2, i), b_endpoint.ip, b_endpoint.port)
  end
  receive(b, b_endpoint, 1)
  receive(a, a_endpoint, 2)
end

return netfox
