-- SPDX-License-Identifier: MIT
-- The control socket and the commands that use it: who may open it, what it tells and does, and what it
-- never tells.
--
-- What is held here, and by which test:
--   mode 0600, removed at the end                         its_file_is_the_owners_and_goes_with_the_daemon
--   a dead daemon's file is replaced, a live one's not    a_killed_daemon_is_no_obstacle_and_a_live_one_is
--   status sessions relays policies blocks                it_shows_what_is_there_but_no_secret
--   pages                                                 long_lists_come_in_pages
--   kick close block unblock                              players_and_relays_are_ended_and_refused
--   call                                                  a_policys_command_answers_at_once_or_later
--   HTTP and files of policies                            policies_ask_over_http_and_read_files_on_the_daemons_loop
--   the usual place is another's                          a_taken_usual_place_is_warned_of_with_what_to_set
--   errors                                                what_is_wrong_has_a_status_and_a_code
--   a client that goes away meanwhile                     a_client_that_goes_away_disturbs_nobody
--   a list without an end                                 a_list_that_goes_on_with_nothing_is_no_moonrelays
--   the commands of the command line                      the_commands_print_tables_or_json
--   errors as JSON                                        with_json_an_error_is_an_object_with_the_same_status
--   ticket                                                a_ticket_lets_a_player_in
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local uv = require "luv"
local backend = require "backend"
local daemon = require "daemon"
local loop = require "loop"
local control = require "control"
local player = require "player"
local tcp = require "tcp"

