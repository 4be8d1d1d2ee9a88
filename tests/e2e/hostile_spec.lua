-- SPDX-License-Identifier: MIT
-- Policies that loop, fill memory or reach for what they must not have, in every hook of the running daemon: each
-- is stopped within its budget, what it was asked about gets the default, the log says which policy, hook and line, and
-- a game goes on without losing a datagram.
local daemon = require "daemon"
local loop = require "loop"
local operator = require "operator"
local player = require "player"
local tcp = require "tcp"
local traffic = require "traffic"
local udp = require "udp"

local HOSTILE = [[
local relay = require "relay"
local endless = setmetatable({}, { __index = function() while true do end end })
local dots = ("."):rep(4096)
local function deep() return deep() + 1 end
local what = {
  loop = function() while true do end end,
  pcall = function() while true do pcall(function() while true do end end) end end,
  coroutine = function() coroutine.wrap(function() while true do end end)() end,
  index = function() return endless.x end,
  pattern = function() return dots:match("^(.-)%.(.-)%.(.-)%.(.-)%.(.+)=$") end,
  gsub = function() return dots:gsub("%.", function() while true do end end) end,
  gigabyte = function() return ("x"):rep(2 ^ 30) end,
  fill = function() local t = {} for i = 1, 1e9 do t[i] = ("x"):rep(1e6) .. i end end,
  recursion = function() return deep() end,
  handler = function() xpcall(function() error("x") end, function() while true do end end) end,
  sort = function()
    local t = {}
    for i = 1, 50000 do t[i] = -i end
    while true do table.sort(t, function(a, b) return a > b end) end
  end,
  raise = function() error("on purpose") end,
  global = function() undeclared = 1 end,
  yield = function() coroutine.yield() end,
}
local function run(name) local f = what[name] if f then f() end end
return {
  register = function(ev) if ev.meta.at == "register" then run(ev.meta.what) end end,
  connect = function(ev) if ev.meta.at == "connect" then run(ev.meta.what) end end,
  create = function(ev)
    local meta = ev.session and ev.session.meta or {}
    if meta.at == "create" then run(meta.what) end
    if meta.at == "destroyed" then return { ttl = 0.2, tags = { at = meta.at, what = meta.what } } end
  end,
  drop = function(ev) run(ev:peek(64):match("^drop (%l+)$")) end,
  connected = function(ev) if ev.from.meta.at == "connected" then run(ev.from.meta.what) end end,
  created = function(ev) if ev.session and ev.session.meta.at == "created" then run(ev.session.meta.what) end end,
  destroyed = function(ev) if ev.relay.tags.at == "destroyed" then run(ev.relay.tags.what) end end,
  left = function(ev) if ev.session.meta.at == "left" then run(ev.session.meta.what) end end,
}
]]
-- Where "raise" raises.
local RAISE_LINE = select(2, HOSTILE:match("^(.-)raise ="):gsub("\n", "")) + 1
local NAMES = { "loop", "pcall", "coroutine", "index", "pattern", "gsub", "gigabyte", "fill", "recursion", "handler",
  "sort", "raise", "global", "yield" }

local server, game

-- How often the hook has failed so far.
local function errors(hook)
  return server:metric("moonrelay_script_calls_total", { hook = hook, result = "error" })
end

-- Runs fn, after which the hook has failed once more.
local function fails(hook, fn)
  local before = errors(hook)
  fn()
  loop.wait(function() return errors(hook) == before + 1 end,
    function() return "a failure of " .. hook .. "\n" .. server:tail() end)
end

local function connection()
  return assert(tcp.connect(server.command.ip, server.command.port))
end

local function joined(hook, name)
  return player.join(server, { words = "at=" .. hook .. " what=" .. name })
end

local CASES = {
  register = function(name)
    local client = connection()
    client:send("register-host at=register what=" .. name .. "\necho still here\n")
    client:expect("error register-host:rejected:policy-error")
    client:expect("echo still here")
  end,
  connect = function(name)
    local host, client = player.join(server), player.join(server)
    client:send("connect " .. host.oid .. " at=connect what=" .. name)
    client.tcp:expect("error connect:rejected:policy-error")
    host.tcp:expect_nothing_more()
  end,
  create = function(name)
    local host, client = player.join(server), joined("create", name)
    client:send("connect-relay " .. host.oid)
    client.tcp:expect("error connect-relay:rejected:policy-error")
    host.tcp:expect_nothing_more()
  end,
  drop = function(name)
    local pair = player.pair(server)
    udp.open("127.66.50.1"):send("drop " .. name, pair.ip, pair.host_port)
    player.exchange(pair)
    assert.equal(0, pair.host.udp:waiting())
  end,
  connected = function(name) player.exchange(player.relay(joined("connected", name), player.join(server))) end,
  created = function(name) player.exchange(player.relay(joined("created", name), player.join(server))) end,
  destroyed = function(name) player.relay(joined("destroyed", name), player.join(server)) end,
  left = function(name) joined("left", name):leave() end,
}

