-- SPDX-License-Identifier: MIT
--
-- Dynamic relaying: whoever sends to a relay's port without having a relay gets one, and what it sent
-- meanwhile is delivered in order. Players need it whose NAT gives them another port in the middle of a
-- game (right after connect-relay they are recognized without it, see latch_window). In the chain by default:
--
--     policies = { "dynamic" }                              -- players of this server only
--     policies = { { "dynamic", from = "anyone" } }         -- noray's rule
--
--   from = "sessions"   admits addresses that have, or had in the last 10 minutes, a session here
--   from = "anyone"     admits every sender
--
-- It has no opinion on anybody else, so a stranger's datagram stays dropped and is counted as
-- `unknown_sender`, unless a policy behind it admits it. How many relays an address and a port may get
-- this way is limited by the settings dynamic_per_address, dynamic_per_target, dynamic_share. It costs
-- a few us for each new flow.

local options = require "relay.options"
local anyone = false

local dynamic = { api = 1 }

--- Takes this use's settings from the config file.
---@param cfg { from?: "sessions"|"anyone" }
function dynamic.load(cfg)
  local o = options(cfg, { from = { "string", default = "sessions", among = { "sessions", "anyone" } } })
  anyone = o.from == "anyone"
end

--- Admits the sender of a datagram that no relay is known for.
---@param ev relay.DropEvent
---@return relay.Spec? # {}: a relay with the limits of the settings; nil: no opinion
function dynamic.drop(ev)
  if ev.reason == "unknown_sender" and (anyone or ev.known) then
    return {}
  end
end

return dynamic
