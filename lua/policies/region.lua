-- SPDX-License-Identifier: MIT
--
-- Regions by net: players of one region meet directly, players of two through the relay, and who is
-- nearer to another server of yours is told where to go.
--
--     { "region", regions = file "regions.txt", here = "eu" }
--     { "region", regions = { ["203.0.113.0/24"] = "asia", ["198.51.100.0/24"] = "us" }, here = "eu",
--       other = { asia = "asia.example.org" } }
--
--   regions             net = region (the longest match counts), or text with "NET REGION" on each line
--   here                the region of whoever is in none of these nets
--   other = {}          region = server: its players are refused with `use-SERVER`
--   across = "relay"    how two regions meet: "relay" or "direct"
--
-- Sets the tag `region`. A hook costs a few us, however many nets there are.

local relay = require "relay"
local options = require "relay.options"
local o, nets

local region = { api = 1 }

---@param cfg { regions: table<string, string>|string, here: string, other?: table, across?: string }
function region.load(cfg)
  o = options(cfg, {
    regions = { "table or string", needed = "which net is which region", each = "string" },
    here = { "string", needed = "the region of this server" },
    other = { "table", default = {}, each = "string" },
    across = { "string", default = "relay", among = { "relay", "direct" } },
  })
  local bad
  nets, bad = relay.cidr(o.regions)
  if not nets then error("regions: " .. bad, 0) end
  if o.other[o.here] then error(("other.%s: that is here"):format(o.here), 0) end
end

---@param ev relay.RegisterEvent
---@return relay.RegisterAnswer|false, string?
function region.register(ev)
  local name = nets:get(ev.session.ip)
  if type(name) ~= "string" then name = o.here end -- no net, or one without a region
  if o.other[name] then return false, "use-" .. o.other[name] end
  return { tags = { region = name } }
end

---@param ev relay.ConnectEvent
---@return relay.ConnectAnswer?
function region.connect(ev)
  if ev.to and ev.to.tags.region ~= ev.from.tags.region then return { via = o.across } end
end

return region