describe("a hostile policy", function()
  setup(function()
    server = daemon.start { files = { ["hostile.lua"] = HOSTILE },
      set = { udp_relay_timeout = "4s", udp_relay_ports = "0+255" },
      config = [[return { policies = { "./hostile.lua", { "dynamic", from = "anyone" } } }]],
      allow_log = { "hostile" } }
  end)
  teardown(function() server:stop() end)
  before_each(function() game = traffic.start(player.pair(server)) end)
  after_each(function()
    game:stop()
    server:after_case()
  end)

  for _, name in ipairs(NAMES) do
    it("is stopped in every hook, and costs a game nothing: " .. name, function()
      for hook, case in pairs(CASES) do
        fails(hook, function() case(name) end)
      end
    end)
  end

  it("is named in the log with its hook and its line", function()
    for hook, case in pairs(CASES) do
      local from, found = #server:stdout(), nil
      -- The log takes one a second of each policy once it has had ten.
      for _ = 1, 20 do
        case("raise")
        found = loop.try(function()
          for line in server:stdout():sub(from + 1):gmatch("[^\n]+") do
            if line:find("hostile.lua:" .. RAISE_LINE, 1, true) and line:find("on purpose", 1, true)
              and line:find("hook=" .. hook, 1, true) and line:find("policy=hostile", 1, true) then return true end
          end
        end, 1.2)
        if found then break end
      end
      assert.is_true(found, "no error of " .. hook .. "\n" .. server:stdout():sub(from + 1))
    end
  end)
end)

describe("a hostile file", function()
  it("is stopped in load, in a command and in a timer", function()
    for _, body in ipairs { "while true do end", "while true do pcall(function() while true do end end) end",
      "local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1e6) .. i end", "local function f() return f() + 1 end f()" } do
      -- What ends it is its CPU time, which a busy machine gives it late.
      local result = daemon.run({ "check", "moonrelay.lua" }, { seconds = 120, files = {
        ["bad.lua"] = "return { load = function()\n" .. body .. "\nend }",
        ["moonrelay.lua"] = "return { policies = { './bad.lua' } }" } })
      assert.equal(2, result.code)
      -- Memory and the stack may end anywhere, or the time before them.
      local function names_place(text)
        return text:find("bad.lua:2", 1, true) or not body:find("while", 1, true)
          and (text:find("not enough memory", 1, true) or text:find("stack overflow", 1, true))
      end
      assert.truthy(names_place(result.stderr), result.stderr)
      daemon.with(operator.options { files = { ["bad.lua"] = ([[
        local relay = require "relay"
        local function run() %s end
        return { load = function() relay.every(0.3, run) end, commands = { run = run } }]]):format(body) },
        config = "return { policies = { './bad.lua', 'dynamic' } }", allow_log = { "bad" } }, function(other)
        local pair = player.pair(other)
        local said = operator.fails(other, "call", "bad", "run")
        assert.truthy(names_place(said), said)
        other:await_log_match("policy=bad hook=timer[^\n]*")
        assert.truthy(names_place(other:stdout():match("policy=bad hook=timer[^\n]*")))
        player.exchange(pair)
      end)
    end
  end)

  it("finds nothing by which it could reach the daemon or another policy", function()
    local refused = {
      ["'ffi'"] = "local ffi = require 'ffi' return {}",
      ["debug"] = "debug.sethook() return {}",
      ["getfenv"] = "getfenv(0).x = 1 return {}",
      ["setfenv"] = "setfenv(1, {}) return {}",
      ["loadstring"] = "loadstring('x')() return {}",
      ["newproxy"] = "newproxy(true) return {}",
      ["io"] = "io.open('/etc/passwd') return {}",
      ["execute"] = "os.execute('true') return {}",
      ["jit"] = "jit.on() return {}",
      ["dump"] = "string.dump(function() end) return {}",
      ["wrong mode"] = "\27LJ\2\0",
    }
    for word, text in pairs(refused) do
      local result = daemon.run({ "check", "moonrelay.lua" }, { files = { ["bad.lua"] = text,
        ["moonrelay.lua"] = "return { policies = { './bad.lua' } }" } })
      assert.equal(2, result.code)
      assert.truthy(result.stderr:find(word, 1, true) and result.stderr:find("bad.lua", 1, true), result.stderr)
    end
  end)

  it("poisons its own copies only", function()
    daemon.with({ control_pair = false, files = {
      ["poison.lua"] = [[
        for _, library in ipairs { string, table, math, coroutine, os, bit } do
          for name in pairs(library) do library[name] = function() error("poisoned") end end
        end
        pcall(function() getmetatable("").__index = {} end)
        pairs, ipairs, type, pcall = nil
        return { register = function(ev) ev.meta.user, ev.tags.user = "poison", "poison" end }]],
      ["good.lua"] = [[return { register = function(ev)
        local words = {}
        for word in ("a b"):gmatch("%a") do table.insert(words, word:upper()) end
        assert(pcall(math.floor, 1.5) and type(ev) == "table" and bit.band(3, 1) == 1)
        return { tags = { user = ev.meta.user }, oid = table.concat(words) .. ev.meta.user .. tostring(ev.tags.user) }
      end }]] }, config = [[return { policies = { "./poison.lua", "./good.lua" } }]] }, function(other)
      assert.equal("ABalicenil", player.join(other, { words = "user=alice", udp = false }).oid)
    end)
  end)
end)
