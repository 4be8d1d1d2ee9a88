-- SPDX-License-Identifier: MIT
-- The command channel: how bytes become lines, lines commands, and commands answers.
--
-- What is held here, and by which test:
--   LF and CR LF end a line, no CR goes out              a_line_ends_with_lf_or_crlf_and_no_cr_comes_back
--   fragments                                            one_byte_per_segment_is_a_command_all_the_same
--   pipelining, order of output                          commands_in_one_segment_are_answered_in_order
--   a command before the last answer was read            a_second_command_is_answered_after_the_first
--   an unfinished last line at FIN is executed           an_unfinished_line_is_executed_at_half_close
--   at FIN what came is answered, then it closes         everything_sent_before_a_half_close_is_answered
--   bytes pass as they are                               bytes_pass_as_they_are
--   split at the first space, data verbatim, echo        a_command_ends_at_the_first_space
--   a bare echo                                          a_bare_echo_is_answered_with_a_space
--   case-sensitive                                       commands_are_case_sensitive
--   empty and unknown: silence, kept                     empty_lines_and_unknown_commands_are_met_with_silence
--   over 16 KiB                                          a_line_over_16_kib_is_refused_and_the_next_one_works
--                                                        a_line_of_16_kib_is_taken_whatever_ends_it
--   a line without end, memory flat                      a_line_without_end_costs_no_memory
--   resets mid-line, after register, while idle          a_reset_connection_disturbs_nobody
--   key=value words, other words                         words_after_register_host_are_ignored_or_meta
--   request ids                                          a_request_id_follows_the_last_line_of_a_success
--                                                        a_failed_request_is_answered_with_its_id
--   no answer under connect, connect-relay, set-*        an_error_never_travels_under_a_command_that_games_read
--   errors = off                                         errors_off_is_silence
--   an idle connection stays, a dead one goes            an_idle_connection_has_keepalive_and_is_not_closed
--   IPv6 peers                                           a_client_over_ipv6_is_served
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local daemon = require "daemon"
local loop = require "loop"
local player = require "player"
local tcp = require "tcp"

local KIB = 1024
local LINE_MAX = 16 * KIB

