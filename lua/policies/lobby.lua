-- SPDX-License-Identifier: MIT
--
-- Short room codes that players tell each other: typed in any case, and a user's own over reconnects,
-- when his new session takes the code over from the old one. Who connects to `lobby:any` gets
-- somebody's open room (a host opens his with `register-host open=yes`).
--
--     { "lobby" }
--     { "lobby", length = 5, same = { "game", "region" } }     -- behind ticket and region: they set these
--
--   length = 4             letters of a code, 3 to 12
--   keep = 3600            seconds in which a user's code stays his, 1 to 86400; `ticket` sets the tag `user`
--   any = "lobby:any"      the oid that finds an open room
--   same = { "game" }      tags that the player and the room found must have in common
--
-- Refuses with `no-open-room` and, when the codes are used up, `no-codes`. Sets the tag `open`. A code
-- costs 20 us, looking for a room a look at every player.

local relay = require "relay"
local options = require "relay.options"
local LETTERS = "ABCDEFGHJKMNPQRSTVWXYZ" -- I, L and O look like digits, U makes words
local o, codes

-- One that nobody has; nil after ten that somebody had.
local function draw()
  for _ = 1, 10 do
    local code = {}
    for i = 1, o.length do
      local k = relay.crypto.random_int(#LETTERS)
      code[i] = LETTERS:sub(k, k)
    end
    local text = table.concat(code)
    if not relay.session(text) then return text end
  end
end

local lobby = { api = 1 }

---@param cfg { length?: integer, keep?: number, any?: string, same?: string[] }
function lobby.load(cfg)
  o = options(cfg, {
    length = { "number", default = 4, min = 3, max = 12, whole = true },
    keep = { "number", default = 3600, min = 1, max = 86400 },
    any = { "string", default = "lobby:any" },
    same = { "table", default = { "game" }, each = "string" },
  })
  codes = relay.store("codes", { max = 100000, ttl = o.keep })
end

---@param ev relay.RegisterEvent
---@return relay.RegisterAnswer|false, string?
function lobby.register(ev)
  local user = ev.tags.user
  local code = user and codes:get(user) or draw()
  if not code then return false, "no-codes" end
  if user then codes:set(user, code) end -- a full store: the code is not kept, which is no reason to refuse
  return { oid = code, takeover = user ~= nil, tags = { open = ev.meta.open == "yes" and "yes" or "no" } }
end

---@param ev relay.ConnectEvent
---@return relay.ConnectAnswer|false|nil, string?
function lobby.connect(ev)
  if ev.oid ~= o.any then
    local code = ev.oid:upper()
    if not ev.to and code ~= ev.oid then return { oid = code } end
    return
  end
  local wanted = { open = "yes" }
  for _, tag in ipairs(o.same) do wanted[tag] = ev.from.tags[tag] end
  for _, room in ipairs(relay.sessions(wanted, 2)) do -- the second is for whoever's own is the first
    if room.id ~= ev.from.id then return { oid = room.oid } end
  end
  return false, "no-open-room"
end

return lobby
