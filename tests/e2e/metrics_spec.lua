-- SPDX-License-Identifier: MIT
-- The metrics page: its format, its names, and that its figures add up.
--
-- What is held here, and by which test:
--   the text format, strictly                             (every scrape of every spec) the_page_is_the_text_format
--   noray's names and ours                                every_documented_family_is_there
--   closed label sets                                     labels_come_from_closed_sets
--   2,000 junk commands                                   junk_commands_do_not_grow_the_page
--   a command that failed counts as an exception          commands_are_counted_by_name_and_outcome
--   connections, hosts, relays                            what_is_there_now_is_counted
--   noray_relay_duration, noray_relay_size                relayed_datagrams_are_in_the_histograms
--   noray_relay_drop_count is the sum of drops            every_drop_has_one_reason
--   packets in = out + drops + held, at every scrape      packets_in_are_packets_out_and_drops_and_held
--   registrar                                             the_registrars_answers_are_counted
--   no address, oid or PID is a label                     nothing_of_a_player_is_on_the_page
--   errors by command and code                            errors_are_counted_by_command_and_code
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local daemon = require "daemon"
local loop = require "loop"
local player = require "player"
local prometheus = require "prometheus"
local seed = require "seed"
local tcp = require "tcp"
local udp = require "udp"

local DROP_REASONS = { "unknown_sender", "unknown_target", "not_paired", "new_flow", "muted", "refused", "blocked",
  "bandwidth", "global", "duration", "traffic", "own_address", "address_class", "unproven", "truncated", "hold_full",
  "hold_expired", "event_full", "send_full", "send_failed" }

local LOOKUP_RESULTS = { "ok", "not-found", "family", "timeout", "busy", "failed", "policy-error", "refused", "next",
  "cancelled", "ignored" }

