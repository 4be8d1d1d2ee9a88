-- SPDX-License-Identifier: MIT
--
-- Tries something new on a share of the players. Who is chosen stays chosen: a hash of the player's
-- key tells, so it is the same ones over reconnects, reloads and several servers, and a higher
-- percentage only adds some.
--
--     { "canary", percent = 5, tags = { canary = "yes" } }    -- the policies behind it look at the tag
--     { "canary", percent = 10, by = "user", bps = 65536 }    -- other limits
--     { "canary", percent = 25, others = "not-yet" }          -- a launch in steps
--
--   percent                      0 to 100, fractions are fine
--   by = "net"                   the key: "net" (address, /64 of IPv6), "ip", or a tag such as "user"; for
--                                whoever does not have the tag the net
--   salt = "canary"              another salt chooses others; the same on two servers chooses the same
--   tags = { canary = "yes" }    what the chosen get at register
--   via                          "relay" or "direct": how `connect` of the chosen goes
--   idle, ttl                    seconds, and
--   bps, pps, max_bytes          bytes and datagrams a second, bytes in all: limits of their relays
--   others                       a reason: who is not chosen is refused with it
--
-- Refuses with `others` only. A hook costs ten us.

local relay = require "relay"
local options = require "relay.options"
local o

-- The first 32 bits of the hash as a share of all that there are.
local function is_chosen(session, tags)
  local key = session[o.by == "ip" and "ip" or "net"]
  if o.by ~= "net" and o.by ~= "ip" then key = tags[o.by] or key end
  local hash = relay.crypto.hex(relay.crypto.hmac_sha256(o.salt, key))
  return tonumber(hash:sub(1, 8), 16) / 2 ^ 32 * 100 < o.percent
end

local canary = { api = 1 }

---@param cfg { percent: number, by?: string, salt?: string, tags?: table<string, string>, via?: string }
function canary.load(cfg)
  o = options(cfg, {
    percent = { "number", needed = "how many of a hundred players", min = 0, max = 100 },
    by = { "string", default = "net" },
    salt = { "string", default = "canary" },
    tags = { "table", default = { canary = "yes" }, each = "string" },
    via = { "string", among = { "relay", "direct" } },
    others = { "string" },
    idle = { "number", min = 0.1 }, ttl = { "number", min = 0.1 },
    bps = { "number", min = 1 }, pps = { "number", min = 1 }, max_bytes = { "number", min = 1 },
  })
end

---@param ev relay.RegisterEvent
---@return relay.RegisterAnswer|false|nil, string?
function canary.register(ev)
  if is_chosen(ev.session, ev.tags) then return { tags = o.tags } end
  if o.others then return false, o.others end
end

---@param ev relay.ConnectEvent
---@return relay.ConnectAnswer?
function canary.connect(ev)
  if o.via and is_chosen(ev.from, ev.from.tags) then return { via = o.via } end
end

---@param ev relay.CreateEvent
---@return relay.Spec?
function canary.create(ev)
  if ev.session and is_chosen(ev.session, ev.session.tags) then
    return { idle = o.idle, ttl = o.ttl, max_bytes = o.max_bytes, rate = { bps = o.bps, pps = o.pps } }
  end
end

return canary
