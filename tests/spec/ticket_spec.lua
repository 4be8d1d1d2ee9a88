-- SPDX-License-Identifier: MIT
-- The shipped policy `ticket`: who has a good ticket gets in, with tags and slots of his own.
local shipped = require "shipped"

local KEY = "sesame"
-- Made with openssl for { sub = "alice", game = "chess", exp = 1700000600 }.
local EDDSA_HEX = "41580a71ecaaade5d24b13a59aa811c0f177fb54ec4b1696751cb8515dad4df3"
local EDDSA_BASE64 = "QVgKceyqreXSSxOlmqgRwPF3-1TsSxaWdRy4UV2tTfM"
local EDDSA_TICKET = "eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbGljZSIsImdhbWUiOiJjaGVzcyIsImV4cCI6MTcwMD"
  .. "AwMDYwMH0.bhsAbmU_-LngYSNLg7KyAyR4eHGZWfteuwo8QoL8EIsOD0d7Ygna0wsC8pdZO92K801ovVpjmMK_GTtvqEAADw"

-- The answer to a registration with this ticket.
local function join(t, ticket, word)
  return t:join { ip = "10.0.0.1", udp = false, meta = { [word or "ticket"] = ticket } }
end

local function refused(t, reason, ticket)
  local h = join(t, ticket)
  assert.is_falsy(h.ok)
  assert.same({ "rejected", reason }, { h.code, h.reason })
end

