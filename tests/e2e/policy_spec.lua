-- SPDX-License-Identifier: MIT
-- Policies: Lua that decides who may register, connect, have a relay, and what becomes of unexpected datagrams.
--
-- What is held here, and by which test:
--   register: refuse with a reason                        register_may_refuse_with_a_reason
--   reasons are one clean word                            a_reason_becomes_one_clean_word
--   no reason: the policy's name                          without_a_reason_the_policys_name_is_the_reason
--   register: oid, tags                                   register_may_give_an_oid_and_tags
--   register: slots, full, given back                     slots_count_sessions_and_are_given_back
--   meta                                                  meta_is_at_most_16_words_of_key_and_value
--   connect: another oid                                  connect_may_send_a_player_to_another_host
--   connect: refuse; asked for both commands, again too   connect_is_asked_for_both_commands_every_time
--   connect: via                                          connect_may_choose_the_way
--   create: refuse                                        create_may_refuse_a_relay
--   create: limits merge to the smaller                   of_two_rates_the_smaller_holds
--                                                         of_two_slots_the_smaller_maximum_holds
--   create: ttl, max_bytes end a relay, idle              a_time_to_live_ends_a_relay
--                                                         a_maximum_of_bytes_ends_a_relay
--                                                         an_idle_time_of_its_own_ends_a_relay
--   create: slots together or not at all                  relays_and_slots_are_taken_together_or_not_at_all
--   drop: {} admits, create is asked                      drop_may_admit_a_stranger
--   drop: false refuses, mute                             drop_may_refuse_and_mute_a_stranger
--   drop: true is an error                                drop_returning_true_is_an_error_that_says_so
--   drop: what ev says                                    drop_is_told_who_knocks_where
--   destroyed                                             the_end_of_a_relay_is_told_with_its_reason
--   raising, wrong types, loops: policy-error             a_hook_that_fails_refuses_with_policy_error
--   on_error = "skip", shadow                             a_skipped_policy_may_fail_and_a_shadow_is_ignored
--   the chain's order, the first false ends it            policies_are_asked_in_order_until_one_refuses
--   --policy, policies =, config                          policies_come_from_command_line_setting_and_config
--   open ports: ports = {}                                target_spec.lua
--   metrics                                               calls_and_refusals_are_counted_by_policy
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local daemon = require "daemon"
local loop = require "loop"
local player = require "player"
local tcp = require "tcp"
local udp = require "udp"

