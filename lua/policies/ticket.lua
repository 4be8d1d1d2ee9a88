-- SPDX-License-Identifier: MIT
--
-- Only players with a ticket: a JWT that your backend signed and the game sends as a word of its first
-- command, `register-host ticket=eyJ...`. `moonrelay ticket --sub alice` mints one for trying.
--
--     { "ticket", key = env "TICKET_KEY" }
--     { "ticket", public_key = file "backend.pub", per_user = 1, claims = { aud = "eu" } }
--
--   key, public_key      one of the two: the secret of HS256 tickets, or the Ed25519 key of EdDSA tickets (32
--                        bytes, or as hex or base64url); a line's end behind it is no part of it
--   word = "ticket"      the word that carries it
--   per_user = 2         sessions that one `sub` may have at once; 0: any number
--   claims = {}          what a ticket must say besides, e.g. { aud = "eu" }
--   tags = { user = "sub", game = "game" }     tag = claim: what the policies behind it see in ev.tags
--
-- Refuses with `ticket-` and missing, malformed, signature, expired, subject (no `sub` that can name a
-- slot) or the name of a claim that is not as it must be; and with `full:user/SUB`. A registration costs
-- 20 us with HS256, 120 us with EdDSA.

local relay = require "relay"
local options = require "relay.options"
local o, keys

local ticket = { api = 1 }

---@param cfg { key?: string, public_key?: string, word?: string, per_user?: integer, claims?: table }
function ticket.load(cfg)
  o = options(cfg, {
    key = { "string" }, public_key = { "string" },
    word = { "string", default = "ticket" },
    per_user = { "number", default = 2, min = 0, max = 1e6, whole = true },
    claims = { "table", default = {}, each = "string or number or boolean" },
    tags = { "table", default = { user = "sub", game = "game" }, each = "string" },
  })
  if (o.key == nil) == (o.public_key == nil) then
    error("set either key (HS256) or public_key (EdDSA)" .. (o.key and ", not both" or ""), 0)
  end
  keys = { [o.key and "hs256" or "eddsa"] = (o.key or o.public_key):gsub("\r?\n$", "") }
  relay.crypto.jwt("", keys) -- raises when it is no key
end

-- A claim such as `aud` may be a list.
local function says(claim, wanted)
  if type(claim) ~= "table" then return claim == wanted end
  for _, item in ipairs(claim) do
    if item == wanted then return true end
  end
  return false
end

---@param ev relay.RegisterEvent
---@return relay.RegisterAnswer|false, string?
function ticket.register(ev)
  local claims, _, code = relay.crypto.jwt(ev.meta[o.word], keys)
  if not claims then return false, "ticket-" .. code end
  for name, wanted in pairs(o.claims) do
    if not says(claims[name], wanted) then return false, "ticket-" .. name end
  end
  local sub = claims.sub
  if type(sub) ~= "string" or not sub:find("^[!-~]+$") or #sub > 100 then return false, "ticket-subject" end
  local tags = {}
  for tag, claim in pairs(o.tags) do
    local value = claims[claim]
    if type(value) == "string" or type(value) == "number" then tags[tag] = value end
  end
  return { tags = tags, slots = o.per_user > 0 and { ["user/" .. sub] = o.per_user } or nil }
end

return ticket
