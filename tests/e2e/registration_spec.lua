-- SPDX-License-Identifier: MIT
-- Registration: what ids look like, whose they are and how long they live.
--
-- What is held here, and by which test:
--   set-oid then set-pid; lengths and alphabet           ids_have_their_length_and_alphabet
--   drawn from the kernel's random source, no bias       ids_differ_and_use_the_whole_alphabet
--   lengths and alphabets are settings                   lengths_and_alphabets_are_settings
--   words as oid                                         an_oid_may_be_words
--   a collision is redrawn, a space used up is no-ids    an_id_space_that_is_used_up_answers_no_ids
--                                                        an_id_comes_free_with_its_connection
--   the latest registration is the caller                the_latest_registration_is_the_caller
--   all its oids stay valid until it closes              every_oid_of_a_connection_stays_valid_until_it_closes
--   sessions vanish at FIN, relays live on               relays_in_use_outlive_their_sessions
--   sessions per connection                              too_many_registrations_on_one_connection_are_refused
--   20,000 register and close                            registering_and_closing_leaves_nothing_behind
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local daemon = require "daemon"
local loop = require "loop"
local player = require "player"
local tcp = require "tcp"

local ALPHABET = "useandom-26T198340PX75pxJACKVERYMINDBUSHWOLF_GQZbfghjklqvwyzrict"

