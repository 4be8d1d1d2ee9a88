-- SPDX-License-Identifier: MIT
--
-- A list of banned addresses and nets from a file or a URL, read again now and then. It is there
-- before the first decision, and there is no moment without it: a source that is away, slow, empty or
-- no list stops a start or reload, and later on keeps the last good list.
--
--     { "bans", source = "bans.txt" }
--     { "bans", source = "https://example.org/bans.txt", every = 300, token = env "BANS_TOKEN" }
--
--   source               file below the config file's folder, or http(s) URL; one net a line, # comments
--   every = 60           seconds between two readings, 1 to 86400
--   timeout = 5          seconds for a URL, up to 9
--   token                sent as `authorization: Bearer TOKEN`
--   reason = "banned"    what `moonrelay blocks` and the log say of it
--   allow_empty = false  whether a list without any net is one, and no broken source
--
-- Who is on the list is refused with `blocked`, and what he has when he gets on it ends. It has no
-- hooks: C looks addresses up, so 100,000 nets cost no hook anything, and a datagram of theirs wakes
-- no policy.

local relay = require "relay"
local options = require "relay.options"
local MAX_BYTES = 16 * 1024 * 1024 -- of a list, as relay.read has it
local o

local function fetch()
  if not o.source:find("^https?://") then return relay.read(o.source) end
  local res, err = relay.http { url = o.source, timeout = o.timeout, max_bytes = MAX_BYTES,
    headers = o.token and { authorization = "Bearer " .. o.token } or nil }
  if not res then return nil, err end
  if res.status ~= 200 then return nil, "status " .. res.status end
  return res.body
end

local function refresh()
  local text, err = fetch()
  if not text then return nil, err end
  local nets, bad = relay.cidr(text)
  if not nets then return nil, bad end
  if nets:len() == 0 and not o.allow_empty then return nil, "it is empty (allow_empty = true?)" end
  relay.blocklist(nets, o.reason)
  return true
end

local bans = { api = 1 }

---@param cfg { source: string, every?: number, timeout?: number, token?: string, reason?: string }
function bans.load(cfg)
  o = options(cfg, {
    source = { "string", needed = "a file or a URL" },
    every = { "number", default = 60, min = 1, max = 86400 },
    timeout = { "number", default = 5, min = 0.1, max = 9 },
    token = { "string" },
    reason = { "string", default = "banned" },
    allow_empty = { "boolean", default = false },
  })
  local ok, why = refresh()
  if not ok then error(("source %s: %s"):format(o.source, why), 0) end
  relay.every(o.every, function()
    local fine, problem = refresh()
    if not fine then relay.log.warn("ban list kept", { source = o.source, error = problem }) end
  end)
end

return bans
