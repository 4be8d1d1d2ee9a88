-- SPDX-License-Identifier: MIT
-- What the open internet tries, with real sockets, where the other specs do not look at it already. The whole
-- list is the table "Threats" in src/README.md.
--
-- What is held here, and by which test:
--   a crowd of connections from one address               a_thousand_idle_connections_from_one_address_keep_nobody_out
--   a client that never reads                             who_never_reads_is_closed_and_nobody_else
--   ... and whom others have the daemon talk to           notices_by_the_thousand_close_who_never_reads_and_nobody_else
--   forged sources                                        forged_sources_by_the_thousand_take_nothing_from_a_game
--   our own ports as a NAT shows them to us               our_ports_seen_from_outside_are_our_own
--   ... as a target                                       no_flow_goes_to_our_ports_seen_from_outside
--   a victim's address registered by somebody else        a_victim_gets_sixteen_datagrams_until_he_speaks
--   allow_peers, deny_peers                               a_denied_network_is_not_served_until_a_reload_allows_it
--   loopback peers at a public address                     whom_allow_peers_names_is_served_at_a_public_address
--   private ones, forged    a_private_source_is_nobody_at_a_public_address_whatever_the_routes_say
--   a sandbox without netlink                             a_machine_whose_addresses_cannot_be_asked_is_warned_of
--   a process that is stopped for seconds                 what_came_while_it_was_stopped_keeps_a_game_alive
--   system calls that fail                                a_system_call_that_fails_once_costs_what_it_was_for
--   a wall clock that is stepped                          a_wall_clock_that_steps_a_day_changes_nothing
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local daemon = require "daemon"
local forge = require "forge"
local loop = require "loop"
local network = require "network"
local player = require "player"
local tcp = require "tcp"
local udp = require "udp"

-- The daemon on 127.0.0.1 alone; a NAT shows it as this address, which is free for the test's sockets then.
local OUTSIDE = "127.0.0.5"
local BEHIND_NAT = { udp_host = "127.0.0.1", public_address = OUTSIDE }

local function drops(server, reason)
  return server:metric("moonrelay_drops_total", { reason = reason })
end

