-- SPDX-License-Identifier: MIT
-- Settings: which source wins, which values are read, and that a wrong one stops the start with its key and value.
--
-- What is held here, and by which test:
--   every wrong value stops the start                     a_wrong_value_stops_the_start_and_is_named
--   ... wherever it is written                            a_wrong_value_is_named_with_its_place
--   booleans, sizes, durations, ports that are right      every_spelling_that_is_documented_is_read
--   command line > MOONRELAY_ > NORAY_ > .env > config    the_first_source_wins
--   settings shows value and source                       (the_first_source_wins) every_key_is_shown_with_its_default
--   noray's names                                         noray_names_configure_a_daemon
--   .env: comments, export, quotes                        a_dotenv_file_is_read_as_shells_write_it
--   .env: a pipe, a directory   a_dotenv_that_is_no_file_stops_the_start_and_nobody_waits_for_it
--   unknown MOONRELAY_ or config key: did you mean        an_unknown_key_stops_the_start_with_a_suggestion
--   unknown NORAY_ key: a warning                         an_unknown_noray_key_is_a_warning
--   set twice with two values                             a_key_set_twice_with_two_values_is_named_at_start
--                                                         the_last_of_two_values_on_the_command_line_is_used_and_named
--   hosts                                                 listeners_are_where_their_hosts_say
--   0 is a free port, 0+n are n+1                         ports_of_the_kernels_choice_are_named_when_ready
--   a port that cannot be bound                           a_relay_port_in_use_is_left_out_with_a_warning
--   none can                                              a_range_that_is_all_in_use_stops_the_start
--   command, registrar, HTTP port in use                  a_listener_in_use_stops_the_start
--   open-file limit                                       too_few_open_files_stop_the_start_with_both_numbers
--                                                         a_low_limit_of_open_files_caps_connections_and_is_warned_of
--   a range inside the ephemeral range                    a_range_that_the_kernel_gives_to_others_is_warned_of
--   no public address                                     relaying_without_a_public_address_is_warned_of
--   the cleanup interval is accepted and unused           (every_spelling_that_is_documented_is_read)
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local daemon = require "daemon"
local loop = require "loop"
local player = require "player"
local tcp = require "tcp"
local udp = require "udp"

