-- SPDX-License-Identifier: MIT
-- As much of HTTP/1.1 as a GET needs. Start reading at http.get.
local loop = require "loop"
local tcp = require "tcp"

local http = {}

--- Splits a complete response into { status, headers, body }; headers have lower-case names.
function http.parse(text)
  local head, body = text:match("^(.-)\r\n\r\n(.*)$")
  if not head then return nil, "no end of the header" end
  local status = head:match("^HTTP/1%.[01] (%d%d%d)")
  if not status then return nil, "no status line" end
  local headers = {}
  for name, value in head:gmatch("\r\n([%w-]+):[ \t]*([^\r]*)") do headers[name:lower()] = value end
  return { status = tonumber(status), headers = headers, body = body }
end

--- Fetches http://ip:port/path. `opts.method`, `opts.from` (local address).
function http.get(ip, port, path, opts)
  opts = opts or {}
  local client = assert(tcp.connect(ip, port, { from = opts.from }))
  client:send((opts.method or "GET") .. " " .. path .. " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
  loop.wait(function() return client.ended end, "the answer to GET " .. path)
  client:close()
  loop.keep(client)
  local response = assert(http.parse(client.buffer))
  local length = tonumber(response.headers["content-length"])
  if length and opts.method ~= "HEAD" and length ~= #response.body then
    error("GET " .. path .. ": " .. #response.body .. " bytes of a body of " .. length, 2)
  end
  return response
end

return http
