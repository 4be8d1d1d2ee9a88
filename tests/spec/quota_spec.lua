-- SPDX-License-Identifier: MIT
-- The shipped policy `quota`: relays and sessions of an address, exceptions, what a reload keeps.
local shipped = require "shipped"

-- A host that nobody counts against: every test's client joins him from elsewhere.
local function host(t) return t:join { udp = "192.0.2.99:4000" } end

local function client(t, udp) return t:join { udp = udp } end

describe("quota", function()
  it("gives an address only so many relays at once", function()
    local t = shipped.chain { "quota", per_ip = 2 }
    local h = host(t)
    for i = 1, 2 do assert.is_true(t:connect(client(t, "10.0.0.1:400" .. i), h.session.oid, { mode = "relay" }).ok) end
    local third = client(t, "10.0.0.1:4003")
    local j = t:connect(third, h.session.oid, { mode = "relay" })
    assert.is_falsy(j.ok)
    assert.same({ "full", "ip/10.0.0.1" }, { j.code, j.reason })
    assert.is_true(t:connect(client(t, "10.0.0.2:4000"), h.session.oid, { mode = "relay" }).ok)
  end)

  it("counts a player by his connection, not by the address that a PID was shown from", function()
    local t = shipped.chain { "quota", per_ip = 2, exceptions = { ["10.5.0.0/16"] = 9 } }
    local h = host(t)
    local function forge(udp)
      return t:connect(t:join { ip = "10.0.0.66", udp = udp }, h.session.oid, { mode = "relay" })
    end
    assert.is_true(forge("10.0.0.1:4001").ok and forge("10.5.0.1:4001").ok)
    local j = forge("10.5.0.2:4001")
    assert.same({ "full", "ip/10.0.0.66" }, { j.code, j.reason })
    for i = 1, 2 do assert.is_true(t:connect(client(t, "10.0.0.1:500" .. i), h.session.oid, { mode = "relay" }).ok) end
  end)

  it("gives a relay back when it ends, and counts over a reload", function()
    local t = shipped.chain { "quota", per_ip = 1 }
    local h = host(t)
    local j = t:connect(client(t, "10.0.0.1:4001"), h.session.oid, { mode = "relay" })
    local second = client(t, "10.0.0.1:4002")
    assert.equal("full", t:connect(second, h.session.oid, { mode = "relay" }).code)
    assert(t:reload())
    assert.equal("full", t:connect(second, h.session.oid, { mode = "relay" }).code)
    t:close(j.relay.id)
    assert.is_true(t:connect(second, h.session.oid, { mode = "relay" }).ok)
  end)

  it("neither counts the host when the client is refused", function()
    local t = shipped.chain { "quota", per_ip = 1 }
    local h = host(t)
    assert.is_true(t:connect(client(t, "10.0.0.1:4001"), h.session.oid, { mode = "relay" }).ok)
    local other = t:join { udp = "192.0.2.77:1024" }
    -- 10.0.0.1 is full: the new host's relay is not made either, so he can still have his one.
    assert.equal("full", t:connect(client(t, "10.0.0.1:4002"), other.session.oid, { mode = "relay" }).code)
    assert.is_true(t:connect(client(t, "10.0.0.3:4000"), other.session.oid, { mode = "relay" }).ok)
  end)

  it("counts a /64 of IPv6 as one", function()
    local t = shipped.chain { "quota", per_ip = 2 }
    local h = t:join { udp = "[2001:db8:ffff::1]:4000" }
    assert.is_true(t:connect(client(t, "[2001:db8:1:2::1]:4000"), h.session.oid, { mode = "relay" }).ok)
    assert.is_true(t:connect(client(t, "[2001:db8:1:2:ffff::9]:4000"), h.session.oid, { mode = "relay" }).ok)
    local j = t:connect(client(t, "[2001:db8:1:2::7]:4000"), h.session.oid, { mode = "relay" })
    assert.same({ "full", "ip/2001:db8:1:2::/64" }, { j.code, j.reason })
    assert.is_true(t:connect(client(t, "[2001:db8:1:3::1]:4000"), h.session.oid, { mode = "relay" }).ok)
  end)

  it("gives nets of their own a number of their own, the longest match counts", function()
    local t = shipped.chain { "quota", per_ip = 1, sessions_per_ip = 9,
      exceptions = { ["10.0.0.0/8"] = 2, ["10.1.0.0/16"] = 0, ["2001:db8:5::/48"] = 3 } }
    local h = host(t)
    local function relays(ip)
      for n = 0, 9 do
        local c = client(t, ip .. ":" .. 5000 + n)
        if not c.ok or not t:connect(c, h.session.oid, { mode = "relay" }).ok then return n end
      end
    end
    assert.equal(1, relays "192.168.0.1")
    assert.equal(2, relays "10.0.0.1")
    assert.equal(0, relays "10.1.0.1")
    assert.equal(3, relays "[2001:db8:5::1]")
    assert.equal(1, relays "[2001:db8:6::1]")
  end)

  it("limits sessions by the address of the connection, when told to", function()
    local t = shipped.chain { "quota", sessions_per_ip = 1, exceptions = { ["10.0.0.2"] = 2 } }
    local first = t:join { ip = "10.0.0.1", udp = false }
    local second = t:join { ip = "10.0.0.1", udp = false }
    assert.is_true(first.ok)
    assert.same({ "full", "sessions/10.0.0.1" }, { second.code, second.reason })
    assert.is_true(t:join({ ip = "10.0.0.2", udp = false }).ok and t:join({ ip = "10.0.0.2", udp = false }).ok)
    assert.equal("full", t:join({ ip = "10.0.0.2", udp = false }).code)
    first:leave("reset")
    assert.is_true(t:join({ ip = "10.0.0.1", udp = false }).ok)
    t = shipped.chain { "quota" }
    for _ = 1, 10 do assert.is_true(t:join({ ip = "10.0.0.1", udp = false }).ok) end
  end)

  it("leaves strangers that nobody else refused their share", function()
    local t = shipped.chain({ "quota", per_ip = 1 }, { "dynamic", from = "anyone" })
    local h = host(t)
    local j = t:connect(client(t, "10.0.0.1:4001"), h.session.oid, { mode = "relay" })
    assert.is_true(t:drop({ sender = "203.0.113.5:4000", port = j.host_relay.port, data = "hi" }).ok)
    local d = t:drop { sender = "203.0.113.5:4001", port = j.host_relay.port, data = "hi" }
    assert.same({ "full", "ip/203.0.113.5" }, { d.code, d.reason })
  end)

  it("admits 32 relays by default, and none when told 0", function()
    local t = shipped.chain { "quota" }
    local h = host(t)
    for i = 1, 32 do
      assert.is_true(t:connect(client(t, "10.0.0.1:" .. 4000 + i), h.session.oid, { mode = "relay" }).ok)
    end
    assert.equal("full", t:connect(client(t, "10.0.0.1:4999"), h.session.oid, { mode = "relay" }).code)
    t = shipped.chain { "quota", per_ip = 0 }
    assert.equal("full", t:connect(client(t, "10.0.0.1:4000"), host(t).session.oid, { mode = "relay" }).code)
  end)

  it("refuses numbers and nets that are none", function()
    for text, cfg in pairs {
      ["per_ip = -1 (a whole number from 0 to 1000000 is expected)"] = { per_ip = -1 },
      ["sessions_per_ip = 0.5 (a whole number"] = { sessions_per_ip = 0.5 },
      ["10.0.0.0/8 = 1.5 (a whole number"] = { exceptions = { ["10.0.0.0/8"] = 1.5 } },
      ["exceptions (a table of number values is expected)"] = { exceptions = { ["10.0.0.0/8"] = "many" } },
      ["10.0.0.0/33"] = { exceptions = { ["10.0.0.0/33"] = 4 } },
      ["10.0.0.1/8"] = { exceptions = { ["10.0.0.1/8"] = 4 } },
    } do
      cfg[1] = "quota"
      local err = shipped.refusal(cfg)
      assert.truthy(err:find(text, 1, true), err)
    end
  end)
end)
