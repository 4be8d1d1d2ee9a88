-- SPDX-License-Identifier: MIT
--
-- Shares: at most so many relays, and sessions if you like, for each address (for each /64 in IPv6).
-- Nets with many players behind one address get a number of their own.
--
--     { "quota" }
--     { "quota", per_ip = 8, sessions_per_ip = 64, exceptions = { ["198.51.100.0/24"] = 400 } }
--
--   per_ip = 32          relays that one address may hold at once; 0: none
--   sessions_per_ip      sessions; not set: no limit
--   exceptions = {}      net = number, instead of both; the longest match counts
--
-- Players are counted by the address of their TCP connection: the source of a PID may be forged, so
-- that one could use up another's share, or take many. Strangers have no other than their datagram's.
--
-- Refuses with `full:ip/ADDRESS` and `full:sessions/ADDRESS`. C counts the slots and gives them back
-- when a relay or session ends; they are kept over a reload. A hook costs a few us, however many
-- exceptions there are.

local relay = require "relay"
local options = require "relay.options"
local o, exceptions

local quota = { api = 1 }

---@param cfg { per_ip?: integer, sessions_per_ip?: integer, exceptions?: table<string, integer> }
function quota.load(cfg)
  o = options(cfg, {
    per_ip = { "number", default = 32, min = 0, max = 1e6, whole = true },
    sessions_per_ip = { "number", min = 0, max = 1e6, whole = true },
    exceptions = { "table", default = {}, each = "number" },
  })
  for net, number in pairs(o.exceptions) do
    options({ [net] = number }, { [net] = { "number", min = 0, max = 1e6, whole = true } })
  end
  exceptions = relay.cidr(o.exceptions)
end

---@param ev relay.RegisterEvent
---@return relay.RegisterAnswer?
function quota.register(ev)
  if not o.sessions_per_ip then return end
  return { slots = { ["sessions/" .. ev.session.net] = exceptions:get(ev.session.ip) or o.sessions_per_ip } }
end

---@param ev relay.CreateEvent
---@return relay.Spec
function quota.create(ev)
  local from = ev.session or ev.addr
  return { slots = { ["ip/" .. from.net] = exceptions:get(from.ip) or o.per_ip } }
end

return quota