describe("the metrics", function()
  local server

  setup(function() server = daemon.start { control_pair = false } end)
  teardown(function() server:stop() end)
  after_each(function() server:after_case() end)

  local function connect()
    return assert(tcp.connect(server.command.ip, server.command.port))
  end

  it("the_reader_refuses_what_is_not_exactly_the_format", function()
    local good = "# HELP a b\n# TYPE a counter\na{x=\"1\\n\\\"\\\\\"} 1\na{x=\"2\"} 2.5e+3\n"
    assert.equal(2500, prometheus.parse(good):value("a", { x = "2" }))
    local histogram = "# HELP h b\n# TYPE h histogram\n"
    for _, bad in ipairs { good:sub(1, -2), good .. "a{x=\"2\"} 3\n", good .. "b 1\n", good .. "# TYPE a gauge\n",
      "# TYPE a counter\na 1\n", "# HELP a b\na 1\n", good .. "\n", "# HELP a b\n# TYPE a counter\na -1\n",
      "# HELP a b\n# TYPE a gauge\na  1\n", "# HELP a b\n# TYPE a gauge\na{} 1\n",
      "# HELP a b\n# TYPE a gauge\na{x=\"1\",} 1\n", "# HELP a b\n# TYPE a gauge\na 1x\n",
      "# HELP a b\n# TYPE a gauge\na{x=\"\\t\"} 1\n", "# HELP a b\n# TYPE a gauge\na 1\r\n",
      histogram .. "h_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n",
      histogram .. "h_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n",
      histogram .. "h_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 2\n",
      histogram .. "h_bucket{le=\"+Inf\"} 1\nh_count 1\n",
      histogram .. "h_bucket{le=\"2\"} 1\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n" } do
      assert.is_false(pcall(prometheus.parse, bad), "it reads " .. bad)
    end
  end)

  it("the_page_is_the_text_format", function()
    local response = server:get("/metrics")
    assert.equal(200, response.status)
    assert.is_truthy(response.headers["content-type"]:find("^text/plain; version=0%.0%.4"))
    prometheus.parse(response.body)
  end)

  it("every_documented_family_is_there", function()
    player.exchange(player.pair(server))
    local page = server:metrics()
    for name, kind in pairs {
      noray_command_duration = "histogram", noray_command_exception = "counter", noray_tcp_connections = "gauge",
      noray_active_hosts = "gauge", noray_relay_duration = "histogram", noray_relay_size = "histogram",
      noray_relay_drop_count = "counter", noray_relay_count = "gauge", noray_relay_expired = "counter",
      noray_remote_registrar_success = "counter", noray_remote_registrar_fail = "counter",
      noray_remote_registrar_repeat = "counter", process_cpu_seconds_total = "counter",
      process_resident_memory_bytes = "gauge", process_open_fds = "gauge", process_max_fds = "gauge",
      process_start_time_seconds = "gauge", moonrelay_packets_total = "counter", moonrelay_bytes_total = "counter",
      moonrelay_drops_total = "counter", moonrelay_script_calls_total = "counter",
      moonrelay_script_duration_seconds = "histogram", moonrelay_events_lost_total = "counter",
      moonrelay_ports = "gauge", moonrelay_build_info = "gauge", moonrelay_errors_total = "counter",
      moonrelay_policy_refusals_total = "counter", moonrelay_sessions = "gauge", moonrelay_relays = "gauge",
      moonrelay_limit_hits_total = "counter", moonrelay_kernel_drops_total = "counter", moonrelay_held = "gauge",
      moonrelay_latches = "gauge",
      moonrelay_lookup_total = "counter", moonrelay_lookup_duration_seconds = "histogram",
      moonrelay_registrar_total = "counter", moonrelay_control_stall_seconds = "histogram",
      moonrelay_log_dropped_total = "counter" } do
      assert.is_truthy(page.families[name], name .. " is missing")
      assert.equal(kind, page.families[name].type, name)
    end
    local function expect_labels(name, label, values)
      local there = page:label_values(name, label)
      for _, value in ipairs(values) do
        assert.is_true(there[value], name .. "{" .. label .. "=\"" .. value .. "\"} is missing")
      end
    end
    expect_labels("moonrelay_drops_total", "reason", DROP_REASONS)
    expect_labels("moonrelay_packets_total", "direction", { "in", "out" })
    expect_labels("moonrelay_bytes_total", "direction", { "in", "out" })
    expect_labels("moonrelay_ports", "state", { "free", "quarantined", "used", "open" })
    expect_labels("moonrelay_sessions", "state", { "addressed", "unaddressed" })
    expect_labels("moonrelay_relays", "kind", { "player", "dynamic", "target" })
    expect_labels("moonrelay_registrar_total", "result", { "ok", "repeat", "moved", "unknown", "limited", "silent" })
    expect_labels("moonrelay_lookup_total", "kind", { "literal", "script", "resolver" })
    expect_labels("moonrelay_lookup_total", "result", LOOKUP_RESULTS)
    assert.equal(1, page:sum("moonrelay_build_info"))
  end)

  it("labels_come_from_closed_sets", function()
    local client = connect()
    client:send("register-host\nconnect nope\nconnect-relay nope\necho x\nfoo\nECHO\n\27[2J\nset-oid x\n")
    client:lines(5)
    client:expect_nothing_more()
    local page = server:metrics()
    local function expect_only(name, label, values)
      local allowed = {}
      for _, value in ipairs(values) do allowed[value] = true end
      for value in pairs(page:label_values(name, label)) do
        assert.is_true(allowed[value], name .. " has " .. label .. "=" .. value)
      end
    end
    local commands = { "register-host", "connect", "connect-relay", "echo", "other" }
    expect_only("noray_command_duration", "command", commands)
    expect_only("noray_command_exception", "command", commands)
    expect_only("moonrelay_lookup_total", "kind", { "literal", "script", "resolver" })
    expect_only("moonrelay_lookup_total", "result", LOOKUP_RESULTS)
    expect_only("moonrelay_drops_total", "reason", DROP_REASONS)
    commands[#commands + 1] = "line"
    commands[#commands + 1] = "session"
    commands[#commands + 1] = "connection"
    expect_only("moonrelay_errors_total", "command", commands)
    expect_only("moonrelay_errors_total", "code", { "too-many", "blocked", "busy", "not-registered", "rejected",
      "unknown-oid", "draining", "client-no-address", "host-no-address", "full", "no-ports", "no-ids", "too-long" })
    expect_only("moonrelay_limit_hits_total", "kind", { "bandwidth", "global", "duration", "duration-soon", "traffic",
      "connections", "commands", "output", "failed-oids", "dynamic" })
  end)

  it("junk_commands_do_not_grow_the_page", function()
    local client = connect()
    client:send("junk\n")
    client:expect_nothing_more()
    local before = #server:get("/metrics").body
    local batch = {}
    for i = 1, 2000 do batch[i] = string.format("junk-%d-%x x\n", i, i * 7919) end
    client:send_all(table.concat(batch))
    client:expect_nothing_more()
    assert.is_true(#server:get("/metrics").body - before < 2000)
  end)

  it("commands_are_counted_by_name_and_outcome", function()
    local function counts(name)
      local page = server:metrics()
      return page:value("noray_command_duration_count", { command = name }) or 0,
        page:value("noray_command_exception", { command = name }) or 0
    end
    local echoes = counts "echo"
    local connects, failed = counts "connect"
    local others = counts "other"
    local client = connect()
    client:send("echo 1\necho 2\necho 3\nconnect nope\nfoo\nbar\n")
    client:lines(4)
    client:expect_nothing_more()
    assert.equal(echoes + 4, (counts "echo"))
    assert.same({ connects + 1, failed + 1 }, { counts "connect" })
    assert.equal(others + 2, (counts "other"))
  end)

  it("errors_are_counted_by_command_and_code", function()
    local function count(command, code)
      return server:metrics():value("moonrelay_errors_total", { command = command, code = code }) or 0
    end
    local before = { count("connect", "unknown-oid"), count("connect-relay", "not-registered"),
      count("line", "too-long") }
    local client = connect()
    client:send_all("connect-relay x\n" .. string.rep("y", 17000) .. "\nregister-host\nconnect x\nconnect y\n")
    client:lines(6)
    assert.same({ before[1] + 2, before[2] + 1, before[3] + 1 },
      { count("connect", "unknown-oid"), count("connect-relay", "not-registered"), count("line", "too-long") })
  end)

  it("what_is_there_now_is_counted", function()
    server:await_metric("noray_tcp_connections", {}, 0)
    server:await_metric("noray_active_hosts", {}, 0)
    local clients = {}
    for i = 1, 5 do clients[i] = player.join(server, { udp = i > 2 }) end
    connect()
    local page = server:metrics()
    assert.equal(6, page:value("noray_tcp_connections"))
    assert.equal(5, page:value("noray_active_hosts"))
    assert.equal(3, page:value("moonrelay_sessions", { state = "addressed" }))
    assert.equal(2, page:value("moonrelay_sessions", { state = "unaddressed" }))
    for _, client in ipairs(clients) do client:leave() end
    server:await_metric("noray_tcp_connections", {}, 1)
    server:await_metric("noray_active_hosts", {}, 0)
  end)

  it("ports_and_relays_agree", function()
    player.exchange(player.pair(server))
    local page = server:metrics()
    assert.equal(#server.relay_ports, page:sum("moonrelay_ports"))
    assert.equal(page:value("noray_relay_count"), page:value("moonrelay_ports", { state = "used" }))
    assert.equal(page:value("noray_relay_count"), page:sum("moonrelay_relays"))
  end)

  it("relayed_datagrams_are_in_the_histograms", function()
    local pair = player.pair(server)
    local page = server:metrics()
    local sizes, bytes = page:value("noray_relay_size_count"), page:value("noray_relay_size_sum")
    local durations = page:value("noray_relay_duration_count")
    local out = page:value("moonrelay_bytes_total", { direction = "out" })
    for _ = 1, 10 do player.exchange(pair, string.rep("x", 100)) end
    server:await_metric("noray_relay_size_count", {}, sizes + 20)
    page = server:metrics()
    assert.equal(bytes + 2000, page:value("noray_relay_size_sum"))
    assert.equal(durations + 20, page:value("noray_relay_duration_count"))
    assert.equal(out + 2000, page:value("moonrelay_bytes_total", { direction = "out" }))
  end)

  -- Junk of every kind at the relay ports: strangers, players of other games, free ports, all sizes, bursts.
  local function junk_run()
    seed.begin()
    local one, two = player.pair(server), player.pair(server)
    local sockets = { one.host.udp, one.client.udp, two.host.udp, two.client.udp, udp.open(), udp.open("127.66.20.1"),
      udp.open("127.66.20.2") }
    local sent = 0
    for _ = 1, 2000 do
      local socket = sockets[math.random(#sockets)]
      local port = server.relay_ports[math.random(#server.relay_ports)]
      local game = math.random(2) == 1 and one or two
      if math.random(2) == 1 then port = math.random(2) == 1 and game.host_port or game.client_port end
      socket:send(string.rep("j", math.random(0, 300)), one.ip, port)
      sent = sent + 1
      if sent % 100 == 0 then loop.turn() end
    end
    return sent
  end

  local function balance(page)
    local into = page:value("moonrelay_packets_total", { direction = "in" })
    local out = page:value("moonrelay_packets_total", { direction = "out" })
    return into, out + page:sum("moonrelay_drops_total") + page:value("moonrelay_held")
  end

  it("packets_in_are_packets_out_and_drops_and_held", function()
    local before = server:metric("moonrelay_packets_total", { direction = "in" })
    local sent = junk_run()
    -- At every scrape, not only at rest.
    loop.wait(function()
      local into, accounted = balance(server:metrics())
      assert.equal(into, accounted)
      return into >= before + sent
    end, "that all are received")
    server:await_metric("moonrelay_held", {}, 0)
    local into, accounted = balance(server:metrics())
    assert.equal(before + sent, into)
    assert.equal(into, accounted)
  end)

  it("every_drop_has_one_reason", function()
    junk_run()
    server:await_metric("moonrelay_held", {}, 0)
    local page = server:metrics()
    assert.equal(page:sum("moonrelay_drops_total"), page:value("noray_relay_drop_count"))
    for _, reason in ipairs { "unknown_sender", "unknown_target", "not_paired" } do
      assert.is_true(page:value("moonrelay_drops_total", { reason = reason }) > 0, reason)
    end
  end)

  it("the_registrars_answers_are_counted", function()
    local function results()
      local page = server:metrics()
      local r = {}
      for _, result in ipairs { "ok", "repeat", "moved", "unknown", "limited", "silent" } do
        r[#r + 1] = page:value("moonrelay_registrar_total", { result = result })
      end
      for _, name in ipairs { "success", "fail", "repeat" } do
        r[#r + 1] = page:value("noray_remote_registrar_" .. name)
      end
      return r
    end
    local before = results()
    local client = player.join(server)
    client:register()
    client:register()
    local junk = udp.open("127.66.21.1")
    junk:send("", server.registrar.ip, server.registrar.port)
    junk:send("x", server.registrar.ip, server.registrar.port)
    junk:send(string.rep("x", 128), server.registrar.ip, server.registrar.port)
    junk:expect("Unknown host pid!")
    local after = results()
    assert.same({ before[1] + 1, before[2] + 2, before[3], before[4] + 1, before[5], before[6] + 2 },
      { unpack(after, 1, 6) })
    assert.equal(before[9] + 2, after[9])
    assert.is_true(after[7] >= before[7] + 1)
    assert.is_true(after[8] >= before[8] + 1)
  end)

  it("expired_relays_are_counted", function()
    daemon.with({ set = { udp_relay_timeout = "1s" }, control_pair = false }, function(mine)
      player.exchange(player.pair(mine))
      mine:await_metric("noray_relay_expired", {}, 2)
      assert.equal(0, mine:metric("noray_relay_count"))
    end)
  end)

  it("nothing_of_a_player_is_on_the_page", function()
    local pair = player.pair(server, { udp_ip = "127.0.0.99" })
    player.exchange(pair)
    pair.client:send("connect nope-oid")
    pair.client.tcp:line()
    local body = server:get("/metrics").body
    for _, secret in ipairs { pair.host.oid, pair.host.pid, pair.client.oid, pair.client.pid, "127.0.0.99", "127.0.0.1",
      "nope-oid", pair.host.pid:sub(1, 16) } do
      assert.is_nil(body:find(secret, 1, true))
    end
  end)
end)
