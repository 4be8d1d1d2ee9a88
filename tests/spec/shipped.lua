-- SPDX-License-Identifier: MIT
-- What the specs of shipped policies share: a relay with a chain (relay.testing), loads that must fail, tickets.
local testing = require "relay.testing"

local shipped = {}

shipped.root = os.getenv("MR_SOURCE_DIR") or "."
shipped.names = { "allowlist", "audit", "bans", "canary", "dynamic", "hosts", "lobby", "quota", "region", "ticket",
  "webhook" }

--- A relay for both families of addresses.
function shipped.new(settings)
  settings = settings or {}
  settings.udp_host = "::"
  return testing.new { now = 1700000000, settings = settings }
end

--- The same with a chain of these entries.
function shipped.chain(...)
  local t = shipped.new()
  assert(t:load { policies = { ... } })
  return t
end

--- What a load of this entry is refused with.
function shipped.refusal(entry, prepare)
  local t = shipped.new()
  if prepare then prepare(t) end
  local ok, err = t:load { policies = { entry } }
  assert(ok == nil and type(err) == "string", "it loaded")
  return err
end

--- The text of a file of the project.
function shipped.read(path)
  local file = assert(io.open(shipped.root .. "/" .. path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

-- Made by a policy, since it has what signing needs.
local MINT = [[
local relay = require "relay"
return { commands = { sign = function(key, alg, claims)
  local head = relay.crypto.base64url(('{"alg":"%s","typ":"JWT"}'):format(alg))
  local text = head .. "." .. relay.crypto.base64url(claims)
  return text .. "." .. relay.crypto.base64url(relay.crypto.hmac_sha256(key, text))
end } }
]]
local minter

--- A ticket with these claims (JSON), signed with HS256.
function shipped.ticket(key, claims, alg)
  minter = minter or shipped.chain { chunk = MINT, name = "mint" }
  return (assert(minter:call("mint", "sign", key, alg or "HS256", claims)))
end

return shipped