describe("ticket", function()
  it("lets a player in and says who he is", function()
    local h = join(shipped.chain { "ticket", key = KEY }, shipped.ticket(KEY, '{"sub":"alice","game":"chess"}'))
    assert.is_true(h.ok)
    assert.same({ user = "alice", game = "chess" }, h.session.tags)
  end)

  it("refuses with the kind of what is wrong", function()
    local t = shipped.chain { "ticket", key = KEY }
    refused(t, "ticket-missing")
    refused(t, "ticket-malformed", "hello")
    refused(t, "ticket-malformed", "a.b.c")
    refused(t, "ticket-signature", shipped.ticket("other key", '{"sub":"alice"}'))
    refused(t, "ticket-signature", shipped.ticket(KEY, '{"sub":"alice"}', "none"))
    refused(t, "ticket-signature", EDDSA_TICKET)
    refused(t, "ticket-expired", shipped.ticket(KEY, '{"sub":"alice","exp":1699999999}'))
    refused(t, "ticket-expired", shipped.ticket(KEY, '{"sub":"alice","nbf":1700000100}'))
    refused(t, "ticket-subject", shipped.ticket(KEY, '{"game":"chess"}'))
    refused(t, "ticket-subject", shipped.ticket(KEY, '{"sub":"two words"}'))
    refused(t, "ticket-subject", shipped.ticket(KEY, '{"sub":""}'))
    refused(t, "ticket-subject", shipped.ticket(KEY, '{"sub":7}'))
    refused(t, "ticket-subject", shipped.ticket(KEY, '{"sub":"' .. ("x"):rep(101) .. '"}'))
  end)

  it("lets a ticket expire", function()
    local t = shipped.chain { "ticket", key = KEY }
    local ticket = shipped.ticket(KEY, '{"sub":"alice","exp":1700000060}')
    assert.is_true(join(t, ticket).ok)
    t:advance(61)
    refused(t, "ticket-expired", ticket)
  end)

  it("verifies EdDSA with a public key as bytes, hex or base64url, with a line's end or not", function()
    local bytes = EDDSA_HEX:gsub("%x%x", function(x) return string.char(tonumber(x, 16)) end)
    for _, key in ipairs { EDDSA_HEX, EDDSA_BASE64, EDDSA_BASE64 .. "\n", bytes, EDDSA_HEX .. "\r\n" } do
      local t = shipped.chain { "ticket", public_key = key }
      assert.is_true(join(t, EDDSA_TICKET).ok)
      -- A public key is no secret: nobody makes a ticket of it.
      refused(t, "ticket-signature", shipped.ticket(key, '{"sub":"alice"}'))
    end
  end)

  it("takes the line's end of a key file for none of the key", function()
    assert.is_true(join(shipped.chain { "ticket", key = KEY .. "\n" }, shipped.ticket(KEY, '{"sub":"a"}')).ok)
  end)

  it("counts a user's sessions, also over a reload, and gives them back", function()
    local t = shipped.chain { "ticket", key = KEY, per_user = 2 }
    local alice, bob = shipped.ticket(KEY, '{"sub":"alice"}'), shipped.ticket(KEY, '{"sub":"bob"}')
    local first = join(t, alice)
    assert.is_true(first.ok and join(t, alice).ok and join(t, bob).ok)
    local third = join(t, alice)
    assert.same({ "full", "user/alice" }, { third.code, third.reason })
    assert(t:reload())
    assert.equal("full", join(t, alice).code)
    first:leave("closed")
    assert.is_true(join(t, alice).ok)
    assert.equal("full", join(t, alice).code)
  end)

  it("counts nobody when per_user is 0, and one by default two", function()
    local alice = shipped.ticket(KEY, '{"sub":"alice"}')
    local t = shipped.chain { "ticket", key = KEY, per_user = 0 }
    for _ = 1, 10 do assert.is_true(join(t, alice).ok) end
    t = shipped.chain { "ticket", key = KEY }
    assert.is_true(join(t, alice).ok and join(t, alice).ok)
    assert.equal("full", join(t, alice).code)
  end)

  it("reads the ticket from another word", function()
    local t = shipped.chain { "ticket", key = KEY, word = "pass" }
    local ticket = shipped.ticket(KEY, '{"sub":"alice"}')
    assert.is_true(join(t, ticket, "pass").ok)
    assert.equal("ticket-missing", join(t, ticket).reason)
  end)

  it("wants claims, of which one may be a list", function()
    local t = shipped.chain { "ticket", key = KEY, claims = { aud = "eu", beta = true } }
    assert.is_true(join(t, shipped.ticket(KEY, '{"sub":"a","aud":"eu","beta":true}')).ok)
    assert.is_true(join(t, shipped.ticket(KEY, '{"sub":"b","aud":["us","eu"],"beta":true}')).ok)
    for aud, reason in pairs { ['"us"'] = "ticket-aud", ['["us"]'] = "ticket-aud", ["null"] = "ticket-aud" } do
      refused(t, reason, shipped.ticket(KEY, '{"sub":"c","beta":true,"aud":' .. aud .. "}"))
    end
    refused(t, "ticket-beta", shipped.ticket(KEY, '{"sub":"d","aud":"eu"}'))
  end)

  it("makes tags of the claims that are named, when they are text or a number", function()
    local t = shipped.chain { "ticket", key = KEY, tags = { user = "sub", level = "lvl", team = "team" } }
    local h = join(t, shipped.ticket(KEY, '{"sub":"alice","lvl":7,"team":["red"],"game":"chess"}'))
    assert.same({ user = "alice", level = "7" }, h.session.tags)
  end)

  it("wants one key, and one that is a key", function()
    for text, cfg in pairs {
      ["set either key (HS256) or public_key (EdDSA)"] = {},
      ["set either key (HS256) or public_key (EdDSA), not both"] = { key = "a", public_key = EDDSA_HEX },
      ["eddsa is no public key"] = { public_key = "short" },
      ["hs256 is 0 bytes"] = { key = "" },
      ["per_user = 1.5 (a whole number from 0 to 1000000 is expected)"] = { key = "a", per_user = 1.5 },
      ["per_user = -1 (a whole number"] = { key = "a", per_user = -1 },
      ["key is a table (a string is expected)"] = { key = {} },
      ["tags (a table of string values is expected)"] = { key = "a", tags = { user = 7 } },
    } do
      cfg[1] = "ticket"
      local err = shipped.refusal(cfg)
      assert.truthy(err:find(text, 1, true), err)
    end
  end)
end)