local function serve(set, opts)
  local args = { "serve", "--set", "control=" }
  local given = { socket_port = "0", http_port = "0", udp_registrar_port = "0", udp_relay_ports = "0+3" }
  for key, value in pairs(set) do given[key] = value end
  for key, value in pairs(given) do
    args[#args + 1] = "--set"
    args[#args + 1] = key .. "=" .. value
  end
  return daemon.run(args, opts)
end

-- One line on stderr that begins with the program's name and holds every one of the words.
local function expect_refusal(result, code, ...)
  assert.equal(0, result.signal, result.stderr)
  assert.equal(code, result.code, result.stdout .. result.stderr)
  assert.is_truthy(result.stderr:find("^moonrelay: [^\n]+\n$"), "not one line: " .. result.stderr)
  for _, word in ipairs { ... } do
    local there = result.stderr:lower():find(word:lower(), 1, true)
    assert.is_truthy(there, string.format("%q is missing in: %s", word, result.stderr))
  end
  assert.is_nil(result.stdout:find("ready command="))
end

describe("settings", function()
  after_each(loop.close_owned)

  local WRONG = {
    udp_relay_ports = { "0", "65536", "5-3", "70000-70001", "1-65536", "2048+70000", "x", "", "2048,", ",2048",
      "2048--2050",
      "2048-2050-2052", "-1", "20 48", "2048.5", "0-3", "0x10", "65535+1" },
    udp_relay_max_individual_traffic = { "1kb junk", "10kib", "10k", "-1kb", "", "kb", "1.5.5mb", "1e3", "1 2",
      "99999999pb", "nan", "inf", "0x10" },
    udp_relay_max_lifetime_traffic = { "many", "1tbb" },
    udp_relay_timeout = { "", "30x", "-30s", "s", "1h30", "half", "99999999999yr", "1.2.3s" },
    udp_relay_traffic_interval = { "100msec", "0.1 parsec" },
    udp_relay_cleanup_interval = { "never" },
    enable_words_oid = { "flase", "", "2", "maybe", "yess" },
    errors = { "flase", "" },
    allow_low_ports = { "perhaps" },
    socket_port = { "65536", "-1", "", "http", "1.5", "8890 x", "0x10", "99999999999999999999" },
    http_port = { "65536", "tcp" },
    udp_registrar_port = { "65536", "" },
    loglevel = { "loud", "", "warning!", "infoo" },
    log_format = { "xml", "" },
    log_addresses = { "some" },
    pairing = { "closed", "" },
    connect = { "relayed", "" },
    oid_length = { "0", "257", "", "x", "-1", "1.5" },
    pid_length = { "0", "257", "long" },
    oid_charset = { "a", "", "aab", "with space", "\195\164b" },
    pid_charset = { "a", "aa" },
    words_oid_length = { "0", "three" },
    socket_host = { "", "256.0.0.1", "127.0.0.1:80", "[::1]" },
    udp_host = { "1.2.3", "127.1", "::g", "a..fleet", ".fleet", "a.fleet.", "a.fleet:1", "a.0" },
    public_address = { "999.1.1.1" },
    workers = { "-1", "many", "1.5" },
    udp_buffer = { "1 meg", "" },
    max_sessions_per_connection = { "x", "-1" },
    commands_per_second = { "fast" },
    dynamic_share = { "101", "-1", "half" },
    hold_datagrams = { "x" },
    hold_time = { "soon" },
    script_cpu = { "10 moments" },
    script_memory = { "lots" },
  }

  for key, values in pairs(WRONG) do
    it("a_wrong_value_stops_the_start_and_is_named: " .. key, function()
      for _, value in ipairs(values) do
        local result = serve { [key] = value }
        -- A byte outside of ASCII is shown escaped.
        local shown = value:find("[\128-\255]") and "" or value
        expect_refusal(result, 2, key, shown)
      end
    end)
  end

  it("a_wrong_value_is_named_with_its_place", function()
    local base = { socket_port = "0", http_port = "0", udp_registrar_port = "0", udp_relay_ports = "0+3" }
    expect_refusal(serve(base, { env = { NORAY_UDP_RELAY_TIMEOUT = "soon" } }), 2, "NORAY_UDP_RELAY_TIMEOUT", "soon",
      "environment")
    expect_refusal(serve(base, { env = { MOONRELAY_PAIRING = "both" } }), 2, "MOONRELAY_PAIRING", "both", "environment")
    expect_refusal(serve(base, { files = { [".env"] = "# ours\n\nNORAY_LOGLEVEL=loud\n" } }), 2, "NORAY_LOGLEVEL",
      "loud", ".env", "3")
    expect_refusal(daemon.run({ "serve", "--config", "relay.lua" },
      { files = { ["relay.lua"] = 'return {\n  settings = { udp_relay_timeout = "soon" },\n}\n' } }), 2,
      "udp_relay_timeout", "soon", "relay.lua")
  end)

  it("every_spelling_that_is_documented_is_read", function()
    local RIGHT = {
      udp_relay_ports = { "2048", "2048-2051", "2048+3", "2048, 2050-2052 ,2060+1,2048", " 0+7 " },
      udp_relay_max_individual_traffic = { "128kb", "128KB", "1.5mb", "1 gb", "1tb", "1pb", "1000",
        "0", "10 B", "1Mb" },
      udp_relay_timeout = { "30", "30s", "30 sec", "500ms", "1m", "2min", "1h", "1hr", "1d", "1w", "1.5s",
        "2000000us" },
      udp_relay_cleanup_interval = { "30s" },
      udp_relay_max_lifetime_duration = { "4hr", "0", "1mo", "1yr" },
      enable_words_oid = { "true", "false", "yes", "no", "on", "off", "1", "0", "TRUE", "Off", "yEs" },
      loglevel = { "silent", "trace", "debug", "info", "warn", "error", "fatal" },
      oid_charset = { "01", "!~" },
      oid_length = { "1", "256" },
      pairing = { "paired", "open" },
      connect = { "direct", "relay" },
      udp_host = { "0.0.0.0", "::", "127.0.0.1", "::1", "localhost", "relay-1.fleet_2.example", "1.fleet", "0.a0" },
    }
    for key, values in pairs(RIGHT) do
      for _, value in ipairs(values) do
        local result = daemon.run { "settings", "--set", key .. "=" .. value, key }
        assert.equal(0, result.code, key .. " = " .. value .. ": " .. result.stderr)
        local text = value:match("^%s*(.-)%s*$")
        assert.is_truthy(result.stdout:find(text, 1, true), value .. " is not shown: " .. result.stdout)
      end
    end
  end)

  it("the_first_source_wins", function()
    local sources = {
      { value = "11s", shown = "command line" }, { value = "12s", shown = "environment" },
      { value = "13s", shown = "environment" }, { value = "14s", shown = ".env" },
      { value = "15s", shown = "config file" }, { value = "30s", shown = "default" },
    }
    for first = 1, #sources do
      local args, opts = { "settings" }, { env = {}, files = {} }
      opts.files["relay.lua"] = "return {}"
      if first <= 1 then args = { "settings", "--set", "udp_relay_timeout=11s" } end
      if first <= 2 then opts.env.MOONRELAY_UDP_RELAY_TIMEOUT = "12s" end
      if first <= 3 then opts.env.NORAY_UDP_RELAY_TIMEOUT = "13s" end
      if first <= 4 then opts.files[".env"] = "NORAY_UDP_RELAY_TIMEOUT=14s\n" end
      if first <= 5 then opts.files["relay.lua"] = 'return { settings = { udp_relay_timeout = "15s" } }' end
      args[#args + 1] = "--config"
      args[#args + 1] = "relay.lua"
      args[#args + 1] = "udp_relay_timeout"
      local result = daemon.run(args, opts)
      assert.equal(0, result.code, result.stderr)
      local line = result.stdout:match("[^\n]*udp_relay_timeout[^\n]*") or result.stdout
      assert.is_truthy(line:find(sources[first].value, 1, true), sources[first].value .. " is not in: " .. line)
      assert.is_truthy(line:find(sources[first].shown, 1, true), sources[first].shown .. " is not in: " .. line)
    end
  end)

  it("every_key_is_shown_with_its_default", function()
    local result = daemon.run { "settings" }
    assert.equal(0, result.code, result.stderr)
    for key, value in pairs {
      oid_length = "21", pid_length = "128", enable_words_oid = "false", words_oid_length = "3",
      socket_host = "0.0.0.0",
      socket_port = "8890", http_host = "0.0.0.0", http_port = "8891", udp_registrar_port = "8809",
      udp_relay_ports = "49152-51200", udp_relay_timeout = "30s", udp_relay_cleanup_interval = "30s",
      udp_relay_max_individual_traffic = "128kb", udp_relay_max_global_traffic = "1gb",
      udp_relay_traffic_interval = "100ms", udp_relay_max_lifetime_duration = "", udp_relay_max_lifetime_traffic = "",
      oid_charset = "useandom-26T198340PX75pxJACKVERYMINDBUSHWOLF_GQZbfghjklqvwyzrict", loglevel = "info",
      policies = "dynamic", udp_host = "0.0.0.0", pairing = "paired", connect = "direct", errors = "on",
      workers = "auto", udp_buffer = "1mb", drain_timeout = "0s", watch = "off", log_format = "text",
      log_addresses = "full", max_connections = "8192", max_connections_per_address = "256",
      max_sessions_per_connection = "16", commands_per_second = "500", commands_burst = "5000", output_buffer = "64kb",
      failed_oids_per_minute = "60", registrar_errors_per_second = "10", dynamic_per_address = "8",
      dynamic_per_target = "32", dynamic_share = "50", hold_datagrams = "8", hold_bytes = "16kb", hold_time = "2s",
      hold_flows = "4096", hold_memory = "4mb", latch_window = "10s", allow_low_ports = "off", script_cpu = "10ms",
      script_load_cpu = "1s", script_wait = "2s", script_memory = "32mb", public_address = "", user = "", control = "",
      config = "", caps_exempt = "", allow_peers = "", deny_peers = "", pid_charset = "useandom" } do
      local line = ("\n" .. result.stdout):match("\n(" .. key .. "%f[^%w_][^\n]*)")
      assert.is_truthy(line, key .. " is not shown")
      assert.is_truthy(line:find(value, 1, true), value .. " is not in: " .. line)
      assert.is_truthy(line:find("default", 1, true), "no source in: " .. line)
    end
    assert.equal(2, daemon.run({ "settings", "no_such_key" }).code)
  end)

  it("noray_names_configure_a_daemon", function()
    daemon.with({ set = { socket_port = false, http_port = false, udp_registrar_port = false, udp_relay_ports = false,
      udp_relay_timeout = false }, env = { NORAY_SOCKET_HOST = "127.0.0.1", NORAY_SOCKET_PORT = "0",
      NORAY_HTTP_HOST = "127.0.0.1", NORAY_HTTP_PORT = "0", NORAY_UDP_REGISTRAR_PORT = "0",
      NORAY_UDP_RELAY_PORTS = "0+15", NORAY_UDP_RELAY_TIMEOUT = "30s", NORAY_UDP_RELAY_CLEANUP_INTERVAL = "30s",
      NORAY_OID_LENGTH = "7", NORAY_OID_CHARSET = "abcdefghijklmnop", NORAY_PID_LENGTH = "64", NORAY_LOGLEVEL = "warn",
      NORAY_UDP_RELAY_MAX_INDIVIDUAL_TRAFFIC = "128kb", NORAY_UDP_RELAY_MAX_GLOBAL_TRAFFIC = "1gb",
      NORAY_UDP_RELAY_TRAFFIC_INTERVAL = "100ms", NORAY_UDP_RELAY_MAX_LIFETIME_DURATION = "4hr",
      NORAY_UDP_RELAY_MAX_LIFETIME_TRAFFIC = "4gb" } }, function(server)
      assert.equal(16, #server.relay_ports)
      assert.equal("127.0.0.1", server.command.ip)
      local pair = player.pair(server)
      player.exchange(pair)
      assert.is_truthy(pair.host.oid:find("^[a-p][a-p][a-p][a-p][a-p][a-p][a-p]$"))
      assert.equal(64, #pair.host.pid)
    end)
  end)

  it("a_dotenv_file_is_read_as_shells_write_it", function()
    daemon.with({ files = { [".env"] = table.concat({ "# noray's example", "", "export NORAY_OID_LENGTH=9",
      "NORAY_OID_CHARSET='xyz'", 'NORAY_PID_LENGTH="40"', "  # indented", "MOONRELAY_MAX_SESSIONS_PER_CONNECTION=1",
      "OTHER_PROGRAM=untouched", "NORAY_LOGLEVEL=info" }, "\r\n") .. "\n" } }, function(server)
      local client = player.join(server)
      assert.is_truthy(client.oid:find("^[xyz]+$"))
      assert.equal(9, #client.oid)
      assert.equal(40, #client.pid)
      client:send("register-host")
      client.tcp:expect("error register-host:too-many")
    end)
  end)

  it("a_dotenv_that_is_no_file_stops_the_start_and_nobody_waits_for_it", function()
    for program, why in pairs { mkfifo = "not a regular file", mkdir = "is a directory" } do
      local dir = daemon.directory {}
      assert.equal(0, os.execute(program .. " " .. dir .. "/.env"))
      expect_refusal(daemon.run({ "settings", "oid_length" }, { cwd = dir }), 2, ".env", why)
      os.remove(dir .. "/.env")
      daemon.remove(dir)
    end
  end)

  it("an_unknown_key_stops_the_start_with_a_suggestion", function()
    expect_refusal(serve { udp_relay_port = "1" }, 2, "udp_relay_port", "did you mean", "udp_relay_ports")
    expect_refusal(serve({}, { env = { MOONRELAY_PARING = "open" } }), 2, "MOONRELAY_PARING", "did you mean", "PAIRING")
    expect_refusal(daemon.run({ "serve", "--config", "relay.lua" },
      { files = { ["relay.lua"] = "return { settings = { soket_port = 0 } }" } }), 2, "soket_port", "did you mean",
      "socket_port", "relay.lua")
    expect_refusal(serve { entirely_unlike_anything = "1" }, 2, "entirely_unlike_anything")
  end)

  it("an_unknown_noray_key_is_a_warning", function()
    local log = daemon.with({ env = { NORAY_UDP_RELAY_PORT = "1", NORAY_FUTURE = "x" } }, function(server)
      server:await_log("NORAY_FUTURE")
      player.exchange(player.pair(server))
    end)
    assert.is_truthy(log:find("NORAY_UDP_RELAY_PORT", 1, true))
  end)

  it("a_key_set_twice_with_two_values_is_named_at_start", function()
    local log = daemon.with({ set = { pairing = "open" }, env = { MOONRELAY_PAIRING = "paired",
      NORAY_OID_LENGTH = "21", MOONRELAY_OID_LENGTH = "20" } }, function() end)
    assert.is_truthy(log:lower():find("[^\n]*pairing[^\n]*open[^\n]*paired"), log)
    assert.is_truthy(log:lower():find("[^\n]*oid_length[^\n]*20[^\n]*21"), log)
  end)

  it("the_last_of_two_values_on_the_command_line_is_used_and_named", function()
    local result = daemon.run { "settings", "--set", "pairing=open", "--set", "pairing=paired", "pairing" }
    assert.equal(0, result.code, result.stderr)
    assert.is_truthy(result.stdout:find("pairing%s+paired[^\n]*command line"), result.stdout)
  end)

  it("listeners_are_where_their_hosts_say", function()
    daemon.with({ set = { socket_host = "127.0.0.2", http_host = "127.0.0.3", udp_host = "127.0.0.4" },
      control_pair = false }, function(server)
      assert.same({ "127.0.0.2", "127.0.0.3", "127.0.0.4" },
        { server.command.ip, server.http.ip, server.registrar.ip })
      local host, client = player.join(server), player.join(server)
      local pair = player.relay(client, host)
      pair.ip = "127.0.0.4"
      player.exchange(pair)
      assert.is_nil((tcp.connect("127.0.0.1", server.command.port)))
      assert.is_nil((tcp.connect("127.0.0.1", server.http.port)))
      for _, port in ipairs { server.registrar.port, pair.host_port } do
        local elsewhere = udp.open()
        elsewhere:connect("127.0.0.1", port)
        loop.wait(function()
          elsewhere:send("x")
          return #elsewhere.errors > 0
        end, "an ICMP error from where nobody listens")
      end
    end)
  end)

  it("ports_of_the_kernels_choice_are_named_when_ready", function()
    daemon.with({ set = { udp_relay_ports = "0+7" } }, function(server)
      local seen = {}
      assert.equal(8, #server.relay_ports)
      for _, port in ipairs(server.relay_ports) do
        assert.is_true(port > 0 and port < 65536 and not seen[port])
        seen[port] = true
      end
      assert.equal("127.0.0.1", server.command.ip)
      player.exchange(player.pair(server))
    end)
  end)

  it("a_relay_port_in_use_is_left_out_with_a_warning", function()
    local taken = udp.open("0.0.0.0")
    local log = daemon.with({ set = { udp_relay_ports = taken.port .. ",0+7" } }, function(server)
      for _, port in ipairs(server.relay_ports) do assert.are_not.equal(taken.port, port) end
      assert.equal(8, #server.relay_ports)
      player.exchange(player.pair(server))
      loop.keep(taken)
    end)
    taken:close()
    assert.is_truthy(log:find(("relay ports are left out, the first is 0.0.0.0:%d/udp"):format(taken.port), 1, true))
  end)

  it("a_range_that_is_all_in_use_stops_the_start", function()
    local taken = udp.open("0.0.0.0")
    expect_refusal(serve { udp_relay_ports = tostring(taken.port) }, 1, tostring(taken.port))
  end)

  it("a_listener_in_use_stops_the_start", function()
    daemon.with({}, function(server)
      local command, web = tostring(server.command.port), tostring(server.http.port)
      local registrar = tostring(server.registrar.port)
      expect_refusal(serve { socket_port = command }, 1, command, "socket_port")
      expect_refusal(serve { http_port = web }, 1, web, "http_port")
      expect_refusal(serve { udp_registrar_port = registrar }, 1, registrar, "udp_registrar_port")
      local still = assert(tcp.connect(server.command.ip, server.command.port))
      still:send("echo served\n")
      still:expect("echo served")
    end)
  end)

  it("too_few_open_files_stop_the_start_with_both_numbers", function()
    expect_refusal(serve({ udp_relay_ports = "0+99" }, { limit_files = 150 }), 1, "150", "open")
  end)

  it("a_low_limit_of_open_files_caps_connections_and_is_warned_of", function()
    local log = daemon.with({ set = { udp_relay_ports = "0+99" }, limit_files = 400 }, function(server)
      player.exchange(player.pair(server))
    end)
    assert.is_truthy(log:find("open files[^\n]*400[^\n]*max_connections"), log)
  end)

  it("a_range_that_the_kernel_gives_to_others_is_warned_of", function()
    local ephemeral = udp.open("0.0.0.0")
    local port = ephemeral.port
    ephemeral:close()
    loop.keep(ephemeral)
    local log = daemon.with({ set = { udp_relay_ports = port .. ",0+7" } }, function(server)
      player.exchange(player.pair(server))
    end)
    assert.is_truthy(log:find("ephemeral", 1, true), log)
  end)

  it("relaying_without_a_public_address_is_warned_of", function()
    -- This machine's addresses are private ones or none but loopback.
    local log = daemon.with({ set = { connect = "relay" } }, function() end)
    assert.is_truthy(log:find("public_address", 1, true), log)
    log = daemon.with({ set = { connect = "relay", public_address = "203.0.113.1" } }, function() end)
    assert.is_nil(log:find("no public", 1, true), log)
  end)
end)
