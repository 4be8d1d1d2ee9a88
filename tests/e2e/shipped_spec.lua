-- SPDX-License-Identifier: MIT
-- All shipped policies in one chain of the running daemon, with a key from the environment and lists from files.
local backend = require "backend"
local daemon = require "daemon"
local loop = require "loop"
local operator = require "operator"
local player = require "player"
local tcp = require "tcp"

-- HS256 with the key "sesame": { sub = "alice" }.
local ALICE = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbGljZSJ9.e1ljKpCSxG38M_78Nfi_JUkzGHbtlTeK-iCqpFt-2H4"

local CONFIG = [[return { policies = {
  { "bans", source = "bans.txt" },
  { "allowlist", nets = file "allowed.txt" },
  { "ticket", key = env "TICKET_KEY", per_user = 8 },
  { "quota", per_ip = 8, exceptions = { ["127.0.0.0/8"] = 16 } },
  { "region", regions = { ["127.66.91.0/24"] = "far" }, here = "near" },
  { "canary", percent = 100 },
  { "hosts", file = "hosts.txt" },
  { "lobby", same = { "region" } },
  { "audit", on_error = "skip" },
  { "webhook", url = env "HOOK", tries = 1 },
  "dynamic",
} }]]

describe("the shipped policies", function()
  it("work together for a player with a ticket", function()
    local hook = backend.open(function() return { status = 204 } end)
    daemon.with(operator.options { config = CONFIG, control_pair = false,
      files = { ["bans.txt"] = "127.66.92.0/24\n", ["allowed.txt"] = "127.0.0.0/8\n",
        ["hosts.txt"] = "127.0.0.1 web.fleet\n" },
      env = { TICKET_KEY = "sesame", HOOK = hook.url:gsub("127%.0%.0%.1", "web.fleet") .. "/left" } }, function(server)
      local words = { words = "open=yes ticket=" .. ALICE }
      local host = player.join(server, words)
      assert.equal(4, #host.oid)
      local bob = daemon.run({ "ticket", "--sub", "bob" }, { env = { TICKET_KEY = "sesame" } }).stdout:match("^%S+")
      local client = player.join(server, { words = "ticket=" .. bob, tcp_ip = "127.66.91.1" })
      local other = assert(tcp.connect(server.command.ip, server.command.port))
      other:send("register-host\n")
      other:expect("error register-host:rejected:ticket-missing")
      operator.does(server, "reload")
      -- The user's later session has his code.
      local again = player.join(server, words)
      assert.equal(host.oid, again.oid)
      host.tcp:expect("error session:replaced")
      host = again
      -- The only open room is in another region; by its code, in any case, he gets there, through the relay.
      client:send("connect lobby:any")
      client.tcp:expect("error connect:rejected:no-open-room")
      client:send("connect-relay " .. host.oid:lower())
      client.tcp:expect_match("^connect%-relay %d+$")
      host.tcp:expect_match("^connect%-relay %d+$")
      client:send("connect " .. host.oid)
      local seen = client.tcp:expect_match("^connect 127%.0%.0%.1:(%d+)$")
      assert.are_not.equal(host.udp.port, tonumber(seen))
      host.tcp:expect_match("^connect 127%.0%.0%.1:%d+$")
      server:await_log("connected")
      host:leave()
      loop.wait(function() return #hook.requests >= 1 end, "the webhook")
      assert.truthy(hook.requests[1].body:find('"event":"left"', 1, true))
      for _, name in ipairs { "bans", "allowlist", "ticket", "quota", "region", "canary", "hosts", "lobby", "audit",
        "webhook", "dynamic" } do
        assert.truthy(operator.does(server, "policies"):find(name, 1, true), name)
      end
    end)
    hook:close()
  end)
end)
