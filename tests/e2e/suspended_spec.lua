-- SPDX-License-Identifier: MIT
-- Hooks that wait in the running daemon, while what they wait for never comes, and while the player, host, relay or
-- generation that they are about goes away.
--
-- What is held here, and by which test:
--   the player leaves                                     a_player_who_leaves_meanwhile_is_forgotten_with_his_slots
--   ... and is written to all the same                    a_player_who_hung_up_meanwhile_may_be_told_something
--   two at one slot                                       of_two_who_wait_for_the_last_slot_one_is_admitted
--   the host leaves                                       a_host_who_leaves_meanwhile_is_no_host
--   the target of a knock leaves                          a_flow_whose_target_leaves_meanwhile_is_dropped
--   a reload                                              what_waits_ends_in_its_own_generation
--   the relay's port is another's now                     a_relay_kept_over_a_wait_is_nobody_elses
--   the second command                                    the_second_command_of_a_waiting_player_is_answered_second
--   too long                                              a_hook_that_waits_too_long_refuses
--   too many                                              a_hanging_backend_makes_1024_wait_and_the_others_busy
local backend = require "backend"
local daemon = require "daemon"
local loop = require "loop"
local operator = require "operator"
local player = require "player"
local tcp = require "tcp"
local traffic = require "traffic"
local udp = require "udp"

local WAITING = [[
local relay = require "relay"
local url
return {
  load = function(cfg) url = cfg.url end,
  register = function(ev)
    if ev.meta.sleep then
      relay.sleep(tonumber(ev.meta.sleep))
      return { tags = { slept = "yes" } }
    end
  end,
  connect = function(ev)
    if ev.meta.sleep then relay.sleep(tonumber(ev.meta.sleep)) end
    if ev.meta.ask then
      local res, _, code
      repeat
        res, _, code = relay.http { url = url, timeout = 60 }
        if code == "busy" then relay.sleep(0.2) end -- 32 requests at once
      until code ~= "busy"
      if not res then return false, "backend-" .. code end
    end
    if ev.meta.close then
      local id
      for _, r in ipairs(relay.relays()) do if r.port == tonumber(ev.meta.close) then id = r.id end end
      relay.log.info("kept", { id = id })
      relay.sleep(1.8)
      local ok = relay.close(id, "late")
      return false, ok and "closed" or "no-such-relay"
    end
  end,
  drop = function(ev)
    if ev:peek(5) == "sleep" then
      relay.log.info("drop waits")
      relay.sleep(1)
      return {}
    end
  end,
}
]]

local SLOTS = [[return { register = function(ev)
  if ev.meta.user then return { slots = { ["user/" .. ev.meta.user] = 1 } } end
end }]]

local function with(fn, opts)
  opts = operator.options(opts or {})
  opts.files = { ["waiting.lua"] = WAITING, ["slots.lua"] = SLOTS }
  opts.config = ([[return { policies = { "./slots.lua", { "./waiting.lua", url = "%s" }, "dynamic" } }]]):format(
    opts.url or "http://127.0.0.1:1/")
  daemon.with(opts, function(server)
    local game = opts.control_pair ~= false and traffic.start(player.pair(server))
    fn(server)
    if game then game:stop() end
  end)
end

local JOINS = 5000

local function connect(server)
  return assert(tcp.connect(server.command.ip, server.command.port))
end

