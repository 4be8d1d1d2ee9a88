-- SPDX-License-Identifier: MIT
--
-- For a closed server: only addresses of the listed nets may register, have a relay or knock at a
-- port.
--
--     { "allowlist", nets = { "192.0.2.0/24", "2001:db8:7::/48" } }
--     { "allowlist", nets = file "allowed.txt", reason = "members-only" }
--
--   nets                      a list of nets and addresses, or text with one a line and # comments
--   reason = "not-allowed"    what others are told
--   mute = 60                 seconds in which a stranger's flow asks no policy again, 1 to 86400
--
-- register looks at the address of the TCP connection; create and drop look at that of the UDP socket,
-- since it is where the relay would send to. Refuses with the reason. A reload reads the list again. A
-- hook costs a few us, however many nets there are.

local relay = require "relay"
local options = require "relay.options"
local o, nets

local allowlist = { api = 1 }

---@param cfg { nets: string[]|string, reason?: string, mute?: number }
function allowlist.load(cfg)
  o = options(cfg, {
    nets = { "table or string", needed = "who may come", each = "string" },
    reason = { "string", default = "not-allowed" },
    mute = { "number", default = 60, min = 1, max = 86400 },
  })
  local bad
  nets, bad = relay.cidr(o.nets)
  if not nets then error("nets: " .. bad, 0) end
  if nets:len() == 0 then error("nets: there is none, so nobody could come", 0) end
end

---@param ev relay.RegisterEvent
function allowlist.register(ev)
  if not nets:contains(ev.session.ip) then return false, o.reason end
end

---@param ev relay.CreateEvent
function allowlist.create(ev)
  if not nets:contains(ev.addr.ip) then return false, o.reason end
end

---@param ev relay.DropEvent
function allowlist.drop(ev)
  if not nets:contains(ev.sender.ip) then return false, o.reason, { mute = o.mute } end
end

return allowlist
