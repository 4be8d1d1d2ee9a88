-- SPDX-License-Identifier: MIT
--
-- A record in the log of everything that happened: who was connected with whom, which relay began and
-- ended with how much traffic, who left and why. It decides nothing.
--
--     { "audit" }
--     { "audit", events = { "connected", "left" }, addresses = "net", tags = { "user", "game" } }
--
--   events = { "connected", "created", "destroyed", "left" }     which of them
--   tags = { "user" }                                            which tags of a player are told
--   addresses = "full"                                           "full", "net" (/64 of IPv6), "none"
--   level = "info"                                               "debug", "info", "warn"
--
-- Records are named after their event; with the setting log_format = json each is an object. An event
-- costs ten us.

local relay = require "relay"
local options = require "relay.options"
local NOTICES = { "connected", "created", "destroyed", "left" }
local SHOWN = {
  full = function(address) return address end,
  net = function(_, net) return net end,
  none = function() end,
}
local o

-- Fields of a player: "from" gives from, from_ip, from_user.
local function add_session(fields, prefix, session)
  if not session then return end
  fields[prefix] = session.oid
  fields[prefix .. "_ip"] = SHOWN[o.addresses](session.ip, session.net)
  for _, tag in ipairs(o.tags) do fields[prefix .. "_" .. tag] = session.tags[tag] end
end

local function add_relay(fields, r)
  fields.relay, fields.port, fields.seconds = r.id, r.port, r.age
  fields.bytes_in, fields.bytes_out, fields.drops = r.bytes_in, r.bytes_out, r.drops
  fields.packets_in, fields.packets_out = r.packets_in, r.packets_out
  fields.peer = SHOWN[o.addresses](r.addr.text, r.addr.net)
end

local function record(event)
  return function(ev)
    if not o.wanted[event] then return end
    local fields = { reason = ev.reason, mode = ev.mode, via = ev.via }
    add_session(fields, "from", ev.from)
    add_session(fields, "to", ev.to)
    add_session(fields, "player", ev.session)
    if ev.relay then add_relay(fields, ev.relay) end
    relay.log[o.level](event, fields)
  end
end

local audit = { api = 1, connected = record "connected", created = record "created",
  destroyed = record "destroyed", left = record "left" }

---@param cfg { events?: string[], tags?: string[], addresses?: "full"|"net"|"none", level?: string }
function audit.load(cfg)
  o = options(cfg, {
    events = { "table", default = NOTICES, each = NOTICES },
    tags = { "table", default = { "user" }, each = "string" },
    addresses = { "string", default = "full", among = { "full", "net", "none" } },
    level = { "string", default = "info", among = { "debug", "info", "warn" } },
  })
  o.wanted = {}
  for _, name in ipairs(o.events) do o.wanted[name] = true end
  for _, tag in ipairs(o.tags) do
    if not tag:find("^[a-z0-9_]+$") or #tag > 20 then
      error(("tags: '%s' cannot name a field (1 to 20 of a-z 0-9 _)"):format(tag), 0)
    end
  end
end

return audit
