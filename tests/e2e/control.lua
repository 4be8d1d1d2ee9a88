-- SPDX-License-Identifier: MIT
-- A client of the control socket: HTTP with JSON on a unix socket, as many requests on a connection as one
-- likes. Start reading at control.connect.
local uv = require "luv"
local http = require "http"
local loop = require "loop"

local Control = {}
Control.__index = Control

local control = {}

--- Connects to the daemon's control socket, which the setting `control` puts into its folder. `path` is for
--- one elsewhere.
function control.connect(server, path)
  local self = setmetatable({ buffer = "", ended = false }, Control)
  path = path or server.dir .. "/" .. server.opts.set.control
  self.handle = uv.new_pipe(false)
  loop.own(self)
  local done, err
  self.handle:connect(path, function(e) done, err = true, e end)
  loop.wait(function() return done end, "a connection to " .. path)
  if err then
    self:close()
    error("cannot connect to " .. path .. ": " .. err, 2)
  end
  self.handle:read_start(function(e, data)
    if data then self.buffer = self.buffer .. data else self.failure, self.ended = e, true end
  end)
  return self
end

-- A whole response at the buffer's start, with its body, and where it ends.
local function complete(text)
  local head_end = select(2, text:find("\r\n\r\n", 1, true))
  if not head_end then return nil end
  local response = assert(http.parse(text))
  local length = tonumber(response.headers["content-length"]) or 0
  if #text - head_end < length then return nil end
  response.body = text:sub(head_end + 1, head_end + length)
  return response, head_end + length
end

--- Sends a request without waiting; answers come in order.
function Control:send(method, path, body)
  self.handle:write(string.format("%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", method, path,
    #(body or ""), body or ""))
  loop.turn()
end

--- The next response { status, headers, body }, nil when none has come.
function Control:take()
  local response, n = complete(self.buffer)
  if response then self.buffer = self.buffer:sub(n + 1) end
  return response
end

--- A request and its response.
function Control:request(method, path, body, seconds)
  self:send(method, path, body)
  local response
  loop.wait(function()
    response = self:take()
    return response or self.ended
  end, function() return "the answer to " .. method .. " " .. path end, seconds)
  if not response then error(method .. " " .. path .. ": the connection has ended", 2) end
  return response
end

--- Reloads; raises unless it was taken.
function Control:reload()
  local response = self:request("POST", "/v1/reload", nil, 30)
  if response.status ~= 200 then error("reload: " .. response.status .. " " .. response.body, 2) end
  return response
end

function Control:close()
  if not self.handle:is_closing() then self.handle:close() end
  loop.turn()
end

return control
