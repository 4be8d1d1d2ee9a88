-- SPDX-License-Identifier: MIT
-- Policies in the running daemon: what players see of their decisions, and what a broken one costs.
local daemon = require "daemon"
local player = require "player"
local udp = require "udp"

local function with(opts, fn)
  opts.set = opts.set or { udp_relay_timeout = "2s" }
  return function() daemon.with(opts, fn) end
end

-- The control pair of the helpers registers without words and must be let in by every policy here.
local GATE = [[
local relay = require "relay"
return {
  register = function(ev)
    local what = ev.meta.what
    if what == "refused" then return false, "No Ticket" end
    if what == "named" then return { oid = ev.meta.oid, tags = { game = "chess" } } end
    if what == "broken" then error("the ticket office burns") end
    if what == "endless" then while true do pcall(function() while true do end end) end end
    if what == "pattern" then return ev.meta.text:match("^(.-)%.(.-)%.(.-)%.(.-)%.(.+)=$") and {} end
    if what == "yielding" then coroutine.yield() end
    if what == "single" then return { slots = { ["ip/" .. ev.session.net] = 1 } } end
  end,
  connect = function(ev)
    if ev.oid == "lobby:any" then return { oid = "LOBBY" } end
    if ev.to and ev.to.tags.game == "chess" and ev.from.tags.game ~= "chess" then return false, "other-game" end
  end,
  destroyed = function(ev)
    relay.log.info("it is over", { why = ev.reason, player = ev.relay.session ~= nil, bytes = ev.relay.bytes_in })
  end,
}
]]

local function gate(extra)
  local opts = { files = { ["gate.lua"] = GATE }, policies = { "./gate.lua" }, allow_log = { "hook failed" } }
  for key, value in pairs(extra or {}) do opts[key] = value end
  return opts
end

-- Registers with words and gives the first line of the answer.
local function register(d, words)
  local tcp = require("tcp").connect(d.command.ip, d.command.port)
  tcp:send("register-host " .. words .. "\n")
  return tcp:line(), tcp
end

describe("a policy", function()
  it("refuses a registration with a reason of one clean word", with(gate(), function(d)
    assert.equal("error register-host:rejected:-o--icket", register(d, "what=refused"))
    d:await_metric("moonrelay_policy_refusals_total",
      { policy = "gate", hook = "register", reason = "-o--icket" }, 1)
  end))

  it("names the host, and the later connect finds it by that name", with(gate(), function(d)
    local host = player.join(d, { words = "what=named oid=LOBBY" })
    assert.equal("LOBBY", host.oid)
    local client = player.join(d, { words = "what=named oid=GUEST" })
    client:send("connect-relay lobby:any")
    client.tcp:expect_match("^connect%-relay %d+$")
    host.tcp:expect_match("^connect%-relay %d+$")
  end))

  it("keeps players of two games apart by the tags it gave them", with(gate(), function(d)
    local host, stranger = player.join(d, { words = "what=named oid=CHESS" }), player.join(d)
    stranger:send("connect-relay CHESS")
    stranger.tcp:expect("error connect-relay:rejected:other-game")
    stranger:send("connect CHESS")
    stranger.tcp:expect("error connect:rejected:other-game")
    host.tcp:expect_nothing_more()
  end))

  it("gives a slot back when its holder leaves", with(gate(), function(d)
    local first, tcp = register(d, "what=single")
    assert.truthy(first:match("^set%-oid "))
    assert.equal("error register-host:full:ip/127.0.0.1", (register(d, "what=single")))
    tcp:close()
    local answer
    for _ = 1, 100 do
      answer = register(d, "what=single")
      if answer:match("^set%-oid ") then break end
    end
    assert.truthy(answer:match("^set%-oid "))
  end))

  it("is told how a relay ended", with(gate { set = { udp_relay_timeout = "1s" } }, function(d)
    local pair = player.pair(d)
    player.exchange(pair, "five!")
    d:await_log("it is over")
    d:await_log("policy=gate bytes=5 player=true why=idle")
  end))
end)

