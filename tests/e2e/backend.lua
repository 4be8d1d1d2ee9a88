-- SPDX-License-Identifier: MIT
-- Somebody's backend: as much of an HTTP server as policies need, answered by a function of the test. Start reading
-- at backend.open.
local uv = require "luv"
local loop = require "loop"

local Backend = {}
Backend.__index = Backend

local backend = {}

-- One request of a buffer, or nil.
local function parse(buffer)
  local head, rest = buffer:match("^(.-)\r\n\r\n(.*)$")
  if not head then return nil end
  local length = tonumber(head:lower():match("\r\ncontent%-length: *(%d+)")) or 0
  if #rest < length then return nil end
  local method, path = head:match("^(%u+) (%S+)")
  local headers = {}
  for name, value in head:gmatch("\r\n([%w-]+): *([^\r]*)") do headers[name:lower()] = value end
  return { method = method, path = path, headers = headers, body = rest:sub(1, length) }
end

local function respond(client, response)
  if client:is_closing() then return end
  local body = response.body or ""
  client:write(("HTTP/1.1 %d x\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"):format(
    response.status or 200, response.type or "text/plain", #body, body), function()
    if not client:is_closing() then client:close() end
  end)
end

--- Listens on 127.0.0.1, or on a unix socket at `path`. `answer(request)` gives { status, type, body }; nil: no answer
--- ever comes. It may be changed later as self.answer.
function backend.open(answer, path)
  local self = setmetatable({ clients = {}, requests = {}, answer = answer }, Backend)
  local function new_handle() return path and uv.new_pipe(false) or uv.new_tcp() end
  self.handle = new_handle()
  loop.own(self)
  if path then
    assert(self.handle:bind(path))
  else
    assert(self.handle:bind("127.0.0.1", 0))
    self.url = "http://127.0.0.1:" .. self.handle:getsockname().port
  end
  assert(self.handle:listen(511, function()
    local client, buffer, is_answered = new_handle(), "", false
    self.handle:accept(client)
    self.clients[client] = true
    client:read_start(function(err, data)
      if err or not data then
        if not client:is_closing() then client:close() end
        return
      end
      buffer = buffer .. data
      local request = not is_answered and parse(buffer)
      if not request then return end
      is_answered = true
      self.requests[#self.requests + 1] = request
      local response = self.answer(request)
      if response then respond(client, response) end
    end)
  end))
  return self
end

function Backend:close()
  for client in pairs(self.clients) do
    if not client:is_closing() then client:close() end
  end
  if not self.handle:is_closing() then self.handle:close() end
  loop.turn()
end

return backend
