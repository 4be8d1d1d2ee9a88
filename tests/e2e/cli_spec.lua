-- SPDX-License-Identifier: MIT
-- The command line: commands, exit codes, and one clear line on stderr for whatever ends a start.
--
-- What is held here, and by which test:
--   --help, version                                       help_and_version_go_to_stdout_with_status_0
--   2: bad usage                                          bad_usage_ends_with_status_2_and_one_line
--   check                                                 check_says_whether_a_config_is_right
--   2: a script that is wrong, with its place             a_config_that_is_wrong_is_named_with_its_place
--                                                         a_policy_that_is_wrong_is_named_with_its_place
--   a missing or unreadable file                          a_missing_file_is_named
--   serve is the default command                          serve_is_what_it_does_without_a_command
--   --policy before the chain                             (policy_spec)
--   the start says what it listens on, and its policies   the_start_names_listeners_policies_and_ports
--   silent prints no ready line                           at_level_silent_nothing_is_printed
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local uv = require "luv"
local daemon = require "daemon"
local loop = require "loop"
local tcp = require "tcp"

local PORTS = { "--set", "control=", "--set", "socket_port=0", "--set", "http_port=0", "--set", "udp_registrar_port=0",
  "--set", "udp_relay_ports=0+3" }

local function with_ports(...)
  local args = { ... }
  for _, arg in ipairs(PORTS) do args[#args + 1] = arg end
  return args
end

local function expect_one_line(result, code, ...)
  assert.equal(0, result.signal, result.stderr)
  assert.equal(code, result.code, result.stdout .. result.stderr)
  assert.is_truthy(result.stderr:find("^moonrelay: [^\n]+\n$"), "not one line: " .. result.stderr)
  for _, word in ipairs { ... } do
    assert.is_truthy(result.stderr:find(word, 1, true), string.format("%q is missing in: %s", word, result.stderr))
  end
  assert.is_nil(result.stdout:find("ready command="))
end

describe("the command line", function()
  after_each(loop.close_owned)

  it("help_and_version_go_to_stdout_with_status_0", function()
    for _, args in ipairs { { "--help" }, { "serve", "--help" }, { "help" } } do
      local result = daemon.run(args)
      assert.equal(0, result.code, table.concat(args, " ") .. ": " .. result.stderr)
      assert.equal("", result.stderr)
      for _, word in ipairs { "serve", "check", "settings", "version", "--config", "--policy", "--set" } do
        assert.is_truthy(result.stdout:find(word, 1, true), word .. " is missing in: " .. result.stdout)
      end
    end
    for _, args in ipairs { { "version" }, { "--version" } } do
      local result = daemon.run(args)
      assert.equal(0, result.code, result.stderr)
      assert.is_truthy(result.stdout:find("^moonrelay %d+%.%d+%.%d+[^\n]*\n"), result.stdout)
      for _, library in ipairs { "libuv", "libmicrohttpd", "LuaJIT", "libcurl", "jansson", "libsodium" } do
        assert.is_truthy(result.stdout:find("\n" .. library .. " %d"), library .. " is missing in: " .. result.stdout)
      end
    end
  end)

  it("bad_usage_ends_with_status_2_and_one_line", function()
    expect_one_line(daemon.run { "--no-such-flag" }, 2, "--no-such-flag")
    expect_one_line(daemon.run { "serve", "--no-such-flag" }, 2, "--no-such-flag")
    expect_one_line(daemon.run { "serv" }, 2, "serv")
    expect_one_line(daemon.run { "relaod" }, 2, "did you mean reload?")
    expect_one_line(daemon.run { "serve", "extra" }, 2, "extra")
    expect_one_line(daemon.run { "serve", "--config" }, 2, "--config")
    expect_one_line(daemon.run { "serve", "--policy" }, 2, "--policy")
    expect_one_line(daemon.run { "serve", "--set" }, 2, "--set")
    expect_one_line(daemon.run { "serve", "--set", "pairing" }, 2, "pairing")
    expect_one_line(daemon.run { "serve", "--set", "=open" }, 2, "=open")
    expect_one_line(daemon.run { "version", "--set" }, 2, "--set")
    expect_one_line(daemon.run { "settings", "no_such_key" }, 2, "no_such_key")
    expect_one_line(daemon.run { "" }, 2)
  end)

  it("check_says_whether_a_config_is_right", function()
    local good = daemon.run({ "check", "relay.lua" }, { files = {
      ["relay.lua"] = 'return { settings = { pairing = "open" }, policies = { "./mine.lua", "dynamic" } }',
      ["mine.lua"] = "return { register = function() end }" } })
    assert.equal(0, good.code, good.stdout .. good.stderr)
    assert.equal("", good.stderr)
    local plain = daemon.run { "check" }
    assert.equal(0, plain.code, plain.stdout .. plain.stderr)
    expect_one_line(daemon.run({ "check", "relay.lua" }, { files = {
      ["relay.lua"] = 'return { settings = { pairing = "both" } }' } }), 2, "pairing", "both", "relay.lua")
    expect_one_line(daemon.run({ "check", "relay.lua" }, { files = {
      ["relay.lua"] = 'return { policies = { "./mine.lua" } }', ["mine.lua"] = "return { register = 1 }" } }), 2,
      "mine.lua", "register")
    expect_one_line(daemon.run { "check", "missing.lua" }, 2, "missing.lua")
  end)

  it("a_config_that_is_wrong_is_named_with_its_place", function()
    for text, words in pairs {
      ["return {\n  settings = {\n"] = { "relay.lua:3" },
      ["local x = nil\nreturn x.y"] = { "relay.lua:2" },
      ["error 'on purpose'"] = { "relay.lua:1", "on purpose" },
      ["return 7"] = { "relay.lua" },
      ["return nil"] = { "relay.lua" },
      ["return { setings = {} }"] = { "relay.lua", "setings" },
      ["return { settings = 7 }"] = { "relay.lua", "settings" },
      ["return { settings = { pairing = {} } }"] = { "relay.lua", "pairing" },
      ["return { policies = 'dynamic' }"] = { "relay.lua", "policies" },
      ["return { policies = { 7 } }"] = { "relay.lua", "policies" },
      ["return { policies = { 'no-such-policy' } }"] = { "no-such-policy" },
      ["return {\n policies = { { 'dynamic', from = 'all' } } }"] = { "relay.lua:2", "dynamic", "from = all",
        "anyone" },
      ["return { policies = { './no-such-file.lua' } }"] = { "no-such-file.lua" },
      ["while true do end"] = { "relay.lua:1" },
      ["os.execute('true')"] = { "relay.lua:1" },
      ["\27LJ\1"] = { "relay.lua" },
    } do
      expect_one_line(daemon.run(with_ports("serve", "--config", "relay.lua"), { files = { ["relay.lua"] = text } }), 2,
        unpack(words))
    end
  end)

  it("a_policy_that_is_wrong_is_named_with_its_place", function()
    for text, words in pairs {
      ["return {\n  register = function(ev)\n"] = { "mine.lua:3" },
      ["local x = nil\n\nreturn x.y"] = { "mine.lua:3" },
      ["return 7"] = { "mine.lua" },
      ["return { registre = function() end }"] = { "mine.lua", "registre" },
      ["return { register = true }"] = { "mine.lua", "register" },
      ["return { load = function() error 'no key' end }"] = { "mine.lua", "no key" },
      ["return { load = function() error({}) end }"] = { "mine.lua", "table" },
      ["\27LJ\1"] = { "mine.lua" },
      ["return { api = 99 }"] = { "mine.lua", "99" },
      ["local ffi = require 'ffi'\nreturn {}"] = { "mine.lua:1" },
      ["while true do end"] = { "mine.lua:1" },
      ["local s = 'x'\nwhile true do s = s .. s end"] = { "mine.lua", "memory" },
    } do
      expect_one_line(daemon.run(with_ports("serve", "--policy", "./mine.lua"), { files = { ["mine.lua"] = text } }), 2,
        unpack(words))
    end
    expect_one_line(daemon.run(with_ports("serve", "--policy", "no-such-policy")), 2, "no-such-policy")
    expect_one_line(daemon.run(with_ports("serve", "--policy", "./none.lua")), 2, "none.lua")
  end)

  it("a_missing_file_is_named", function()
    expect_one_line(daemon.run(with_ports("serve", "--config", "none.lua")), 2, "none.lua")
    expect_one_line(daemon.run(with_ports("serve", "--config", "/")), 2, "/")
    expect_one_line(daemon.run(with_ports("serve"), { env = { MOONRELAY_CONFIG = "/nowhere/none.lua" } }), 2,
      "/nowhere/none.lua")
  end)

  it("serve_is_what_it_does_without_a_command", function()
    local dir = daemon.directory()
    local out = dir .. "/out"
    local fd = assert(uv.fs_open(out, "w", 420))
    local code, signal
    local handle = uv.spawn(daemon.program(), { args = PORTS, stdio = { nil, fd, nil }, cwd = dir,
      env = { "PATH=" .. os.getenv("PATH") } }, function(c, s) code, signal = c, s end)
    uv.fs_close(fd)
    loop.wait(function()
      return daemon.read(out):find("ready command=", 1, true) or code
    end, "the ready line", 30)
    handle:kill("sigterm")
    loop.wait(function() return code end, "its end", 30)
    handle:close()
    daemon.remove(dir)
    assert.same({ 0, 0 }, { code, signal })
  end)

  it("the_start_names_listeners_policies_and_ports", function()
    local log = daemon.with({ policies = { "./mine.lua" }, files = { ["mine.lua"] = "return {}" },
      set = { udp_relay_ports = "0+7" } }, function() end)
    assert.is_truthy(log:find("/tcp", 1, true), log)
    assert.is_truthy(log:find("/udp", 1, true), log)
    assert.is_truthy(log:find("mine", 1, true), log)
    assert.is_truthy(log:find("dynamic", 1, true), log)
  end)

  it("a_range_with_many_gaps_is_named_whole", function()
    local named, wanted = {}
    local log = daemon.with({ set = { udp_relay_ports = "0+299" }, control_pair = false }, function(server)
      wanted = server.relay_text
    end)
    for rule in log:gmatch('for=relays rule="?([%d,%-]+)/udp') do named[#named + 1] = rule end
    assert.is_true(#named > 1, log)
    assert.equal(wanted, table.concat(named, ","))
  end)

  it("at_level_silent_nothing_is_printed", function()
    -- Without a ready line only a fixed port tells where it listens.
    local probe = uv.new_tcp()
    probe:bind("127.0.0.1", 0)
    local port = probe:getsockname().port
    probe:close()
    loop.turn()
    local dir = daemon.directory()
    local fd = assert(uv.fs_open(dir .. "/out", "w", 420))
    local args = { unpack(PORTS) }
    args[#args + 1] = "--set"
    args[#args + 1] = "socket_port=" .. port
    args[#args + 1] = "--set"
    args[#args + 1] = "loglevel=silent"
    for i = #args, 1, -1 do
      if args[i] == "socket_port=0" then
        table.remove(args, i)
        table.remove(args, i - 1)
      end
    end
    local code
    local handle = uv.spawn(daemon.program(), { args = args, stdio = { nil, fd, fd }, cwd = dir,
      env = { "PATH=" .. os.getenv("PATH") } }, function(c) code = c end)
    uv.fs_close(fd)
    local client = loop.wait(function()
      local ok = tcp.connect("127.0.0.1", port)
      return ok or code
    end, "a listener", 30)
    assert.is_nil(code)
    client:send("connect nope\necho x\n")
    client:expect("error connect:not-registered")
    client:expect("echo x")
    client:close()
    handle:kill("sigterm")
    loop.wait(function() return code end, "its end", 30)
    handle:close()
    local text = daemon.read(dir .. "/out")
    daemon.remove(dir)
    assert.equal(0, code)
    assert.equal("", text)
  end)
end)