describe("a hook that waits", function()
  it("a_player_who_leaves_meanwhile_is_forgotten_with_his_slots", function()
    with(function(server)
      local hosts = server:metric("noray_active_hosts")
      for _, how in ipairs { "close", "reset" } do
        local client = connect(server)
        client:send("register-host user=alice sleep=1\n")
        loop.wait(function() return server:metric("noray_tcp_connections") >= 1 end, "the connection")
        if how == "reset" then client.handle:close_reset() else client:close() end
        -- Nobody holds the slot, at once or when the wait would be over.
        local other = connect(server)
        loop.wait(function()
          other:send("register-host user=alice\n")
          return other:line():find("^set%-oid ")
        end, "the slot")
        other:close()
      end
      server:await_metric("noray_active_hosts", {}, hosts)
    end)
  end)

  it("a_player_who_hung_up_meanwhile_may_be_told_something", function()
    with(function(server)
      local gone, other = player.join(server), player.join(server)
      gone:send("connect " .. other.oid .. " sleep=1.8") -- and is not read until that is over
      gone.tcp:close()
      -- The first line provokes a reset, the next is written to a connection that is none.
      loop.wait(function()
        other:send("connect " .. gone.oid)
        return other.tcp:line() == "error connect:unknown-oid"
      end, "that he is gone")
      player.exchange(player.relay(player.join(server), other))
    end)
  end)

  it("of_two_who_wait_for_the_last_slot_one_is_admitted", function()
    with(function(server)
      local one, two = connect(server), connect(server)
      for _, client in ipairs { one, two } do client:send("register-host user=alice sleep=0.5\n") end
      local answers = { one:line():match("^%S+ ?%S*"), two:line():match("^%S+ ?%S*") }
      table.sort(answers)
      assert.equal("error register-host:full:user/alice", answers[1])
      assert.truthy(answers[2]:find("^set%-oid "), answers[2])
    end)
  end)

  it("a_host_who_leaves_meanwhile_is_no_host", function()
    with(function(server)
      local host, client = player.join(server), player.join(server)
      client:send("connect-relay " .. host.oid .. " sleep=1")
      host:leave()
      client.tcp:expect("error connect-relay:unknown-oid")
      client:send("echo next")
      client.tcp:expect("echo next")
    end)
  end)

  it("a_flow_whose_target_leaves_meanwhile_is_dropped", function()
    with(function(server)
      local pair = player.pair(server)
      udp.open("127.66.60.1"):send("sleep well", pair.ip, pair.host_port)
      server:await_log("drop waits")
      pair.host:leave()
      pair.client:leave()
      server:await_metric("moonrelay_held", {}, 0)
    end, { set = { udp_relay_timeout = "500ms" }, control_pair = false })
  end)

  it("what_waits_ends_in_its_own_generation", function()
    with(function(server)
      local host, client = player.join(server), connect(server)
      client:send("register-host user=alice sleep=1\n")
      local knocker = udp.open("127.0.0.1")
      local pair = player.relay(player.join(server), host)
      player.exchange(pair) -- else the knocker is the client, seen through his NAT
      knocker:send("sleep and come", pair.ip, pair.host_port)
      server:await_log("drop waits")
      operator.write(server, "waiting.lua", [[
        return { load = function() end, register = function() return false, "new" end }]])
      operator.does(server, "reload")
      local other = connect(server)
      other:send("register-host\n")
      other:expect("error register-host:rejected:new")
      client:expect_match("^set%-oid ")
      host.udp:expect("sleep and come")
      player.exchange(pair)
    end)
  end)

  it("a_relay_kept_over_a_wait_is_nobody_elses", function()
    with(function(server)
      local asker, other, pair = player.join(server), player.join(server), player.pair(server)
      asker:send("connect " .. other.oid .. " close=" .. pair.host_port)
      server:await_log("kept")
      pair.host:leave()
      pair.client:leave()
      server:await_metric("noray_relay_count", {}, 0)
      local second = player.pair(server)
      assert.is_true(second.host_port == pair.host_port or second.client_port == pair.host_port)
      local game = traffic.start(second)
      asker.tcp:expect("error connect:rejected:no-such-relay")
      game:stop()
    end, { set = { udp_relay_ports = "0+1", udp_relay_timeout = "500ms" }, control_pair = false })
  end)

  it("the_second_command_of_a_waiting_player_is_answered_second", function()
    with(function(server)
      local client = connect(server)
      client:send("register-host sleep=0.5\necho second\nregister-host\necho fourth\n")
      client:expect_match("^set%-oid ")
      client:expect_match("^set%-pid ")
      client:expect("echo second")
      client:expect_match("^set%-oid ")
      client:expect_match("^set%-pid ")
      client:expect("echo fourth")
    end)
  end)

  it("a_hook_that_waits_too_long_refuses", function()
    with(function(server)
      server:allow("waiting")
      local host, client = player.join(server), player.join(server)
      client:send("connect " .. host.oid .. " sleep=30")
      client.tcp:expect("error connect:rejected:policy-error")
      client:send("connect " .. host.oid)
      client.tcp:expect("connect " .. host.udp.text)
    end, { set = { script_wait = "500ms" } })
  end)

  it("a_hanging_backend_makes_1024_wait_and_the_others_busy", function()
    local never = backend.open(function() end)
    with(function(server)
      server:allow("waiting")
      local host, clients = player.join(server), {}
      for i = 1, JOINS do
        clients[i] = connect(server)
        clients[i]:send("register-host\n")
      end
      for _, client in ipairs(clients) do
        client:expect_match("^set%-oid ")
        client:expect_match("^set%-pid ")
      end
      for _, client in ipairs(clients) do client:send("connect " .. host.oid .. " ask=1\n") end
      local got = {}
      for _, client in ipairs(clients) do
        local line = client:line(40)
        got[line] = (got[line] or 0) + 1
      end
      assert.same({ ["error connect:busy"] = JOINS - 1024, ["error connect:rejected:policy-error"] = 1024 }, got)
      -- All is free again.
      local client = player.join(server)
      client:send("connect " .. host.oid)
      client.tcp:expect("connect " .. host.udp.text)
    end, { url = never.url .. "/", set = { caps_exempt = "127.0.0.0/8", script_wait = "10s" } })
    never:close()
  end)
end)