describe("the command channel", function()
  local server

  setup(function() server = daemon.start() end)
  teardown(function() server:stop() end)
  after_each(function() server:after_case() end)

  local function connect(where)
    where = where or server
    return assert(tcp.connect(where.command.ip, where.command.port))
  end

  it("a_line_ends_with_lf_or_crlf_and_no_cr_comes_back", function()
    local client = connect()
    client:send("echo unix\necho dos\r\necho in\rside\r\necho two\r\r\n")
    client:expect("echo unix")
    client:expect("echo dos")
    client:expect("echo in\rside")
    client:expect("echo two\r")
    client:send("register-host\r\n")
    client:expect_match("^set%-oid [%w_-]+$")
    client:expect_match("^set%-pid [%w_-]+$")
    client:expect_nothing_more()
  end)

  it("one_byte_per_segment_is_a_command_all_the_same", function()
    local client = connect()
    for byte in ("echo a b  c\r\nregister-host\n"):gmatch(".") do client:send(byte) end
    client:expect("echo a b  c")
    client:expect_match("^set%-oid ")
    client:expect_match("^set%-pid ")
    client:expect_nothing_more()
  end)

  it("commands_in_one_segment_are_answered_in_order", function()
    local client = connect()
    local batch = {}
    for i = 1, 500 do batch[i] = "echo " .. i .. "\n" end
    batch[251] = "register-host\n"
    batch[252] = "connect nope\n"
    client:send(table.concat(batch))
    for i = 1, 250 do client:expect("echo " .. i) end
    client:expect_match("^set%-oid ")
    client:expect_match("^set%-pid ")
    client:expect("error connect:unknown-oid")
    for i = 253, 500 do client:expect("echo " .. i) end
  end)

  it("a_second_command_is_answered_after_the_first", function()
    local client = connect()
    local host = player.join(server)
    client:send("register-host\n")
    client:send("connect-relay " .. host.oid .. "\necho after\n")
    client:expect_match("^set%-oid ")
    client:expect_match("^set%-pid ")
    client:expect("error connect-relay:client-no-address")
    client:expect("echo after")
  end)

  it("an_unfinished_line_is_executed_at_half_close", function()
    local client = connect()
    client:send("echo first\necho last")
    client:finish()
    client:expect("echo first")
    client:expect("echo last")
    assert.equal("", client:expect_end())
    assert.is_nil(client.failure)
  end)

  it("everything_sent_before_a_half_close_is_answered", function()
    local host = player.join(server)
    local client = player.join(server)
    client.tcp:send("register-host\nconnect " .. host.oid .. "\nconnect-relay " .. host.oid .. "\necho end\n")
    client.tcp:finish()
    client.tcp:expect_match("^set%-oid ")
    client.tcp:expect_match("^set%-pid ")
    -- The latest registration is the caller and has no address yet.
    client.tcp:expect("error connect:client-no-address")
    client.tcp:expect("error connect-relay:client-no-address")
    client.tcp:expect("echo end")
    assert.equal("", client.tcp:expect_end())
  end)

  it("relays_asked_for_right_before_a_half_close_are_told", function()
    local host = player.join(server)
    local client = player.join(server)
    client.tcp:send("connect-relay " .. host.oid)
    client.tcp:finish()
    client.tcp:expect_match("^connect%-relay %d+$")
    host.tcp:expect_match("^connect%-relay %d+$")
    assert.equal("", client.tcp:expect_end())
  end)

  it("bytes_pass_as_they_are", function()
    local client = connect()
    for _, data in ipairs { "a\0b", "\255\254\192\128", "\27[31m\27]0;x\7", "\240\159\142\174", "tab\there", "%s%n%d",
      string.rep("\0", 100) } do
      client:send("echo " .. data .. "\n")
      client:expect("echo " .. data)
    end
    client:send("ec\0ho x\n\255\254 x\n\27[2J\n")
    client:expect_nothing_more()
  end)

  it("a_command_ends_at_the_first_space", function()
    local client = connect()
    client:send("echo  two spaces \necho a=b c=d\necho\ttab\n echo led\n")
    client:expect("echo  two spaces ")
    client:expect("echo a=b c=d")
    client:expect_nothing_more()
  end)

  it("a_bare_echo_is_answered_with_a_space", function()
    local client = connect()
    client:send("echo\necho \n")
    client:expect("echo ")
    client:expect("echo ")
  end)

  it("commands_are_case_sensitive", function()
    local client = connect()
    client:send("ECHO x\nEcho x\nREGISTER-HOST\nRegister-host\nregister_host\n")
    client:expect_nothing_more()
  end)

  it("empty_lines_and_unknown_commands_are_met_with_silence", function()
    local client = connect()
    client:send("\n\r\n\n  \nhello\nset-oid x\nset-pid y\nerror x\nGET / HTTP/1.1\r\n\r\nconnect-relay-x y\nechoo z\n")
    client:expect_nothing_more()
  end)

  it("a_line_over_16_kib_is_refused_and_the_next_one_works", function()
    local client = connect()
    client:send_all("echo " .. string.rep("x", LINE_MAX - 4) .. "\necho after\n")
    client:expect("error line:too-long")
    client:expect("echo after")
    client:send_all(string.rep("y", 100 * KIB) .. "\r\necho again\n")
    client:expect("error line:too-long")
    client:expect("echo again")
    for _ = 1, 40 do client:send(string.rep("z", KIB)) end
    client:expect("error line:too-long")
    client:send("\necho third\n")
    client:expect("echo third")
  end)

  it("a_line_of_16_kib_is_taken_whatever_ends_it", function()
    local client = connect()
    local data = string.rep("x", LINE_MAX - 5)
    client:send_all("echo " .. data .. "\n")
    client:expect("echo " .. data)
    client:send_all("echo " .. data .. "\r\n")
    client:expect("echo " .. data)
    client:send_all("echo " .. data)
    client:send("\r")
    client:send("\n")
    client:expect("echo " .. data)
    client:send_all("echo " .. data)
    client:finish()
    client:expect("echo " .. data)
    client:expect_end()
  end)

  it("an_unfinished_line_over_16_kib_is_not_executed_at_half_close", function()
    local client = connect()
    client:send_all("echo " .. string.rep("x", LINE_MAX))
    client:finish()
    client:expect("error line:too-long")
    assert.equal("", client:expect_end())
  end)

  it("a_line_without_end_costs_no_memory", function()
    local client = connect()
    client:send_all(string.rep("x", 256 * KIB))
    client:expect("error line:too-long")
    local before = server:memory()
    for _ = 1, 32 do client:send_all(string.rep("x", 1024 * KIB)) end
    local growth = server:memory() - before
    assert.is_true(growth < 8 * 1024 * KIB, "32 MiB of a line grew the process by " .. growth .. " bytes")
    client:send("\necho still\n")
    client:expect("echo still")
  end)

  it("a_reset_connection_disturbs_nobody", function()
    local bystander = player.pair(server)
    local host = player.join(server)
    for _ = 1, 10 do
      local mid_line, registered, idle, asking = connect(), connect(), connect(), connect()
      mid_line:send("echo unfini")
      registered:send("register-host\n")
      registered:expect_match("^set%-oid ")
      asking:send("register-host\nconnect " .. host.oid .. "\nconnect-relay " .. host.oid .. "\nregister-host\n")
      for _, client in ipairs { mid_line, registered, idle, asking } do client:reset() end
    end
    player.exchange(bystander)
    bystander.host.tcp:expect_nothing_more()
    bystander.client.tcp:expect_nothing_more()
    host.tcp:expect_nothing_more()
  end)

  it("words_after_register_host_are_ignored_or_meta", function()
    local client = connect()
    local seventeen = {}
    for i = 1, 17 do seventeen[i] = "k" .. i .. "=v" end
    for _, words in ipairs { "anything", "two words", "game=chess", "a=1 b=2 junk =x K=v k= 9=9", "  spaced   out  ",
      table.concat(seventeen, " "), "long=" .. string.rep("v", 5000), "\255=\254 a=\0" } do
      local one = connect()
      one:send("register-host " .. words .. "\n")
      one:expect_match("^set%-oid ")
      one:expect_match("^set%-pid ")
      one:expect_nothing_more()
    end
    client:expect_nothing_more()
  end)

  it("a_request_id_follows_the_last_line_of_a_success", function()
    local host = player.join(server)
    local client = player.join(server)
    client:send("echo?7 hello")
    client.tcp:expect("echo hello")
    client.tcp:expect(".7")
    client:send("register-host?again")
    client.tcp:expect_match("^set%-oid ")
    client.tcp:expect_match("^set%-pid ")
    client.tcp:expect(".again")
    client = player.join(server)
    client:send("connect?a1 " .. host.oid)
    client.tcp:expect("connect " .. host.udp.text)
    client.tcp:expect(".a1")
    host.tcp:expect("connect " .. client.udp.text)
    host.tcp:expect_nothing_more()
    client:send("connect-relay?a2 " .. host.oid)
    client.tcp:expect_match("^connect%-relay %d+$")
    client.tcp:expect(".a2")
    host.tcp:expect_match("^connect%-relay %d+$")
    host.tcp:expect_nothing_more()
    client.tcp:expect_nothing_more()
  end)

  it("a_failed_request_is_answered_with_its_id", function()
    local client = connect()
    client:send("connect?1 nope\nconnect-relay?2 nope\n")
    client:expect("!1 not-registered")
    client:expect("!2 not-registered")
    client:send("register-host\n")
    client:lines(2)
    client:send("connect?x-9 nope\nconnect-relay?z nope\nconnect nope\n")
    client:expect("!x-9 unknown-oid")
    client:expect("!z unknown-oid")
    client:expect("error connect:unknown-oid")
    client:expect_nothing_more()
  end)

  it("an_error_never_travels_under_a_command_that_games_read", function()
    local client = connect()
    client:send("connect\nconnect \nconnect nope\nconnect-relay\nconnect-relay nope\nregister-host\n")
    for _ = 1, 5 do client:expect_match("^error [a-z-]+:[a-z-]+$") end
    client:expect_match("^set%-oid [%w_-]+$")
    client:expect_match("^set%-pid [%w_-]+$")
    client:send("connect\nconnect \nconnect nope more\nconnect-relay\nconnect-relay nope\n")
    for _ = 1, 5 do client:expect_match("^error [a-z-]+:unknown%-oid$") end
    client:expect_nothing_more()
  end)

  it("errors_off_is_silence", function()
    daemon.with({ set = { errors = "off" } }, function(mine)
      local client = connect(mine)
      client:send("connect nope\nconnect-relay nope\n")
      client:expect_nothing_more()
      client:send("register-host\n")
      client:lines(2)
      client:send_all("connect nope\nconnect-relay nope\nconnect\n" .. string.rep("x", 20 * KIB) .. "\n")
      client:expect_nothing_more()
    end)
  end)

  -- What the kernel says of the daemon's end of a connection: the timer that runs, and when it is due.
  local function timer_of(local_port, remote_port)
    for line in io.lines("/proc/net/tcp") do
      local from, to, timer, due = line:match("^%s*%d+: %x+:(%x+) %x+:(%x+) %x+ %x+:%x+ (%x+):(%x+)")
      if from and tonumber(from, 16) == local_port and tonumber(to, 16) == remote_port then
        return tonumber(timer, 16), tonumber(due, 16) / 100
      end
    end
  end

  it("an_idle_connection_has_keepalive_and_is_not_closed", function()
    local client = connect()
    local _, port = client:local_address()
    client:send("echo x\n")
    client:expect("echo x")
    local KEEPALIVE = 2
    local due
    loop.wait(function()
      local timer, seconds = timer_of(server.command.port, port)
      due = seconds
      return timer == KEEPALIVE
    end, "a keepalive timer on the daemon's end")
    assert.is_true(due <= 31, "keepalive is due in " .. due .. " s")
    assert.is_false(client.ended)
  end)

  it("a_client_over_ipv6_is_served", function()
    daemon.with({ set = { socket_host = "::", udp_host = "::", http_host = "::" } }, function(mine)
      local client = player.join(mine, { ip = "::1", udp_ip = "::1" })
      client:send("connect " .. client.oid)
      client.tcp:expect("connect [::1]:" .. client.udp.port)
      client.tcp:expect("connect [::1]:" .. client.udp.port)
      local four = player.join(mine)
      four:send("connect " .. four.oid)
      four.tcp:expect("connect 127.0.0.1:" .. four.udp.port)

    end)
  end)
end)