describe("a policy", function()
  after_each(loop.close_owned)

  -- Runs fn with a daemon whose chain is made of these texts (mine1, mine2, ...) and dynamic at its end. The control
  -- players need a chain that lets them in, so there are none unless asked for.
  local function with(texts, fn, opts)
    opts = opts or {}
    if type(texts) == "string" then texts = { texts } end
    opts.files = opts.files or {}
    local chain = {}
    for i, text in ipairs(texts) do
      opts.files["mine" .. i .. ".lua"] = text
      chain[i] = '"./mine' .. i .. '.lua"'
    end
    chain[#chain + 1] = '"dynamic"'
    opts.config = opts.config or "return { policies = { " .. table.concat(chain, ", ") .. " } }"
    if opts.control_pair == nil then opts.control_pair = false end
    return daemon.with(opts, fn)
  end

  local function connect(server)
    return assert(tcp.connect(server.command.ip, server.command.port))
  end

  local function refused(server, words)
    local client = connect(server)
    client:send("register-host" .. (words and " " .. words or "") .. "\n")
    return client:expect_match("^error register%-host:(.+)$")
  end

  it("register_may_refuse_with_a_reason", function()
    with([[return { register = function(ev)
      if ev.meta.ticket ~= "good" then return false, "ticket-missing" end
    end }]], function(server)
      local client = connect(server)
      client:send("register-host\nregister-host?7 ticket=bad\nregister-host ticket=good\nconnect nope\n")
      client:expect("error register-host:rejected:ticket-missing")
      client:expect("!7 rejected:ticket-missing")
      client:expect_match("^set%-oid ")
      client:expect_match("^set%-pid ")
      client:expect("error connect:unknown-oid")
      assert.equal(1, server:metric("noray_active_hosts"))
    end)
  end)

  it("a_reason_becomes_one_clean_word", function()
    with([[return { register = function(ev)
      local reasons = { newline = "a\nb", space = "not now", upper = "NoWay", utf8 = "stra\195\159e", empty = "",
        long = ("x"):rep(1000000), fine = "a.b_c-9", escape = "\27[31m", colon = "a:b", nul = "a\0b" }
      return false, reasons[ev.meta.r]
    end }]], function(server)
      for name, reason in pairs { newline = "a-b", space = "not-now", fine = "a.b_c-9", colon = "a-b", nul = "a-b" } do
        assert.equal("rejected:" .. reason, refused(server, "r=" .. name))
      end
      for _, name in ipairs { "upper", "utf8", "empty", "long", "escape" } do
        assert.is_truthy(refused(server, "r=" .. name):find("^rejected:[a-z0-9._-]+$"), name)
      end
      assert.is_true(#refused(server, "r=long") <= #"rejected:" + 64)
    end)
  end)

  it("without_a_reason_the_policys_name_is_the_reason", function()
    with([[return { register = function() return false end }]], function(server)
      assert.equal("rejected:mine1", refused(server))
    end)
    with({}, function(server)
      assert.equal("rejected:doorman", refused(server))
    end, { files = { ["x.lua"] = "return { register = function() return false end }" },
      config = [[return { policies = { { "./x.lua", name = "doorman" } } }]] })
  end)

  it("register_may_give_an_oid_and_tags", function()
    with([[return {
      register = function(ev) return { oid = ev.meta.room, tags = { user = ev.meta.user, room = ev.meta.room } } end,
      connect = function(ev)
        assert(ev.to.oid == ev.oid)
        if ev.from.tags.user == ev.to.tags.user then return false, "same-" .. ev.to.tags.user end
      end,
    }]], function(server)
      local host = player.join(server, { words = "room=LOBBY user=alice" })
      assert.equal("LOBBY", host.oid)
      local same, other = player.join(server, { words = "user=alice" }), player.join(server, { words = "user=bob" })
      assert.equal(21, #same.oid)
      same:send("connect LOBBY")
      same.tcp:expect("error connect:rejected:same-alice")
      other:send("connect LOBBY")
      other.tcp:expect("connect " .. host.udp.text)
      host.tcp:expect("connect " .. other.udp.text)
    end)
  end)

  it("slots_count_sessions_and_are_given_back", function()
    with([[return { register = function(ev)
      return { slots = { ["user/" .. ev.meta.user] = 2 } }
    end }]], function(server)
      local one = player.join(server, { words = "user=alice", udp = false })
      player.join(server, { words = "user=alice", udp = false })
      player.join(server, { words = "user=bob", udp = false })
      assert.equal("full:user/alice", refused(server, "user=alice"))
      local client = connect(server)
      client:send("register-host?5 user=alice\n")
      client:expect("!5 full:user/alice")
      one:leave()
      loop.wait(function()
        client:send("register-host user=alice\n")
        return client:line():find("^set%-oid ")
      end, "that the slot comes back")
    end)
  end)

  it("meta_is_at_most_16_words_of_key_and_value", function()
    with([[return { register = function(ev)
      local n, text = 0, ""
      for key, value in pairs(ev.meta) do n = n + 1 end
      return false, n .. "." .. tostring(ev.meta.a) .. "." .. tostring(ev.meta.empty) .. "." .. tostring(ev.meta.eq)
    end }]], function(server)
      assert.equal("rejected:0.nil.nil.nil", refused(server))
      assert.equal("rejected:1.1.nil.nil", refused(server, "a=1"))
      assert.equal("rejected:0.nil.nil.nil", refused(server, "A=1 9=1 =1 a .=. a-b=1 " .. ("k"):rep(33) .. "=1"))
      assert.equal("rejected:2.nil.nil.x-y", refused(server, "eq=x=y " .. ("k"):rep(32) .. "=1"))
      local words = {}
      for i = 1, 40 do words[i] = "k" .. i .. "=v" end
      assert.equal("rejected:16.nil.nil.nil", refused(server, table.concat(words, " ")))
    end)
  end)

  it("connect_may_send_a_player_to_another_host", function()
    with([[
      local relay = require "relay"
      return {
        register = function(ev) return { oid = ev.meta.oid } end,
        connect = function(ev)
          if ev.oid == "lobby:any" then return { oid = "ROOM" } end
          if ev.oid == "lobby:none" then return false, "no-open-room" end
          if ev.oid == "lobby:ghost" then return { oid = "GHOST" } end
          return { oid = ev.oid:upper() }
        end,
      }]], function(server)
      local host = player.join(server, { words = "oid=ROOM" })
      local client = player.join(server)
      for _, oid in ipairs { "lobby:any", "room", "Room", "ROOM" } do
        client:send("connect " .. oid)
        client.tcp:expect("connect " .. host.udp.text)
        host.tcp:expect("connect " .. client.udp.text)
      end
      client:send("connect-relay lobby:any")
      client.tcp:expect_match("^connect%-relay %d+$")
      host.tcp:expect_match("^connect%-relay %d+$")
      client:send("connect lobby:none")
      client.tcp:expect("error connect:rejected:no-open-room")
      client:send("connect lobby:ghost")
      client.tcp:expect("error connect:unknown-oid")
      host.tcp:expect_nothing_more()
    end)
  end)

  it("connect_is_asked_for_both_commands_every_time", function()
    with([[return { connect = function(ev)
      if ev.meta.stop then return false, ev.mode .. "-" .. (ev.to and "host" or "nobody") end
    end }]], function(server)
      local pair = player.pair(server)
      player.exchange(pair)
      pair.client:send("connect-relay " .. pair.host.oid .. " stop=1")
      pair.client.tcp:expect("error connect-relay:rejected:relay-host")
      pair.client:send("connect " .. pair.host.oid .. " stop=1")
      pair.client.tcp:expect("error connect:rejected:connect-host")
      -- A policy comes before the oid is looked up.
      pair.client:send("connect nope stop=1")
      pair.client.tcp:expect("error connect:rejected:connect-nobody")
      player.exchange(pair)
      pair.host.tcp:expect_nothing_more()
    end)
  end)

  it("connect_may_choose_the_way", function()
    local text = [[return { connect = function(ev) if ev.meta.via then return { via = ev.meta.via } end end }]]
    with(text, function(server)
      local host, client = player.join(server), player.join(server)
      client:send("connect " .. host.oid .. " via=relay")
      local host_port = tonumber((client.tcp:expect_match("^connect 127%.0%.0%.1:(%d+)$")))
      local client_port = tonumber((host.tcp:expect_match("^connect 127%.0%.0%.1:(%d+)$")))
      assert.are_not.equal(host.udp.port, host_port)
      player.exchange { client = client, host = host, host_port = host_port, client_port = client_port,
        ip = "127.0.0.1" }
      client:send("connect " .. host.oid)
      client.tcp:expect("connect " .. host.udp.text)
      host.tcp:expect("connect " .. client.udp.text)
      -- For connect-relay the way is no question.
      client:send("connect-relay " .. host.oid .. " via=direct")
      client.tcp:expect("connect-relay " .. host_port)
      host.tcp:expect("connect-relay " .. client_port)
    end)
    with(text, function(server)
      local host, client = player.join(server), player.join(server)
      client:send("connect " .. host.oid .. " via=direct")
      client.tcp:expect("connect " .. host.udp.text)
      host.tcp:expect("connect " .. client.udp.text)
    end, { set = { connect = "relay" } })
  end)

  it("create_may_refuse_a_relay", function()
    with([[return { create = function(ev)
      if ev.session and ev.session.meta.poor then return false, "no-relay-for-you" end
    end }]], function(server)
      local host, poor = player.join(server), player.join(server, { words = "poor=1" })
      poor:send("connect-relay " .. host.oid)
      poor.tcp:expect("error connect-relay:rejected:no-relay-for-you")
      assert.equal(0, server:metric("noray_relay_count"))
      host:send("connect-relay " .. poor.oid)
      host.tcp:expect("error connect-relay:rejected:no-relay-for-you")
      assert.equal(0, server:metric("noray_relay_count"))
      poor:send("connect " .. host.oid)
      poor.tcp:expect("connect " .. host.udp.text)
      host.tcp:expect("connect " .. poor.udp.text)
      player.exchange(player.relay(host, player.join(server)))
    end)
  end)

  -- How many of n datagrams of 1 kB sent at once arrive, once all are accounted for.
  local function burst(server, pair, n, reason)
    local before = server:metric("moonrelay_drops_total", { reason = reason })
    for i = 1, n do
      pair.client.udp:send(string.rep("x", 1024), pair.ip, pair.host_port)
      if i % 16 == 0 then loop.turn() end
    end
    local arrived = 0
    loop.wait(function()
      arrived = arrived + #pair.host.udp:drain()
      return arrived + server:metric("moonrelay_drops_total", { reason = reason }) - before == n
    end, "that all are accounted for")
    return arrived
  end

  it("of_two_rates_the_smaller_holds", function()
    local slow = [[return { create = function() return { rate = { bps = 8192 } } end }]]
    local fast = [[return { create = function() return { rate = { bps = 2^30 } } end }]]
    for _, chain in ipairs { { slow, fast }, { fast, slow }, { fast, slow, fast } } do
      with(chain, function(server)
        local pair = player.pair(server)
        local began = loop.now()
        local arrived = burst(server, pair, 64, "bandwidth")
        assert.is_true(arrived >= 8 and arrived <= 8 + math.ceil((loop.now() - began) * 8) + 1, arrived .. " arrived")
      end)
    end
  end)

  it("of_two_slots_the_smaller_maximum_holds", function()
    local function policy(n)
      return "return { create = function(ev) return { slots = { ['ip/' .. ev.addr.ip] = " .. n .. " } } end }"
    end
    with({ policy(9), policy(3), policy(5) }, function(server)
      local pair = player.pair(server)
      player.relay(player.join(server), pair.host)
      local fourth = player.join(server)
      fourth:send("connect-relay " .. pair.host.oid)
      fourth.tcp:expect("error connect-relay:full:ip/127.0.0.1")
      assert.equal(3, server:metric("noray_relay_count"))
      player.exchange(pair)
    end)
  end)

  it("relays_and_slots_are_taken_together_or_not_at_all", function()
    with([[return { create = function(ev) return { slots = { ["game/x"] = 3 } } end }]], function(server)
      local pair = player.pair(server)
      local one, two = player.join(server), player.join(server)
      for _ = 1, 3 do
        one:send("connect-relay " .. two.oid)
        one.tcp:expect("error connect-relay:full:game/x")
        server:await_metric("noray_relay_count", {}, 2)
      end
      two.tcp:expect_nothing_more()
      player.exchange(player.relay(one, pair.host))
      server:await_metric("noray_relay_count", {}, 0)
      player.exchange(player.relay(one, two))
    end, { set = { udp_relay_timeout = "1s" } })
  end)

  it("a_time_to_live_ends_a_relay", function()
    with({ [[return { create = function() return { ttl = 1 } end }]],
      [[return { create = function() return { ttl = 60 } end }]],
      [[local relay = require "relay"
        return { destroyed = function(ev) relay.log.info("ended", { why = ev.reason }) end }]] }, function(server)
      local began = loop.now()
      local pair = player.pair(server)
      loop.wait(function()
        pair.client.udp:send("on and on", pair.ip, pair.host_port)
        return server:metric("noray_relay_count") == 0
      end, "the end of both relays")
      assert.is_true(loop.now() - began >= 1)
      server:await_log_match("ended[^\n]*lifetime")
    end)
  end)

  it("a_maximum_of_bytes_ends_a_relay", function()
    -- Without the refusal the shipped policy would give the player another relay for what he sends on.
    with({ [[return { create = function() return { max_bytes = 5000 } end, drop = function() return false end }]],
      [[local relay = require "relay"
        return { destroyed = function(ev) relay.log.info("ended", { why = ev.reason }) end }]] }, function(server)
      local pair = player.pair(server)
      for _ = 1, 10 do pair.client.udp:send(string.rep("x", 1000), pair.ip, pair.host_port) end
      server:await_metric("noray_relay_count", {}, 1)
      server:await_log_match("ended[^\n]*traffic")
      assert.equal(4, #pair.host.udp:drain())
      -- Without the dynamic policy, which would let him in again.
    end, { config = 'return { policies = { "./mine1.lua", "./mine2.lua" } }' })
  end)

  it("an_idle_time_of_its_own_ends_a_relay", function()
    with([[return { create = function() return { idle = 1 } end }]], function(server)
      local pair = player.pair(server)
      player.exchange(pair)
      server:await_metric("noray_relay_count", {}, 0)
    end, { set = { udp_relay_timeout = "60s" } })
  end)

  it("drop_may_admit_a_stranger", function()
    with([[return {
      drop = function(ev) if ev.reason == "unknown_sender" and ev:peek(5) == "hello" then return {} end end,
      create = function(ev)
        if ev.reason == "dynamic" and ev.addr.ip == "127.66.40.2" then return false, "not-you" end
      end,
    }]], function(server)
      local pair = player.pair(server)
      local polite, rude, unwanted = udp.open("127.66.40.1"), udp.open("127.66.40.3"), udp.open("127.66.40.2")
      polite:send("hello 1", pair.ip, pair.host_port)
      polite:send("second", pair.ip, pair.host_port)
      local port = pair.host.udp:expect("hello 1").port
      pair.host.udp:expect("second", pair.ip, port)
      pair.host.udp:send("welcome", pair.ip, port)
      polite:expect("welcome", pair.ip, pair.host_port)
      rude:send("give me", pair.ip, pair.host_port)
      unwanted:send("hello too", pair.ip, pair.host_port)
      loop.wait(function() return server:metrics():sum("moonrelay_drops_total") >= 2 end, "two drops")
      player.exchange(pair)
      assert.equal(0, pair.host.udp:waiting())
      assert.equal(3, server:metric("noray_relay_count"))
    end)
  end)

  it("drop_may_refuse_and_mute_a_stranger", function()
    with([[
      local relay = require "relay"
      return { drop = function(ev)
        relay.log.info("asked", { who = ev.sender.ip, port = ev.port })
        if ev.known then return nil end
        return false, "go-away", { mute = 60 }
      end }]], function(server)
      local pair = player.pair(server)
      local stranger = udp.open("127.66.41.1")
      local function count(reason) return server:metric("moonrelay_drops_total", { reason = reason }) end
      stranger:send("1", pair.ip, pair.host_port)
      loop.wait(function() return count "refused" == 1 end, "a refused datagram")
      for i = 2, 10 do stranger:send(tostring(i), pair.ip, pair.host_port) end
      loop.wait(function() return count "muted" == 9 end, "nine muted ones")
      player.exchange(pair)
      assert.equal(0, pair.host.udp:waiting())
      server:await_log_match("asked[^\n]*127%.66%.41%.1")
      local _, asked = server:stdout():gsub("asked[^\n]*127%.66%.41%.1", "")
      assert.equal(1, asked)
    end)
  end)

  it("drop_returning_true_is_an_error_that_says_so", function()
    with("return { drop = function(ev)\n  return true\nend }", function(server)
      server:allow("mine1")
      local pair = player.pair(server)
      player.exchange(pair) -- from now on nobody on their IP is taken for one of them
      udp.open("127.0.0.1"):send("hello", pair.ip, pair.host_port)
      server:await_log_match("error[^\n]*mine1[^\n]*true")
      player.exchange(pair)
      assert.equal(0, pair.host.udp:waiting())
      assert.equal(2, server:metric("noray_relay_count"))
    end)
  end)

  it("drop_is_told_who_knocks_where", function()
    with([[
      local relay = require "relay"
      return { drop = function(ev)
        relay.log.info("drop", { all = table.concat({ ev.reason, ev.sender.text, ev.sender.ip, ev.sender.port,
          ev.sender.family, ev.sender.net, ev.port, ev.size, tostring(ev.known), ev:peek(64) }, " ") })
      end }]], function(server)
      local pair = player.pair(server)
      local stranger, other = udp.open("127.66.42.1"), player.pair(server)
      local function seen(text)
        loop.wait(function() return server:stdout():find(text, 1, true) end, function()
          return text .. "\n" .. server:tail()
        end)
      end
      stranger:send(string.rep("p", 80), pair.ip, pair.host_port)
      seen(string.format("unknown_sender %s %s %d 4 %s %d 80 false %s", stranger.text, stranger.ip, stranger.port,
        stranger.ip, pair.host_port, string.rep("p", 64)))
      other.client.udp:send("", pair.ip, pair.host_port)
      seen(string.format("not_paired %s 127.0.0.1 %d 4 127.0.0.1 %d 0 true", other.client.udp.text,
        other.client.udp.port, pair.host_port))
      for _, port in ipairs(server.relay_ports) do
        if port ~= pair.host_port and port ~= pair.client_port and port ~= other.host_port
          and port ~= other.client_port then
          stranger:send("free", pair.ip, port)
          seen("unknown_target " .. stranger.text)
          break
        end
      end
    end)
  end)

  it("the_end_of_a_relay_is_told_with_its_reason", function()
    with([[
      local relay = require "relay"
      return { destroyed = function(ev)
        local r = ev.relay
        relay.log.info("ended", { line = table.concat({ ev.reason, r.addr.text, r.port, r.packets_in, r.packets_out,
          r.bytes_in, r.bytes_out, tostring(r.session ~= nil), tostring(r.age >= 1) }, " ") })
        assert(r.id:match("^" .. r.port .. "%.%d+$"), r.id)
      end }]], function(server)
      local pair = player.pair(server)
      pair.client.udp:send("12345", pair.ip, pair.host_port)
      pair.host.udp:expect("12345")
      pair.host.udp:send("123", pair.ip, pair.client_port)
      pair.client.udp:expect("123")
      server:await_metric("noray_relay_count", {}, 0)
      server:await_log(string.format("idle %s %d 1 1 5 3 true true", pair.client.udp.text, pair.client_port))
      server:await_log(string.format("idle %s %d 1 1 3 5 true true", pair.host.udp.text, pair.host_port))
    end, { set = { udp_relay_timeout = "1s" } })
  end)

  it("a_hook_that_fails_refuses_with_policy_error", function()
    for _, case in ipairs {
      { "return { register = function(ev)\n  local x = nil\n  return x.y\nend }", "mine1.lua:3" },
      { "return { register = function(ev)\n  error('on purpose')\nend }", "mine1.lua:2" },
      { "return { register = function(ev)\n  error({ code = 1 })\nend }", "mine1" },
      { "return { register = function(ev)\n  return 7\nend }", "mine1" },
      { "return { register = function(ev)\n  return 'yes'\nend }", "mine1" },
      { "return { register = function(ev)\n  return { oidd = 'x' }\nend }", "oidd" },
      { "return { register = function(ev)\n  return { oid = 'with space' }\nend }", "oid" },
      { "return { register = function(ev)\n  return { tags = 7 }\nend }", "tags" },
      { "return { register = function(ev)\n  while true do end\nend }", "mine1.lua:2" },
      { "return { register = function(ev)\n  while true do pcall(function() while true do end end) end\nend }",
        "mine1" },
      { "local function f() return f() + 1 end\nreturn { register = function(ev)\n  return f()\nend }", "mine1" },
      { "return { register = function(ev)\n  return ('x'):rep(1e9)\nend }", "mine1" },
    } do
      with(case[1], function(server)
        server:allow("mine1")
        for _ = 1, 3 do assert.equal("rejected:policy-error", refused(server)) end
        server:await_log(case[2])
        local client = connect(server)
        client:send("echo still here\n")
        client:expect("echo still here")
      end)
    end
  end)

  it("a_failing_hook_refuses_connect_create_and_drop_as_well", function()
    with([[return {
      connect = function(ev) if ev.meta.fail == "connect" then error("in connect") end end,
      create = function(ev)
        if ev.reason == "dynamic" or ev.session.meta.fail then error("in create") end
      end,
      drop = function(ev) if ev:peek(4) == "fail" then error("in drop") end end,
      destroyed = function() error("in destroyed") end,
    }]], function(server)
      server:allow("mine1")
      local host, client = player.join(server), player.join(server)
      client:send("connect " .. host.oid .. " fail=connect")
      client.tcp:expect("error connect:rejected:policy-error")
      local bad = player.join(server, { words = "fail=1" })
      bad:send("connect-relay " .. host.oid)
      bad.tcp:expect("error connect-relay:rejected:policy-error")
      assert.equal(0, server:metric("noray_relay_count"))
      local pair = player.relay(client, host)
      player.exchange(pair)
      udp.open():send("fail", pair.ip, pair.host_port)
      udp.open():send("admitted by dynamic, not by create", pair.ip, pair.host_port)
      for _, place in ipairs { "in connect", "in create", "in drop" } do server:await_log(place) end
      assert.equal(0, pair.host.udp:waiting())
      server:await_metric("noray_relay_count", {}, 0)
      server:await_log("in destroyed")
      player.exchange(player.relay(client, host))
    end, { set = { udp_relay_timeout = "2s" } })
  end)

  it("a_skipped_policy_may_fail_and_a_shadow_is_ignored", function()
    with({}, function(server)
      server:allow("x%.lua")
      server:allow("[%s\"=]x[%s\":%]]")
      local pair = player.pair(server)
      player.exchange(pair)
      server:await_log("on purpose")
    end, { files = { ["x.lua"] = "return { register = function() error('on purpose') end }",
      ["y.lua"] = "return { register = function() return false, 'never' end, create = function() return false end }" },
      config = [[return { policies = { { "./x.lua", on_error = "skip" }, { "./y.lua", shadow = true } } }]] })
  end)

  it("policies_are_asked_in_order_until_one_refuses", function()
    with({ [[return { register = function(ev) return { tags = { first = "1", both = "1" } } end }]],
      [[return { register = function(ev)
        assert(ev.tags.first == "1")
        return { tags = { second = "2", both = "2" } }
      end }]],
      [[return { register = function(ev)
        if ev.meta.stop then return false, ev.tags.first .. ev.tags.second .. ev.tags.both end
      end }]],
      [[local relay = require "relay"
        return { register = function(ev) relay.log.info("the last was asked") end }]] }, function(server)
      assert.equal("rejected:122", refused(server, "stop=1"))
      assert.is_nil(server:stdout():find("the last was asked", 1, true))
      player.join(server, { udp = false })
      server:await_log("the last was asked")
    end)
  end)

  it("policies_come_from_command_line_setting_and_config", function()
    local function naming(name)
      return "return { register = function(ev) if ev.meta.who == '" .. name .. "' then return false, '" .. name
        .. "' end end }"
    end
    local files = { ["a.lua"] = naming "a", ["b.lua"] = naming "b", ["c.lua"] = naming "c" }
    daemon.with({ files = files, policies = { "./a.lua", "./b.lua" }, config = [[return { policies = { "./c.lua" } }]],
      control_pair = false }, function(server)
      for _, name in ipairs { "a", "b", "c" } do assert.equal("rejected:" .. name, refused(server, "who=" .. name)) end
      -- Without dynamic in the chain strangers are dropped, known or not.
      local pair = player.pair(server)
      player.exchange(pair) -- from now on nobody on their IP is taken for one of them
      udp.open():send("hello", pair.ip, pair.host_port)
      server:await_metric("moonrelay_drops_total", { reason = "unknown_sender" }, 1)
    end)
    daemon.with({ files = files, set = { policies = "./b.lua, dynamic" }, control_pair = false }, function(server)
      assert.equal("rejected:b", refused(server, "who=b"))
      player.join(server, { words = "who=a", udp = false })
      local pair = player.pair(server)
      player.exchange(pair) -- from now on nobody on their IP is taken for one of them
      udp.open():send("hello", pair.ip, pair.host_port)
      pair.host.udp:expect("hello")
    end)
    daemon.with({ files = files, env = { MOONRELAY_POLICIES = "./c.lua" }, control_pair = false }, function(server)
      assert.equal("rejected:c", refused(server, "who=c"))
    end)
    -- A --policy file comes before dynamic where there is no config.
    daemon.with({ files = files, policies = { "./a.lua" }, control_pair = false }, function(server)
      assert.equal("rejected:a", refused(server, "who=a"))
      local pair = player.pair(server)
      player.exchange(pair) -- from now on nobody on their IP is taken for one of them
      udp.open():send("hello", pair.ip, pair.host_port)
      pair.host.udp:expect("hello")
    end)
  end)

  it("a_config_passes_settings_and_secrets_to_its_policies", function()
    daemon.with({ env = { DOOR_KEY = "sesame" }, files = { ["pin"] = "1234\n",
      ["door.lua"] = [[
        local key, pin
        return {
          load = function(cfg) key, pin = assert(cfg.key), assert(cfg.pin):match("%d+") end,
          register = function(ev) if ev.meta.key ~= key or ev.meta.pin ~= pin then return false, "closed" end end,
        }]] }, config = [[return {
          settings = { max_sessions_per_connection = 1, pairing = "open" },
          policies = { { "./door.lua", key = env "DOOR_KEY", pin = file "pin" }, "dynamic" },
        }]], control_pair = false }, function(server)
      assert.equal("rejected:closed", refused(server, "key=x pin=1234"))
      local client = player.join(server, { words = "key=sesame pin=1234", udp = false })
      client:send("register-host key=sesame pin=1234")
      client.tcp:expect("error register-host:too-many")
    end)
  end)

  it("calls_and_refusals_are_counted_by_policy", function()
    with([[return { register = function(ev) if ev.meta.no then return false, "no-" .. ev.meta.no end end }]],
      function(server)
        player.join(server, { udp = false })
        for i = 1, 40 do refused(server, "no=" .. i) end
        local page = server:metrics()
        assert.equal(1, page:value("moonrelay_policy_refusals_total",
          { policy = "mine1", hook = "register", reason = "no-1" }))
        assert.equal(40, page:sum("moonrelay_policy_refusals_total", { policy = "mine1", hook = "register" }))
        -- 32 reasons, and one for all others.
        assert.equal(8, page:value("moonrelay_policy_refusals_total",
          { policy = "mine1", hook = "register", reason = "other" }))
        assert.equal(41, page:sum("moonrelay_script_calls_total", { hook = "register" }))
        assert.equal(41, page:value("moonrelay_script_duration_seconds_count", { policy = "mine1", hook = "register" }))
      end)
  end)

  it("a_loop_in_a_hook_delays_no_datagram", function()
    with("return { register = function(ev) if ev.meta.loop then while true do end end end }", function(server)
      server:allow("mine1")
      local pair = player.pair(server)
      local client = connect(server)
      for _ = 1, 20 do client:send("register-host loop=1\n") end
      for _ = 1, 50 do player.exchange(pair) end
      for _ = 1, 20 do client:expect("error register-host:rejected:policy-error") end
    end)
  end)
end)