describe("a broken hook", function()
  for what, log in pairs {
    broken = "gate.lua:7: the ticket office burns",
    endless = "took more than 10 ms of CPU time",
    yielding = "outside of a coroutine of its own",
  } do
    it("refuses and is logged with its line when it is " .. what, with(gate(), function(d)
      assert.equal("error register-host:rejected:policy-error", register(d, "what=" .. what))
      d:await_log(log)
      d:await_log("policy=gate hook=register")
      assert.truthy(register(d, "hello"):match("^set%-oid "))
      d:await_metric("moonrelay_script_calls_total", { hook = "register", result = "error" }, 1)
    end))
  end

  it("cannot be kept busy by a player's text", with(gate(), function(d)
    assert.equal("error register-host:rejected:policy-error",
      register(d, "what=pattern text=" .. ("."):rep(3000)))
    d:await_log("took more than 10 ms of CPU time")
  end))

  it("costs nobody anything when its errors are skipped", with(gate {
    policies = {}, config = [[return { policies = { { "./gate.lua", on_error = "skip" } } }]],
  }, function(d)
    assert.truthy(register(d, "what=broken"):match("^set%-oid "))
    assert.equal("error register-host:rejected:-o--icket", register(d, "what=refused"))
  end))
end)

describe("a datagram of a stranger", function()
  local function knock(d)
    local host = player.pair(d).host
    local client = player.join(d, { tcp_ip = "127.0.0.77" })
    local pair = player.relay(client, host)
    local stranger = udp.open("127.0.0.99")
    stranger:send("hello", d.command.ip, pair.client_port)
    return client, stranger
  end

  it("is dropped without a policy that admits it", with({ config = "return { policies = {} }" }, function(d)
    local client = knock(d)
    d:await_metric("moonrelay_drops_total", { reason = "unknown_sender" }, 1)
    assert.is_nil(client.udp:try_recv(0.3))
  end))

  it("is dropped by dynamic, who knows no session of it", with({}, function(d)
    knock(d)
    d:await_metric("moonrelay_drops_total", { reason = "unknown_sender" }, 1)
  end))

  it("is relayed when anyone may come", with({
    config = [[return { policies = { { "dynamic", from = "anyone" } } }]],
  }, function(d)
    local client, stranger = knock(d)
    local got = client.udp:recv()
    assert.equal("hello", got.data)
    client.udp:send("welcome", d.command.ip, got.port)
    assert.equal("welcome", stranger:recv().data)
  end))

  it("is admitted by a policy of its own, by what it says", with({
    files = { ["word.lua"] = [[
      return { drop = function(ev)
        if ev:peek(5) == "hello" then return { idle = 5, tags = { kind = "guest" } } end
      end }]] },
    config = [[return { policies = { "./word.lua" } }]],
  }, function(d)
    local client = knock(d)
    assert.equal("hello", client.udp:recv().data)
  end))

  it("keeps no player waiting while a policy thinks about many strangers", with({
    files = { ["slow.lua"] = [[
      local asked = 0
      return {
        drop = function()
          asked = asked + 1
          local begin = os.clock()
          repeat until os.clock() - begin > 0.005
        end,
        register = function(ev) if ev.meta.count then return { oid = "after-" .. asked } end end,
      }]] },
    config = [[return { policies = { "./slow.lua" } }]],
  }, function(d)
    local tcp = require("tcp").connect(d.command.ip, d.command.port)
    local flows = 0
    for i = 1, 24 do
      local stranger = udp.open("127.0.1." .. i)
      for k = 1, math.min(16, #d.relay_ports) do
        stranger:send("hello", d.command.ip, d.relay_ports[k])
        flows = flows + 1
      end
    end
    tcp:send("register-host count=1\n")
    local asked = tonumber(tcp:expect_match("^set%-oid after%-(%d+)$"))
    assert.is_true(asked < flows, asked .. " of " .. flows .. " strangers came first")
  end))
end)
