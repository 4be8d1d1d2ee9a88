-- SPDX-License-Identifier: MIT
-- The shipped policy `region`: who meets whom directly, and who is sent elsewhere.
local shipped = require "shipped"

local REGIONS = { ["10.0.0.0/8"] = "us", ["10.9.0.0/16"] = "asia", ["2001:db8:5::/48"] = "us" }

local function chain(extra)
  local entry = { "region", regions = REGIONS, here = "eu" }
  for key, value in pairs(extra or {}) do entry[key] = value end
  return shipped.chain(entry)
end

describe("region", function()
  it("tags a player with the region of the longest match, or with its own", function()
    local t = chain()
    for ip, name in pairs { ["10.1.0.1"] = "us", ["10.9.0.1"] = "asia", ["192.0.2.1"] = "eu",
      ["2001:db8:5:1::1"] = "us", ["2001:db8:6::1"] = "eu" } do
      assert.equal(name, t:join({ ip = ip, udp = false }).session.tags.region)
    end
  end)

  it("lets neighbours meet directly and others through the relay", function()
    local t = chain()
    local h, near, far = t:join { udp = "192.0.2.1:4000" }, t:join { udp = "192.0.2.2:4000" },
      t:join { udp = "10.1.0.1:4000" }
    assert.equal("direct", t:connect(near, h.session.oid, { mode = "connect" }).via)
    assert.equal("relay", t:connect(far, h.session.oid, { mode = "connect" }).via)
    t = chain { across = "direct" }
    h, far = t:join { udp = "192.0.2.1:4000" }, t:join { udp = "10.1.0.1:4000" }
    assert.equal("direct", t:connect(far, h.session.oid, { mode = "connect" }).via)
  end)

  it("tells whoever is nearer to another server where that is", function()
    local h = chain({ other = { asia = "asia.example.org" } }):join { ip = "10.9.0.1", udp = false }
    assert.same({ "rejected", "use-asia.example.org" }, { h.code, h.reason })
  end)

  it("reads regions from the text of a file", function()
    local t = shipped.chain { "region", regions = "# nets\n10.0.0.0/8   us\n10.9.0.0/16\n", here = "eu" }
    assert.equal("us", t:join({ ip = "10.1.0.1", udp = false }).session.tags.region)
    -- A net without a name belongs here.
    assert.equal("eu", t:join({ ip = "10.9.0.1", udp = false }).session.tags.region)
  end)

  it("leaves an unknown oid to those who answer it", function()
    local t = chain()
    assert.equal("unknown-oid", t:connect(t:join { udp = "10.1.0.1:4000" }, "nobody", { mode = "relay" }).code)
  end)

  it("refuses settings that cannot be", function()
    for text, cfg in pairs {
      ["set here: the region of this server"] = { regions = REGIONS },
      ["set regions: which net is which region"] = { here = "eu" },
      ["regions: line 1: not a network: us"] = { regions = "us 10.0.0.0/8", here = "eu" },
      ["regions (a table of string values is expected)"] = { regions = { ["10.0.0.0/8"] = 7 }, here = "eu" },
      ["other.eu: that is here"] = { regions = REGIONS, here = "eu", other = { eu = "x" } },
      ["across = both (one of relay, direct is expected)"] = { regions = REGIONS, here = "eu", across = "both" },
    } do
      cfg[1] = "region"
      local err = shipped.refusal(cfg)
      assert.truthy(err:find(text, 1, true), err)
    end
  end)
end)
