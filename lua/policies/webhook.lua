-- SPDX-License-Identifier: MIT
--
-- Tells your backend what happened, by a POST with JSON, and tries again when it is away. It decides
-- nothing and delays nobody: a notice is told afterwards.
--
--     { "webhook", url = "https://example.org/hook", key = env "HOOK_KEY" }
--     { "webhook", url = "https://example.org/hook", events = { "left", "connected" }, hosts_only = false }
--
--   url                   where to post to
--   events = { "left" }   of connected, created, destroyed, left
--   hosts_only = true     of `left` only players whom somebody joined: everybody registers, hosts are joined
--   key                   signs: `x-moonrelay-signature` is the HMAC-SHA256 of the body with it, in hex
--   tries = 3             1 to 4, the next one 2, 4, 8 seconds later; an answer below 500 is final
--   timeout = 3.5         seconds for one try, 0.1 to 3.5: with four tries that is all that a notice may wait
--
-- The body is { event, now, reason, session, from, to, relay }: what of it the event has, as
-- lua/README.md has it but without `meta`, where tickets are. What it gives up is an error in the log.
-- 32 requests run at once. An event costs 50 us.

local relay = require "relay"
local options = require "relay.options"
local o

local function without_meta(session)
  if session then session.meta = nil end -- ev is our own copy
  return session
end

local function post(event, ev)
  local body = relay.json.encode { event = event, now = ev.now, reason = ev.reason, relay = ev.relay,
    session = without_meta(ev.session), from = without_meta(ev.from), to = without_meta(ev.to) }
  local headers = { ["content-type"] = "application/json" }
  if o.key then headers["x-moonrelay-signature"] = relay.crypto.hex(relay.crypto.hmac_sha256(o.key, body)) end
  local why
  for try = 1, o.tries do
    local res, err = relay.http { url = o.url, method = "POST", headers = headers, body = body,
      timeout = o.timeout }
    if res and res.status < 300 then return end
    why = res and "status " .. res.status or err
    if try == o.tries or res and res.status < 500 then break end
    relay.sleep(2 ^ try)
  end
  relay.log.error("webhook gave up", { event = event, error = why })
end

local function notice(event)
  return function(ev)
    if not o.wanted[event] then return end
    if event == "left" and o.hosts_only and ev.session.joins == 0 then return end
    post(event, ev)
  end
end

local webhook = { api = 1, connected = notice "connected", created = notice "created",
  destroyed = notice "destroyed", left = notice "left" }

---@param cfg { url: string, events?: string[], hosts_only?: boolean, key?: string, tries?: integer }
function webhook.load(cfg)
  o = options(cfg, {
    url = { "string", needed = "where to post to" },
    events = { "table", default = { "left" }, each = { "connected", "created", "destroyed", "left" } },
    hosts_only = { "boolean", default = true },
    key = { "string" },
    tries = { "number", default = 3, min = 1, max = 4, whole = true },
    timeout = { "number", default = 3.5, min = 0.1, max = 3.5 },
  })
  if not o.url:find("^https?://") then error("url does not begin with http:// or https://", 0) end
  o.wanted = {}
  for _, name in ipairs(o.events) do o.wanted[name] = true end
end

return webhook
