-- SPDX-License-Identifier: MIT
-- A game that goes on while a test does something else: numbered datagrams both ways between two players, as long
-- as the loop turns. Start reading at traffic.start; Traffic:stop says how many were lost.
local uv = require "luv"
local loop = require "loop"

local Traffic = {}
Traffic.__index = Traffic

local traffic = {}

local EVERY_MS = 4

local function send(self)
  local pair = self.pair
  -- A test that failed closes everything in any order, and to send on a closed handle opens it again.
  if pair.client.udp.handle:is_closing() or pair.host.udp.handle:is_closing() then return self.handle:stop() end
  self.sent = self.sent + 1
  pair.client.udp:send("up " .. self.sent, pair.ip, pair.host_port)
  pair.host.udp:send("down " .. self.sent, pair.ip, pair.client_port)
end

-- What has come, each once.
local function receive(self)
  for direction, socket in pairs { up = self.pair.host.udp, down = self.pair.client.udp } do
    for datagram in function() return socket:take() end do
      local number = tonumber(datagram.data:match("^" .. direction .. " (%d+)$"))
      if not number then error("the game received what nobody sent it: " .. datagram.data, 0) end
      if self.seen[datagram.data] then error("the game received twice: " .. datagram.data, 0) end
      self.seen[datagram.data] = true
      self.received = self.received + 1
    end
  end
end

--- Starts a game between the players of a pair (player.pair). The sockets are the game's until it stops.
function traffic.start(pair)
  local self = setmetatable({ pair = pair, sent = 0, received = 0, seen = {} }, Traffic)
  self.handle = uv.new_timer()
  loop.own(self)
  self.handle:start(0, EVERY_MS, function()
    send(self)
    receive(self)
  end)
  return self
end

function Traffic:close()
  if not self.handle:is_closing() then self.handle:close() end
  loop.turn()
end

--- Ends the game; an error when a datagram of it is missing. Returns how many there were.
function Traffic:stop()
  self:close()
  local all = loop.try(function()
    receive(self)
    return self.received == 2 * self.sent
  end)
  if not all then error(2 * self.sent - self.received .. " of " .. 2 * self.sent .. " datagrams are lost", 2) end
  if self.sent == 0 then error("the game has sent nothing", 2) end
  return self.received
end

return traffic