describe("a threat", function()
  after_each(loop.close_owned)

  it("a_thousand_idle_connections_from_one_address_keep_nobody_out", function()
    daemon.with({}, function(server)
      local CROWD, CAP = 1000, 256
      local function connect()
        return assert(tcp.connect(server.command.ip, server.command.port, { from = "127.66.9.1" }))
      end
      for _ = 1, CAP do connect():send("e") end -- a line that never ends
      for _ = CAP + 1, CROWD do
        local client = connect()
        client:expect("error connection:too-many")
        client:expect_end()
        client:close()
      end
      server:await_metric("noray_tcp_connections", {}, CAP + 2) -- and the control pair's
      assert.equal(CROWD - CAP, server:metric("moonrelay_limit_hits_total", { kind = "connections" }))
      player.exchange(player.pair(server, { tcp_ip = "127.66.9.2" }))
    end)
  end)

  it("who_never_reads_is_closed_and_nobody_else", function()
    -- More than what the kernel takes for him: his own buffer and the daemon's.
    local ASKED, KIB = 2500, 1024
    daemon.with({}, function(server)
      local deaf = assert(tcp.connect(server.command.ip, server.command.port, { paused = true }))
      local host = player.join(server)
      server:await_metric("noray_tcp_connections", {}, 2 + 2)
      local before = server:memory()
      deaf:send(("echo " .. ("x"):rep(8 * KIB) .. "\n"):rep(ASKED))
      server:await_metric("noray_tcp_connections", {}, 2 + 1)
      assert.is_true(server:memory() < before + ASKED * 8 * KIB / 2)
      assert.equal(1, server:metric("moonrelay_limit_hits_total", { kind = "output" }))
      player.exchange(player.relay(player.join(server), host))
    end)
  end)

  it("notices_by_the_thousand_close_who_never_reads_and_nobody_else", function()
    -- Nobody asks for them but others: who is not read any more for his own commands would still be told.
    local MOST, BATCH = 20000, 100
    local set = { output_buffer = "16kb", commands_burst = tostring(2 * MOST), failed_oids_per_minute = tostring(MOST),
      loglevel = "warn" }
    daemon.with({ set = set }, function(server)
      local deaf, caller = player.join(server), player.join(server)
      local asked = 0
      deaf.tcp:pause()
      repeat
        caller.tcp:send_all(("connect " .. deaf.oid .. "\n"):rep(BATCH))
        caller.tcp:lines(BATCH)
        asked = asked + BATCH
      until server:metric("noray_tcp_connections") == 2 + 1 or asked == MOST
      assert.equal(2 + 1, server:metric("noray_tcp_connections"))
      caller:send("echo still here")
      caller.tcp:expect("echo still here")
      player.exchange(player.relay(caller, player.join(server)))
    end)
  end)

  it("forged_sources_by_the_thousand_take_nothing_from_a_game", function()
    if not forge.is_allowed() then return pending("forging a source needs root") end
    -- So few that half of the flood has filled all that it can fill.
    local set = { hold_flows = "128", hold_memory = "64kb" }
    daemon.with({ set = set }, function(server)
      local pair = player.pair(server)
      player.exchange(pair)
      local FORGED, BATCH, memory = 12000, 100, nil
      for i = 1, FORGED do
        local from = ("127.77.%d.%d"):format(i % 250 + 1, i / 250 + 1)
        forge.send(from, 1024 + i, "127.0.0.1", i % 2 == 0 and pair.host_port or pair.client_port, "junk " .. i)
        if i % BATCH == 0 then player.exchange(pair) end -- every datagram of the game comes, in time
        if i == FORGED / 2 then memory = server:memory() end
      end
      loop.wait(function() return server:metrics():sum("moonrelay_drops_total") == FORGED end, "every one is counted")
      assert.equal(2 + 2, server:metric("noray_relay_count"))
      local growth = server:memory() - memory
      -- What is allocated once is touched as far as it was ever filled. ThreadSanitizer remembers what was.
      local allowed = (os.getenv "MR_SANITIZE" == "thread" and 64 or 8) * 1024 * 1024
      assert.is_true(growth < allowed, FORGED / 2 .. " more sources grew the process by " .. growth .. " bytes")
    end)
  end)

  it("our_ports_seen_from_outside_are_our_own", function()
    daemon.with({ set = BEHIND_NAT }, function(server)
      local pair = player.pair(server)
      player.exchange(pair)
      -- What a NAT sends back to us comes from one of our own ports, at its outer address.
      local hairpin = udp.open(OUTSIDE, server.relay_ports[1])
      for _ = 1, 20 do hairpin:send("round and round", "127.0.0.1", pair.host_port) end
      loop.wait(function() return drops(server, "own_address") == 20 end, "20 drops as own_address")
      local lone, registrar = player.join(server, { udp = false }), udp.open(OUTSIDE, server.registrar.port)
      for _, p in ipairs { pair.host, lone } do
        for _ = 1, 20 do hairpin:send(p.pid, "127.0.0.1", server.registrar.port) end
        for _ = 1, 20 do registrar:send(p.pid, "127.0.0.1", server.registrar.port) end
      end
      pair.host:register() -- answered after all of those
      player.exchange(pair)
      assert.equal(0, hairpin:waiting() + registrar:waiting())
      assert.equal(0, pair.host.udp:waiting() + pair.client.udp:waiting())
      -- Another port there is no port of ours.
      lone:register(udp.open(OUTSIDE))
    end)
  end)

  it("no_flow_goes_to_our_ports_seen_from_outside", function()
    local set = { udp_host = BEHIND_NAT.udp_host, public_address = OUTSIDE, dynamic_per_address = "64" }
    daemon.with({ set = set, config = [[return { policies = { "./p.lua" }, ports = { [0] = {} } }]],
      files = { ["p.lua"] = "return { drop = function(ev) return { target = ev:peek(64) } end }" } }, function(server)
        local open = server.open_ports[1]
        local targets = { server.relay_ports[1], server.registrar.port, open }
        local nobody = udp.open(OUTSIDE, server.relay_ports[1])
        for _, port in ipairs(targets) do udp.open():send(OUTSIDE .. ":" .. port, "127.0.0.1", open) end
        server:await_metric("moonrelay_drops_total", { reason = "new_flow" }, #targets)
        server:await_log("why=own-address")
        assert.equal(0, server:metric("moonrelay_relays", { kind = "target" }))
        assert.equal(0, nobody:waiting())
        local beside = udp.open(OUTSIDE)
        udp.open():send(beside.text, "127.0.0.1", open)
        beside:expect(beside.text)
      end)
  end)

  it("a_victim_gets_sixteen_datagrams_until_he_speaks", function()
    daemon.with({}, function(server)
      -- One who can send from the victim's address once, or has a friend there who does.
      local attacker = player.join(server, { tcp_ip = "127.66.8.1", udp_ip = "127.66.8.2" })
      local sender = player.join(server, { tcp_ip = "127.66.8.3" })
      local pair = player.relay(sender, attacker)
      local victim = attacker.udp
      for i = 1, 200 do sender.udp:send("flood " .. i, pair.ip, pair.host_port) end
      loop.wait(function() return drops(server, "unproven") == 200 - 16 end, "184 drops as unproven")
      for i = 1, 16 do victim:expect("flood " .. i, pair.ip, pair.client_port) end
      -- Registering there again gives nothing anew.
      attacker:register()
      sender.udp:send("more", pair.ip, pair.host_port)
      loop.wait(function() return drops(server, "unproven") == 200 - 15 end, "one more drop")
      assert.equal(0, victim:waiting())
      victim:send("here I am", pair.ip, pair.client_port)
      sender.udp:expect("here I am", pair.ip, pair.host_port)
      for i = 1, 20 do sender.udp:send("game " .. i, pair.ip, pair.host_port) end
      for i = 1, 20 do victim:expect("game " .. i, pair.ip, pair.client_port) end
    end)
  end)

  it("a_denied_network_is_not_served_until_a_reload_allows_it", function()
    local function config(denied) return ("return { settings = { deny_peers = %q } }"):format(denied) end
    daemon.with({ config = config "127.66.7.0/24" }, function(server)
      local pair = player.pair(server)
      player.exchange(pair)
      local denied = player.join(server, { tcp_ip = "127.66.7.1", udp = false })
      local socket = udp.open("127.66.7.1")
      for _ = 1, 20 do socket:send(denied.pid, "127.0.0.1", server.registrar.port) end
      for _ = 1, 20 do socket:send("let me in", "127.0.0.1", pair.host_port) end
      -- Eight are held while it is looked at, and find that reason; what comes meanwhile has another.
      loop.wait(function() return server:metrics():sum("moonrelay_drops_total") == 20 end, "20 drops")
      assert.is_true(drops(server, "address_class") > 0)
      player.exchange(pair)
      assert.equal(0, socket:waiting())
      assert.equal(0, pair.host.udp:waiting())
      local file = assert(io.open(server.dir .. "/moonrelay.lua", "w"))
      file:write(config "127.66.6.0/24")
      file:close()
      server:signal_with("sighup")
      denied:register(socket)
    end)
  end)

  it("whom_allow_peers_names_is_served_at_a_public_address", function()
    local OURS = "203.0.113.9"
    if not network.add_address(OURS) then return pending("that takes a network of one's own") end
    daemon.with({ control_pair = false, set = { udp_host = OURS, allow_peers = "127.66.7.0/24",
      deny_peers = "127.66.7.9" } }, function(server)
      local function join() return player.join(server, { tcp_ip = "127.66.7.1", udp_ip = "127.66.7.1" }) end
      local host = join()
      local pair = player.relay(join(), host)
      player.exchange(pair)
      for i, ip in ipairs { "127.66.8.1", "127.66.7.9" } do -- not named; named, but denied
        local stranger = player.join(server, { tcp_ip = ip, udp = false })
        local socket = udp.open(ip)
        for _ = 1, 20 do socket:send(stranger.pid, OURS, server.registrar.port) end
        for _ = 1, 20 do socket:send("let me in", OURS, pair.host_port) end
        loop.wait(function() return server:metrics():sum("moonrelay_drops_total") == 20 * i end, "20 drops more")
        assert.is_true(drops(server, "address_class") >= i)
        assert.equal(0, socket:waiting())
      end
      assert.equal(0, host.udp:waiting())
      player.exchange(pair)
    end)
  end)

  it("a_private_source_is_nobody_at_a_public_address_whatever_the_routes_say", function()
    if not forge.is_allowed() then return pending("forging a source needs root") end
    local OURS, PRIVATE = "203.0.113.9", "10.1.2.3"
    local is_allowed = network.with(function()
      network.add_address(OURS)
      daemon.with({ config = [[return { policies = { { "dynamic", from = "anyone" } } }]] }, function(server)
        local pair = player.pair(server)
        local function is_dropped(n)
          forge.send(PRIVATE, 4000 + n, OURS, pair.host_port, "to whom?")
          loop.wait(function() return server:metrics():sum("moonrelay_drops_total") == n end, n .. " drops")
          assert.equal(n, drops(server, "address_class"))
          assert.equal(2 + 2, server:metric("noray_relay_count"))
          player.exchange(pair)
        end
        is_dropped(1) -- no route leads there
        network.add_default_route()
        is_dropped(2) -- we would answer from OURS
        network.add_address "10.9.9.9"
        local neighbour = udp.open(PRIVATE)
        neighbour:send("here I can be", "10.9.9.9", pair.host_port)
        pair.host.udp:send("welcome", pair.ip, pair.host.udp:recv().port)
        neighbour:expect("welcome", nil, pair.host_port)
      end)
    end)
    if not is_allowed then pending("this process may make no network of its own") end
  end)

  it("a_machine_whose_addresses_cannot_be_asked_is_warned_of", function()
    local dir = daemon.directory()
    daemon.with({ preload = daemon.program():match "^(.*)/[^/]*$" .. "/tests/faults.so",
      env = { MR_TEST_FAULT_AT = "uv_interface_addresses 1 97", MR_TEST_FAULT_LOG = dir .. "/log" },
      set = { udp_host = "0.0.0.0" } }, function(server)
      server:await_log "of this machine cannot be asked (netlink): address family not supported; its own ports"
    end)
    daemon.remove(dir)
  end)

  it("what_came_while_it_was_stopped_keeps_a_game_alive", function()
    local TIMEOUT_S, STOPPED_S = 3, 5
    daemon.with({ set = { udp_relay_timeout = TIMEOUT_S .. "s" }, control_pair = false }, function(server)
      local pair, sent = player.pair(server), 0
      player.exchange(pair)
      server:signal_with("sigstop")
      local next_at = loop.now()
      loop.try(function()
        if loop.now() < next_at then return end
        sent, next_at = sent + 1, next_at + 0.1
        pair.client.udp:send("while you slept " .. sent, pair.ip, pair.host_port)
      end, STOPPED_S)
      server:signal_with("sigcont")
      -- The timeout is over since long, but not for what waits in the sockets.
      for i = 1, sent do pair.host.udp:expect("while you slept " .. i, pair.ip, pair.client_port) end
      player.exchange(pair)
      assert.equal(2, server:metric("noray_relay_count"))
      assert.equal(0, server:metric("noray_relay_expired"))
    end)
  end)

  it("a_wall_clock_that_steps_a_day_changes_nothing", function()
    local DAY_S = 24 * 60 * 60
    local dir = daemon.directory { clock = "0" }
    local function step(seconds)
      local file = assert(io.open(dir .. "/new", "w"))
      file:write(tostring(seconds))
      file:close()
      assert(os.rename(dir .. "/new", dir .. "/clock"))
    end
    local preload = daemon.program():match("^(.*)/[^/]*$") .. "/tests/clock.so"
    daemon.with({ preload = preload, env = { MR_TEST_CLOCK = dir .. "/clock" } }, function(server)
      local pair = player.pair(server)
      player.exchange(pair)
      for _, seconds in ipairs { DAY_S, -DAY_S, 0 } do
        step(seconds)
        player.exchange(pair)
        -- Somebody new is logged under the other date, so the step was felt.
        local late = player.join(server)
        server:await_log(os.date("!%Y-%m-%d", os.time() + seconds))
        player.exchange(player.relay(late, pair.host))
        player.exchange(pair)
        assert.equal(0, server:metric("noray_relay_expired"))
      end
    end)
    daemon.remove(dir)
  end)

  it("a_system_call_that_fails_once_costs_what_it_was_for", function()
    local FAULTS = { { "recvfrom", "ENOMEM", "EINTR", "ECONNREFUSED", "ENOBUFS" },
      { "recvmmsg", "ENOMEM", "EINTR", "ECONNREFUSED" }, { "sendto", "EPERM", "EAGAIN", "ENOBUFS", "ENETUNREACH" },
      { "sendmmsg", "EPERM", "EAGAIN", "ENOBUFS", "EINTR" },
      { "accept4", "EMFILE", "ENFILE", "ENOBUFS", "ECONNABORTED", "EPROTO", "EINTR" },
      { "epoll_wait", "EINTR" } }
    local NUMBER = { EPERM = 1, EINTR = 4, EAGAIN = 11, ENOMEM = 12, ENFILE = 23, EMFILE = 24, EPROTO = 71,
      ENETUNREACH = 101, ECONNABORTED = 103, ENOBUFS = 105, ECONNREFUSED = 111 }
    local dir, serial, never = daemon.directory { fault = "" }, 0, {}
    local function tell(text)
      local file = assert(io.open(dir .. "/new", "w"))
      file:write(text)
      file:close()
      assert(os.rename(dir .. "/new", dir .. "/fault"))
    end
    local opts = { preload = daemon.program():match("^(.*)/[^/]*$") .. "/tests/faults.so",
      env = { MR_TEST_FAULT = dir .. "/fault", MR_TEST_FAULT_LOG = dir .. "/log" }, set = { workers = "1" } }
    daemon.with(opts, function(server)
      local pair, lone = player.pair(server), player.join(server)
      -- All that the daemon does with sockets, one at a time and many at once, whether it comes through or not.
      local function stir()
        pair.host.udp:drain()
        pair.client.udp:send("alone", pair.ip, pair.host_port)
        pair.host.udp:try_recv(0.1)
        for i = 1, 40 do pair.client.udp:send("stir " .. i, pair.ip, pair.host_port) end
        lone.udp:send(lone.pid, pair.ip, server.registrar.port)
        local visitor = tcp.connect(server.command.ip, server.command.port)
        if visitor then
          visitor:send("echo here\n")
          visitor:try_line(0.2)
          visitor:close()
        end
      end
      for _, fault in ipairs(FAULTS) do
        for i = 2, #fault do
          serial = serial + 1
          tell(("%d %s %d"):format(serial, fault[1], NUMBER[fault[i]]))
          local function has_failed() return daemon.read(dir .. "/log"):find("%f[%d]" .. serial .. "\n") end
          for _ = 1, 100 do
            stir()
            if has_failed() then break end
          end
          if not has_failed() then never[#never + 1] = fault[1] .. " " .. fault[i] end
          tell ""
          player.flush(pair)
          player.exchange(pair)
          player.exchange(player.relay(player.join(server), pair.host))
          assert.equal(200, server:get("/healthz").status)
        end
      end
    end)
    daemon.remove(dir)
    assert.equal("", table.concat(never, ", "))
  end)
end)
