-- SPDX-License-Identifier: MIT
-- A registered player, without a game's own behaviour (that is netfox.lua): a TCP connection with a
-- session, and a UDP socket that the registrar knows. Start reading at player.join.
local loop = require "loop"
local tcp = require "tcp"
local udp = require "udp"

local Player = {}
Player.__index = Player

local player = {}

--- Sends the player's PID from a socket until OK comes; the registrar must answer from where it was asked.
function Player:register(socket, ip)
  socket = socket or self.udp
  ip = ip or self.server.registrar.ip
  local got
  for sent = 1, 50 do
    socket:send(self.pid, ip, self.server.registrar.port)
    got = socket:try_recv(2)
    if got then
      for _ = 2, sent do socket:try_recv(2) end -- answers to the others are nothing that a game gets
      break
    end
  end
  if not got then error("the registrar does not answer " .. socket.text, 2) end
  if got.data ~= "OK" or got.port ~= self.server.registrar.port or got.ip ~= ip then
    error(string.format("the registrar's answer is %q from %s:%d", got.data, got.ip, got.port), 2)
  end
  return self
end

--- Asks for a session on the connection and takes its ids as the player's.
function Player:session(words)
  self.tcp:send("register-host" .. (words and " " .. words or "") .. "\n")
  self.oid = self.tcp:expect_match("^set%-oid (%S+)$")
  self.pid = self.tcp:expect_match("^set%-pid (%S+)$")
  return self.oid, self.pid
end

--- A connection with a session. `opts`: tcp_ip and udp_ip (local addresses), ip (the server's), words
--- (after register-host), udp = false: not seen at the registrar.
function player.join(server, opts)
  opts = opts or {}
  local self = setmetatable({ server = server }, Player)
  self.tcp = assert(tcp.connect(opts.ip or server.command.ip, server.command.port, { from = opts.tcp_ip }))
  self:session(opts.words)
  if opts.udp ~= false then
    self.udp = udp.open(opts.udp_ip or opts.tcp_ip or "127.0.0.1")
    self:register(nil, opts.registrar_ip or opts.ip)
  end
  return self
end

--- Sends a line.
function Player:send(line)
  self.tcp:send(line .. "\n")
end

function Player:leave()
  self.tcp:close()
  loop.keep(self.tcp)
  if self.udp then
    self.udp:close()
    loop.keep(self.udp)
  end
  loop.turn()
end

--- connect-relay of client to host; returns { client, host, client_port, host_port }: the client speaks
--- to host_port, the host to client_port.
function player.relay(client, host)
  client:send("connect-relay " .. host.oid)
  local host_port = tonumber((client.tcp:expect_match("^connect%-relay (%d+)$")))
  local client_port = tonumber((host.tcp:expect_match("^connect%-relay (%d+)$")))
  return { client = client, host = host, client_port = client_port, host_port = host_port,
    ip = client.server.registrar.ip }
end

--- Two new players and their relays.
function player.pair(server, opts)
  opts = opts or {}
  local host = player.join(server, opts.host or opts)
  local client = player.join(server, opts.client or opts)
  return player.relay(client, host)
end

local serial = 0

--- Takes what is still under way between two players, until a mark sent now has come through.
function player.flush(pair)
  serial = serial + 1
  local mark = "flush " .. serial
  pair.client.udp:send(mark, pair.ip, pair.host_port)
  pair.host.udp:send(mark, pair.ip, pair.client_port)
  repeat local got = pair.host.udp:recv() until got.data == mark
  repeat local got = pair.client.udp:recv() until got.data == mark
end

--- One datagram each way, from the right ports; raises when it does not pass.
function player.exchange(pair, data)
  serial = serial + 1
  data = data or ("exchange " .. serial)
  pair.client.udp:send(data, pair.ip, pair.host_port)
  pair.host.udp:expect(data, pair.ip, pair.client_port)
  pair.host.udp:send(data, pair.ip, pair.client_port)
  pair.client.udp:expect(data, pair.ip, pair.host_port)
end

return player
