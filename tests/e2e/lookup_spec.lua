-- SPDX-License-Identifier: MIT
-- Names in a running daemon: what is asked of the resolver and what is not, and that nothing waits for one
-- that hangs.
local daemon = require "daemon"
local resolver = require "resolver"

describe("lookup", function()
  it("asks no resolver when every address of the settings is a literal", function()
    local names = resolver.new()
    finally(function() names:close() end)
    daemon.with(names:options(), function(server)
      assert.equal(0, names:calls())
      assert.equal(0, server:metric("moonrelay_lookup_total", { kind = "resolver", result = "ok" }))
    end)
  end)
end)