local TAGGING = [[
local relay = require "relay"
return {
  register = function(ev) return { tags = { user = ev.meta.user or "nobody" } } end,
  commands = {
    nul = function(as) return as == "text" and "a\0b" or { "a\0b" } end,
    greet = function(who, and_whom) return "hello " .. who .. (and_whom and " and " .. and_whom or "") end,
    count = function() return { sessions = #relay.sessions() } end,
    slowly = function() relay.sleep(0.5) return "done" end,
    fail = function() error("on purpose") end,
    ask = function(url) return assert(relay.http { url = url }).body end,
    read = function(path) return assert(relay.read(path)) end,
  },
}
]]

local function with(opts, fn)
  opts.set = opts.set or {}
  opts.set.control = opts.set.control or "control.sock"
  opts.config = opts.config or 'return { policies = { "./mine.lua", "dynamic" } }'
  opts.files = opts.files or { ["mine.lua"] = TAGGING }
  opts.control_pair = false
  daemon.with(opts, fn)
end

local function ask(server, method, path, body)
  local client = control.connect(server)
  local response = client:request(method, path, body)
  client:close()
  return response
end

local function cli(server, ...)
  local args = { ... }
  args[#args + 1] = "--control=" .. server.dir .. "/control.sock"
  return daemon.run(args)
end

local function register(server, words)
  local client = tcp.connect(server.command.ip, server.command.port)
  client:send("register-host " .. (words or "") .. "\n")
  client.oid = client:expect_match("^set%-oid (%S+)$")
  client.pid = client:expect_match("^set%-pid (%S+)$")
  return client
end

describe("the control socket", function()
  after_each(loop.close_owned)

  it("its_file_is_the_owners_and_goes_with_the_daemon", function()
    local dir = daemon.directory()
    with({ set = { control = dir .. "/sub/control.sock" } }, function()
      local file = assert(uv.fs_stat(dir .. "/sub/control.sock"))
      assert.equal("socket", file.type)
      assert.equal(tonumber("600", 8), file.mode % 512)
      assert.equal(tonumber("700", 8), assert(uv.fs_stat(dir .. "/sub")).mode % 512)
    end)
    assert.is_nil(uv.fs_stat(dir .. "/sub/control.sock"))
    daemon.remove(dir)
  end)

  it("a_killed_daemon_is_no_obstacle_and_a_live_one_is", function()
    local dir = daemon.directory()
    local path = dir .. "/control.sock"
    local dead = daemon.start { control_pair = false, set = { control = path } }
    dead:kill()
    daemon.remove(dead.dir)
    assert.is_truthy(uv.fs_stat(path))
    with({ set = { control = path } }, function()
      local second = daemon.run { "serve", "--set", "socket_port=0", "--set", "http_port=0", "--set",
        "udp_registrar_port=0", "--set", "udp_relay_ports=0+3", "--set", "control=" .. path }
      assert.equal(1, second.code, second.stdout .. second.stderr)
      assert.is_truthy(second.stderr:find("another daemon listens there", 1, true), second.stderr)
      assert.is_truthy(uv.fs_stat(path))
    end)
    daemon.remove(dir)
  end)

  -- Root's usual place is the machine's own, so who is root becomes somebody else for it.
  it("a_taken_usual_place_is_warned_of_with_what_to_set", function()
    local as = uv.getuid() == 0 and { 65534, 65534 } or nil
    local dir = daemon.directory()
    if as then assert(uv.fs_chown(dir, as[1], as[2])) end
    local function options()
      return { as = as, owner = as, env = { XDG_RUNTIME_DIR = dir }, set = { control = false },
        control_pair = false }
    end
    local path = dir .. "/moonrelay/control.sock"
    local ok, first = pcall(daemon.start, options())
    if not ok and as and tostring(first):find("exit status 12[67]") then
      daemon.remove(dir)
      return pending("an ordinary user cannot reach the program")
    end
    assert(ok, first)
    assert.is_nil(first:stdout():find("no control socket", 1, true))
    daemon.with(options(), function(second)
      local words = "no control socket: " .. path .. ": another daemon listens there; set `control` to another " ..
        "path, or commands without --control go to that one"
      local line = second:stdout():match("[^\n]*no control socket[^\n]*") or "no such line"
      assert.is_truthy(line:find("warn", 1, true) and line:find(words, 1, true), line)
    end)
    assert.is_truthy(uv.fs_stat(path))
    first:stop()
    daemon.remove(dir)
  end)

  it("it_shows_what_is_there_but_no_secret", function()
    with({}, function(server)
      local pair = player.pair(server)
      player.exchange(pair)
      local client = register(server, "user=alice ticket=secret.of.mine")
      for path, words in pairs {
        ["/v1/status"] = { '"sessions":3', '"relays":2', '"ready":true', '"policies":["mine","dynamic"]' },
        ["/v1/sessions"] = { client.oid, '"tags":{"user":"alice"}', '"next":null' },
        ["/v1/relays"] = { '"packets_in":', '"next":null' },
        ["/v1/policies"] = { '"generation":1', '"name":"mine"', '"register":{"calls":3' },
        ["/v1/blocks"] = { '"blocks":[]' },
      } do
        local response = ask(server, "GET", path)
        assert.equal(200, response.status, response.body)
        for _, secret in ipairs { client.pid, pair.host.pid, "secret.of.mine" } do
          assert.is_nil(response.body:find(secret, 1, true), path .. " tells a secret")
        end
        for _, word in ipairs(words) do
          assert.is_truthy(response.body:find(word, 1, true), word .. " is missing in: " .. response.body)
        end
      end
    end)
  end)

  -- Everything that a list has, page by page: each match of the pattern, and how many pages.
  local function turn_pages(server, list, limit, pattern)
    local path = "/v1/" .. list .. "?limit=" .. limit
    local seen, pages, next_path = {}, 0, path
    repeat
      local body = ask(server, "GET", next_path).body
      local n = 0
      for item in body:gmatch(pattern) do
        seen[#seen + 1], n = item, n + 1
      end
      assert.is_true(n <= limit)
      local after = body:match('"next":"([^"]+)"')
      next_path = after and path .. "&after=" .. after
      pages = pages + 1
    until not next_path
    return seen, pages
  end

  it("long_lists_come_in_pages", function()
    with({}, function(server)
      local oids, expected = {}, {}
      for i = 1, 7 do oids[i] = register(server).oid end
      local seen, pages = turn_pages(server, "sessions", 3, '"oid":"([^"]+)"')
      assert.same(oids, seen)
      assert.equal(3, pages)
      for _ = 1, 3 do player.exchange(player.pair(server)) end
      for id in ask(server, "GET", "/v1/relays").body:gmatch('"id":"([^"]+)"') do expected[#expected + 1] = id end
      assert.equal(6, #expected)
      seen, pages = turn_pages(server, "relays", 1, '"id":"([^"]+)"') -- two are made in the same moment
      assert.same(expected, seen)
      assert.equal(6, pages)
      for i = 1, 5 do
        assert.equal(200, ask(server, "POST", "/v1/block", '{"what": "192.0.2.' .. i .. '", "seconds": 60}').status)
      end
      seen, pages = turn_pages(server, "blocks", 2, '"what":"([^"]+)"')
      table.sort(seen)
      assert.same({ "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5" }, seen)
      assert.equal(3, pages)
    end)
  end)

  it("players_and_relays_are_ended_and_refused", function()
    with({}, function(server)
      local client = register(server)
      assert.equal(200, ask(server, "POST", "/v1/kick", '{"id": "' .. client.oid .. '", "reason": "rude"}').status)
      assert.equal("error session:rude", client:line())
      player.exchange(player.pair(server))
      local id = ask(server, "GET", "/v1/relays").body:match('"id":"([^"]+)"')
      assert.equal(200, ask(server, "POST", "/v1/close", '{"id": "' .. id .. '"}').status)
      loop.wait(function() return not ask(server, "GET", "/v1/relays").body:find('"' .. id .. '"', 1, true) end,
        "the end of the relay")
      client = register(server, "user=mallory")
      local response = ask(server, "POST", "/v1/block", '{"what": "user=mallory", "seconds": 60}')
      assert.equal(200, response.status, response.body)
      assert.equal('{"ended":1}', response.body)
      assert.equal("error session:blocked", client:line())
      assert.is_truthy(ask(server, "GET", "/v1/blocks").body:find('"what":"user=mallory"', 1, true))
      assert.equal('{"removed":1}', ask(server, "POST", "/v1/unblock", '{"what": "user=mallory"}').body)
      assert.equal(404, ask(server, "POST", "/v1/unblock", '{"what": "user=mallory"}').status)
      register(server, "user=mallory")
    end)
  end)

  it("a_policys_command_answers_at_once_or_later", function()
    with({ allow_log = { "on purpose" } }, function(server)
      local slow = control.connect(server)
      slow:send("POST", "/v1/call", '{"policy": "mine", "verb": "slowly"}')
      local response = ask(server, "POST", "/v1/call", '{"policy": "mine", "verb": "greet", "args": ["you", "me"]}')
      assert.equal('{"result":"hello you and me"}', response.body) -- the slow one keeps nobody waiting
      assert.equal('{"result":{"sessions":0}}', ask(server, "POST", "/v1/call",
        '{"policy": "mine", "verb": "count"}').body)
      response = ask(server, "POST", "/v1/call", '{"policy": "mine", "verb": "fail"}')
      assert.equal(422, response.status)
      assert.is_truthy(response.body:find("mine.lua:%d+: on purpose"), response.body)
      assert.equal(404, ask(server, "POST", "/v1/call", '{"policy": "mine", "verb": "no"}').status)
      loop.wait(function()
        response = slow:take()
        return response
      end, "the slow answer")
      assert.equal('{"result":"done"}', response.body)
      assert.equal('{"result":"hello again"}', slow:request("POST", "/v1/call", -- on the same connection
        '{"policy": "mine", "verb": "greet", "args": ["again"]}').body)
    end)
  end)

  it("policies_ask_over_http_and_read_files_on_the_daemons_loop", function()
    with({ allow_log = { "mine%.lua" } }, function(server)
      local function call(verb, arg)
        return ask(server, "POST", "/v1/call",
          '{"policy": "mine", "verb": "' .. verb .. '", "args": ["' .. arg .. '"]}')
      end
      -- of the daemon itself, whose loop must turn meanwhile
      assert.equal('{"result":"alive\\n"}', call("ask", "http://127.0.0.1:" .. server.http.port .. "/livez").body)
      assert.is_truthy(call("read", "moonrelay.lua").body:find("policies", 1, true))
      for arg, verb in pairs { ["../passwd"] = "read", ["/etc/passwd"] = "read", ["http://127.0.0.1:1/"] = "ask" } do
        local response = call(verb, arg)
        assert.equal(422, response.status, response.body)
      end
    end)
  end)

  it("what_is_wrong_has_a_status_and_a_code", function()
    with({}, function(server)
      for _, case in ipairs {
        { "GET", "/v1/nothing", nil, 404, "not-found" },
        { "GET", "/v1/kick", nil, 405, "bad-method" },
        { "POST", "/v1/status", "{}", 405, "bad-method" },
        { "DELETE", "/v1/kick", nil, 405, "bad-method" },
        { "GET", "/v1/sessions?limit=501", nil, 400, "bad-request" },
        { "POST", "/v1/kick", "{", 400, "bad-request" },
        { "POST", "/v1/kick", '{"who": "me"}', 400, "bad-request" },
        { "POST", "/v1/kick", '{"id": "17"}', 404, "not-found" },
        { "POST", "/v1/close", '{"id": "17"}', 404, "not-found" },
        { "POST", "/v1/block", '{"what": "10.0.0.1/8", "seconds": 1}', 400, "bad-request" },
        { "POST", "/v1/kick", '{"id": "' .. ("x"):rep(70000) .. '"}', 413, "too-large" },
      } do
        local response = ask(server, case[1], case[2], case[3])
        assert.equal(case[4], response.status, case[2] .. ": " .. response.body)
        assert.is_truthy(response.body:find('"code":"' .. case[5] .. '"', 1, true), response.body)
        assert.is_truthy(response.body:find('"error":"', 1, true), response.body)
      end
      assert.equal(404, server:get("/v1/status").status) -- not over TCP
    end)
  end)

  it("a_client_that_goes_away_disturbs_nobody", function()
    with({}, function(server)
      for _ = 1, 10 do
        local client = control.connect(server)
        client:send("POST", "/v1/call", '{"policy": "mine", "verb": "slowly"}')
        client:send("POST", "/v1/reload", "{}")
        client:close()
        local half = control.connect(server)
        half.handle:write("POST /v1/kick HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        half:close()
      end
      assert.equal(200, ask(server, "GET", "/v1/status").status)
      local pending = control.connect(server) -- still waiting when the daemon ends
      pending:send("POST", "/v1/call", '{"policy": "mine", "verb": "slowly"}')
      loop.wait(function() return server:fds() <= server.base_fds + 1 end, "the end of those who left", 20)
      pending:close()
    end)
  end)
end)

describe("the commands", function()
  after_each(loop.close_owned)

  it("with_json_an_error_is_an_object_with_the_same_status", function()
    with({ allow_log = { "on purpose" } }, function(server)
      for _, case in ipairs {
        { 'no such session', 'not%-found', "kick", "nobody" },
        { 'on purpose', 'failed', "call", "mine", "fail" },
        { 'TIME \\"soon\\"', nil, "block", "198.51.100.7", "soon" },
        { 'expected: moonrelay close', nil, "close" },
      } do
        local plain = cli(server, unpack(case, 3, 6))
        local args = { unpack(case, 3, 6) }
        args[#args + 1] = "--json"
        local json = cli(server, unpack(args))
        assert.not_equal(0, plain.code)
        assert.equal(plain.code, json.code)
        assert.equal("", json.stderr)
        assert.is_truthy(json.stdout:find('^{\n  "error": "[^\n]*' .. case[1]), json.stdout)
        assert.equal(case[2] ~= nil, json.stdout:find('"code": "' .. (case[2] or "") .. '"\n}\n$') ~= nil, json.stdout)
      end
    end)
    local nobody = daemon.run { "status", "--json", "--control", "/nonexistent/control.sock" }
    assert.equal(1, nobody.code)
    assert.is_truthy(nobody.stdout:find('^{\n  "error": "cannot reach /nonexistent/control.sock: '), nobody.stdout)
    assert.equal("", nobody.stderr)
  end)

  it("the_commands_print_tables_or_json", function()
    with({}, function(server)
      local client = register(server, "user=alice")
      for command, words in pairs {
        status = { "command      ", "sessions     1", "mine,dynamic %(generation 1%)" },
        sessions = { "^ID  OID ", client.oid, "user=alice" },
        relays = { "^ID  KIND  PEER  TARGET " },
        policies = { "generation 1, loaded", "mine %s+register %s+1 " },
        blocks = { "^WHAT  LEFT " },
      } do
        local result = cli(server, command)
        assert.equal(0, result.code, result.stderr)
        for _, word in ipairs(words) do
          assert.is_truthy(result.stdout:find((word:gsub("%-", "%%-"))), word .. " is missing in: " .. result.stdout)
        end
        assert.is_truthy(cli(server, command, "--json").stdout:find("^{\n"), command)
      end
      assert.equal("hello --you\n", daemon.run({ "call", "--control=" .. server.dir .. "/control.sock", "mine", "greet",
        "--", "--you" }).stdout)
      assert.equal("a\0b\n", cli(server, "call", "mine", "nul", "text").stdout)
      assert.equal('[\n  "a\\u0000b"\n]\n', cli(server, "call", "mine", "nul", "table").stdout)
      assert.equal("ok, 0 ended\n", cli(server, "block", "192.0.2.0/24", "30m", "flood").stdout)
      assert.is_truthy(cli(server, "blocks").stdout:find("192.0.2.0/24 +29m%d+s +control +flood"))
      assert.equal("ok\n", cli(server, "unblock", "192.0.2.0/24").stdout)
      assert.equal("ok, 0 ended\n", cli(server, "block", "192.0.2.1", "50yr").stdout)
      assert.is_truthy(cli(server, "blocks").stdout:find("192.0.2.1 +for ever +control +blocked"))
      assert.is_truthy(cli(server, "blocks", "--json").stdout:find('"seconds_left": null', 1, true))
      assert.equal("ok\n", cli(server, "kick", client.oid).stdout)
      assert.equal("ok, generation 1 would be replaced\n", cli(server, "reload", "--check").stdout)
      assert.equal("ok, generation 2\n", cli(server, "reload").stdout)
      assert.equal("ok, generation 3\n", cli(server, "rollback").stdout)
      for code, args in pairs { [1] = { "kick", "17" }, [2] = { "block", "10.0.0.1/8", "1h" } } do
        local result = cli(server, unpack(args))
        assert.equal(code, result.code)
        assert.is_truthy(result.stderr:find("^moonrelay: [^\n]+\n$"), result.stderr)
      end
    end)
  end)

  it("nobody_there_is_said_in_one_line", function()
    local result = daemon.run { "status", "--control", "/nonexistent/control.sock" }
    assert.equal(1, result.code)
    assert.is_truthy(result.stderr:find("^moonrelay: cannot reach /nonexistent/control.sock: [^\n]*is it running%?"
      .. "[^\n]*%-%-control[^\n]*\n$"), result.stderr)
  end)

  it("a_list_that_goes_on_with_nothing_is_no_moonrelays", function()
    local path = os.tmpname()
    assert(os.remove(path))
    local long = ("x"):rep(300) -- longer than any of ours
    local behind
    local liar = backend.open(function(request)
      return { body = request.path:find("after=", 1, true) and behind or '{"relays":[],"next":"x"}' }
    end, path)
    for _, page in ipairs { '{"relays":[],"next":"x"}', '{"relays":[{}],"next":"' .. long .. '"}', '{"relays":[]}' } do
      behind = page
      local result = daemon.run { "relays", "--control", path }
      assert.equal(1, result.code)
      assert.equal("moonrelay: what answers at " .. path .. " is no moonrelay\n", result.stderr)
    end
    liar:close()
    os.remove(path)
  end)

  it("every_command_has_a_page_and_refuses_what_is_not_its_own", function()
    for _, command in ipairs { "status", "sessions", "relays", "policies", "blocks", "kick", "close", "block",
      "unblock", "reload", "rollback", "call", "ticket", "check", "settings" } do
      local page = daemon.run { command, "--help" }
      assert.equal(0, page.code)
      assert.is_truthy(page.stdout:find("^moonrelay " .. command), page.stdout)
      assert.equal(page.stdout, daemon.run({ "help", command }).stdout)
      assert.equal(2, daemon.run({ command, "--watch" }).code, command)
    end
    assert.is_truthy(daemon.run({ "test", "--help" }).stdout:find("^moonrelay test"))
    assert.equal(2, daemon.run({ "status", "--check" }).code)
    assert.equal(2, daemon.run({ "kick" }).code)
    assert.equal(2, daemon.run({ "block", "1.2.3.4", "soon" }).code)
  end)

  it("a_ticket_lets_a_player_in", function()
    local key = "a key of the tests, which nobody else has"
    local none = daemon.run { "ticket", "--sub", "alice" }
    assert.equal(2, none.code)
    assert.is_truthy(none.stderr:find("TICKET_KEY", 1, true))
    local result = daemon.run({ "ticket", "--sub", "alice", "--ttl", "1m" }, { env = { TICKET_KEY = key } })
    assert.equal(0, result.code, result.stderr)
    assert.is_nil((result.stdout .. result.stderr):find(key, 1, true))
    with({ config = 'return { policies = { { "ticket", key = env "TICKET_KEY" } } }', env = { TICKET_KEY = key } },
      function(server)
        local client = tcp.connect(server.command.ip, server.command.port)
        client:send("register-host\n")
        assert.equal("error register-host:rejected:ticket-missing", client:line())
        local token = result.stdout:match("^(%S+)\n$")
        register(server, "ticket=" .. token)
        assert.is_truthy(ask(server, "GET", "/v1/sessions").body:find('"user":"alice"', 1, true))
      end)
  end)
end)