describe("registration", function()
  local server

  setup(function() server = daemon.start() end)
  teardown(function() server:stop() end)
  after_each(function() server:after_case() end)

  local function connect(where)
    where = where or server
    return assert(tcp.connect(where.command.ip, where.command.port))
  end

  local function consists_of(text, alphabet)
    for c in text:gmatch(".") do
      if not alphabet:find(c, 1, true) then return false end
    end
    return true
  end

  it("ids_have_their_length_and_alphabet", function()
    local client = player.join(server, { udp = false })
    assert.equal(21, #client.oid)
    assert.equal(128, #client.pid)
    assert.is_true(consists_of(client.oid, ALPHABET))
    assert.is_true(consists_of(client.pid, ALPHABET))
    client.tcp:expect_nothing_more()
  end)

  it("ids_differ_and_use_the_whole_alphabet", function()
    local seen, letters, n = {}, {}, 0
    for _ = 1, 64 do
      local client = player.join(server, { udp = false })
      assert.is_nil(seen[client.oid])
      assert.is_nil(seen[client.pid])
      seen[client.oid], seen[client.pid] = true, true
      for c in client.pid:gmatch(".") do
        n = n + (letters[c] and 0 or 1)
        letters[c] = true
      end
    end
    assert.equal(#ALPHABET, n)
  end)

  it("lengths_and_alphabets_are_settings", function()
    daemon.with({ set = { oid_length = "5", oid_charset = "abc!~", pid_length = "32", pid_charset = "01" } },
      function(mine)
        local client = player.join(mine)
        assert.is_truthy(client.oid:find("^[abc!~][abc!~][abc!~][abc!~][abc!~]$"))
        assert.equal(32, #client.pid)
        assert.is_truthy(client.pid:find("^[01]+$"))
      end)
    daemon.with({ set = { oid_length = "256", pid_length = "256" } }, function(mine)
      local client = player.join(mine)
      assert.equal(256, #client.oid)
      assert.equal(256, #client.pid)
      player.exchange(player.relay(client, player.join(mine)))
    end)
  end)

  it("an_oid_may_be_words", function()
    daemon.with({ env = { NORAY_ENABLE_WORDS_OID = "Yes" } }, function(mine)
      local seen = {}
      for _ = 1, 5 do
        local client = player.join(mine)
        assert.is_truthy(client.oid:find("^%u%l+%u%l+%u%l+$"), client.oid)
        seen[#seen + 1] = client
      end
      player.exchange(player.relay(seen[1], seen[2]))
    end)
    daemon.with({ env = { NORAY_ENABLE_WORDS_OID = "1", NORAY_WORDS_OID_LENGTH = "5" } }, function(mine)
      local client = player.join(mine, { udp = false })
      assert.is_truthy(client.oid:find("^%u%l+%u%l+%u%l+%u%l+%u%l+$"), client.oid)
    end)
  end)

  it("an_id_space_that_is_used_up_answers_no_ids", function()
    daemon.with({ set = { oid_length = "1", oid_charset = "xy" }, control_pair = false }, function(mine)
      local one, two = player.join(mine, { udp = false }), player.join(mine, { udp = false })
      assert.same({ x = true, y = true }, { [one.oid] = true, [two.oid] = true })
      local three = connect(mine)
      three:send("register-host\nregister-host?r\n")
      three:expect("error register-host:no-ids")
      three:expect("!r no-ids")
      three:send("connect " .. one.oid .. "\n")
      three:expect("error connect:not-registered")
    end)
  end)

  it("an_id_comes_free_with_its_connection", function()
    daemon.with({ set = { oid_length = "1", oid_charset = "xy" }, control_pair = false }, function(mine)
      local one = player.join(mine, { udp = false })
      player.join(mine, { udp = false })
      local oid = one.oid
      one:leave()
      local three = connect(mine)
      local got = loop.wait(function()
        three:send("register-host\n")
        local line = three:line()
        if line == "error register-host:no-ids" then return nil end
        three:expect_match("^set%-pid ")
        return line
      end, "the id that came free")
      assert.equal("set-oid " .. oid, got)
    end)
  end)

  it("the_latest_registration_is_the_caller", function()
    local host = player.join(server)
    local client = player.join(server, { udp = false })
    local first_pid = client.pid
    client:session()
    assert.are_not.equal(first_pid, client.pid)
    client:send("connect " .. host.oid)
    client.tcp:expect("error connect:client-no-address")
    client.udp = require("udp").open()
    client:register()
    client:send("connect " .. host.oid)
    client.tcp:expect("connect " .. host.udp.text)
    host.tcp:expect("connect " .. client.udp.text)
  end)

  it("every_oid_of_a_connection_stays_valid_until_it_closes", function()
    local host = player.join(server)
    local first, first_socket = host.oid, host.udp
    host:session()
    host.udp = require("udp").open()
    host:register()
    local client = player.join(server)
    client:send("connect " .. first)
    client.tcp:expect("connect " .. first_socket.text)
    host.tcp:expect("connect " .. client.udp.text)
    client:send("connect " .. host.oid)
    client.tcp:expect("connect " .. host.udp.text)
    host.tcp:expect("connect " .. client.udp.text)
    host.tcp:close()
    for _, oid in ipairs { first, host.oid } do
      loop.wait(function()
        client:send("connect " .. oid)
        return client.tcp:line() == "error connect:unknown-oid"
      end, "that the oids end with their connection")
    end
  end)

  it("relays_in_use_outlive_their_sessions", function()
    local pair = player.pair(server)
    pair.host.tcp:close()
    pair.client.tcp:close()
    local third = player.join(server)
    loop.wait(function()
      third:send("connect " .. pair.host.oid)
      return third.tcp:line() == "error connect:unknown-oid"
    end, "that the session ends")
    for _ = 1, 20 do player.exchange(pair) end
  end)

  it("too_many_registrations_on_one_connection_are_refused", function()
    local client = connect()
    for _ = 1, 16 do client:send("register-host\n") end
    for _ = 1, 16 do
      client:expect_match("^set%-oid ")
      client:expect_match("^set%-pid ")
    end
    for _ = 1, 1000 do client:send("register-host\n") end
    for _ = 1, 1000 do client:expect("error register-host:too-many") end
    client:send("register-host?9\n")
    client:expect("!9 too-many")
    daemon.with({ set = { max_sessions_per_connection = "2" } }, function(mine)
      local other = connect(mine)
      other:send("register-host\nregister-host\nregister-host\n")
      other:lines(4)
      other:expect("error register-host:too-many")
    end)
  end)

  -- Alternately FIN and RST, so that no port of the machine stays in TIME_WAIT for long.
  local function cycles(n)
    for i = 1, n do
      local client = connect()
      client:send("register-host\n")
      client:expect_match("^set%-oid ")
      if i % 10 == 0 then client:close() else client:reset() end
      loop.keep(client)
    end
  end

  it("registering_and_closing_leaves_nothing_behind", function()
    cycles(2000) -- a sanitizer's own memory is in use by then, also when no test ran before
    server:await_metric("noray_active_hosts", {}, 2)
    local before = server:memory()
    cycles(20000)
    server:await_metric("noray_active_hosts", {}, 2)
    server:await_metric("noray_tcp_connections", {}, 2)
    local growth = server:memory() - before
    assert.is_true(growth < 8 * 1024 * 1024, "20,000 sessions grew the process by " .. growth .. " bytes")
  end)
end)
