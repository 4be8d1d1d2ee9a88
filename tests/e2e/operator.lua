-- SPDX-License-Identifier: MIT
-- What an operator does to a running daemon: the program's own commands over the control socket, and changed files.
-- Start reading at operator.start.
local daemon = require "daemon"

local operator = {}

local SOCKET = "control.sock"

--- Like daemon.start, with a control socket; opts.config is the config file, opts.files stand beside it.
function operator.options(opts)
  opts.set = opts.set or {}
  opts.set.control = SOCKET
  return opts
end

--- Runs `moonrelay ...` for this daemon and returns { code, stdout, stderr }.
function operator.run(server, ...)
  local args = { ... }
  args[#args + 1] = "--control"
  args[#args + 1] = server.dir .. "/" .. SOCKET
  return daemon.run(args)
end

--- The same, which must succeed; returns what it printed.
function operator.does(server, ...)
  local result = operator.run(server, ...)
  if result.code ~= 0 then
    local said = result.stdout .. result.stderr
    error("moonrelay " .. table.concat({ ... }, " ") .. ": status " .. result.code .. "\n" .. said, 2)
  end
  return result.stdout
end

--- The same, which must fail; returns what it said.
function operator.fails(server, ...)
  local result = operator.run(server, ...)
  if result.code == 0 then error("moonrelay " .. table.concat({ ... }, " ") .. " succeeds: " .. result.stdout, 2) end
  return result.stdout .. result.stderr
end

--- Writes a file beside the config, all at once as an editor does.
function operator.write(server, name, text)
  local path = server.dir .. "/" .. name
  local file = assert(io.open(path .. ".new", "wb"))
  assert(file:write(text))
  file:close()
  assert(os.rename(path .. ".new", path))
end

return operator
