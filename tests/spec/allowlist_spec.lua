-- SPDX-License-Identifier: MIT
-- The shipped policy `allowlist`: nobody from elsewhere registers, has a relay or knocks.
local shipped = require "shipped"

local NETS = { "10.0.0.0/24", "192.0.2.7", "2001:db8:7::/48" }

describe("allowlist", function()
  it("lets players of its nets register and play", function()
    local t = shipped.chain { "allowlist", nets = NETS }
    local h, c = t:join { udp = "10.0.0.1:4000" }, t:join { udp = "192.0.2.7:4000" }
    assert.is_true(t:connect(c, h.session.oid, { mode = "relay" }).ok)
    assert.is_true(t:join({ ip = "2001:db8:7:9::1", udp = false }).ok)
  end)

  it("refuses others at register, and says so", function()
    local t = shipped.chain { "allowlist", nets = NETS }
    for _, ip in ipairs { "10.0.1.1", "192.0.2.8", "2001:db8:8::1" } do
      local h = t:join { ip = ip, udp = false }
      assert.same({ "rejected", "not-allowed" }, { h.code, h.reason })
    end
    t = shipped.chain { "allowlist", nets = NETS, reason = "members-only" }
    assert.equal("members-only", t:join({ ip = "10.0.1.1", udp = false }).reason)
  end)

  it("refuses a relay to an address outside, whoever registered it", function()
    local t = shipped.chain { "allowlist", nets = NETS }
    local h = t:join { udp = "10.0.0.1:4000" }
    local c = t:join { ip = "10.0.0.2", udp = "10.0.9.9:4000" }
    local j = t:connect(c, h.session.oid, { mode = "relay" })
    assert.same({ "rejected", "not-allowed" }, { j.code, j.reason })
  end)

  it("keeps strangers from outside away from an open dynamic policy", function()
    local t = shipped.chain({ "allowlist", nets = NETS }, { "dynamic", from = "anyone" })
    local h, c = t:join { udp = "10.0.0.1:4000" }, t:join { udp = "10.0.0.2:4000" }
    local j = t:connect(c, h.session.oid, { mode = "relay" })
    local d = t:drop { sender = "203.0.113.5:4000", port = j.host_relay.port, data = "hi" }
    assert.same({ "rejected", "not-allowed" }, { d.code, d.reason })
    assert.is_true(t:drop({ sender = "10.0.0.3:4000", port = j.host_relay.port, data = "hi" }).ok)
  end)

  it("takes the text of a file for its nets", function()
    local t = shipped.chain { "allowlist", nets = "# school\n10.0.0.0/24\n2001:db8:7::/48 lab\n" }
    assert.is_true(t:join({ ip = "10.0.0.200", udp = false }).ok)
    assert.is_falsy(t:join({ ip = "10.0.1.200", udp = false }).ok)
  end)

  it("refuses lists that are none", function()
    for text, cfg in pairs {
      ["set nets: who may come"] = {},
      ["nets: there is none"] = { nets = {} },
      ["nets: line 2: not a network: lab"] = { nets = "10.0.0.0/8\nlab\n" },
      ["10.0.0.1/8"] = { nets = { "10.0.0.1/8" } },
      ["mute = 0 (a number from 1 to 86400 is expected)"] = { nets = NETS, mute = 0 },
    } do
      cfg[1] = "allowlist"
      local err = shipped.refusal(cfg)
      assert.truthy(err:find(text, 1, true), err)
    end
  end)
end)
