-- SPDX-License-Identifier: MIT
-- Policies that answer lookups and have UDP endpoints of their own, in the running daemon: real sockets, a real
-- resolver behind, reloads. What a bad answer costs is that one request.
--
-- What is held here, and by which test:
--   a custom lookup sees names and literals       a_hook_is_asked_about_every_host_and_the_resolver_last
--   it fails, throws, gives a number, never ...   a_lookup_that_fails_is_an_error_of_that_request_alone
--   it is never asked by itself                   what_a_hook_looks_up_itself_goes_past_it
--   an unbound send binds first                   an_endpoints_own_lookup_sees_the_implicit_bind
--   a lookup swapped by a reload                  a_reload_swaps_the_lookup_for_what_is_asked_next
--   close during a lookup                         who_waits_for_an_endpoint_that_closes_is_told
local control = require "control"
local daemon = require "daemon"
local loop = require "loop"
local operator = require "operator"
local player = require "player"
local resolver = require "resolver"
local udp = require "udp"

local WAIT_S = 20

-- What every policy here begins with: text(...) says what a call gave.
local HEAD = [[
local relay = require "relay"
local function text(...)
  local t = {}
  for i = 1, select("#", ...) do t[i] = tostring((select(i, ...))) end
  return table.concat(t, " ")
end
]]

local function options(policy, opts)
  opts = operator.options(opts or {})
  opts.config = [[return { policies = { "./p.lua", "dynamic" } }]]
  opts.files = opts.files or {}
  opts.files["p.lua"] = HEAD .. policy
  return opts
end

-- Starts a command of the policy on a connection of its own; returns a function that waits for what it gave.
local function start(server, verb, ...)
  local client, args = control.connect(server), {}
  for i, arg in ipairs { ... } do args[i] = ('"%s"'):format(arg) end
  client:send("POST", "/v1/call", ('{"policy": "p", "verb": "%s", "args": [%s]}'):format(verb,
    table.concat(args, ", ")))
  return function()
    local response
    loop.wait(function()
      response = client:take()
      return response
    end, "the end of " .. verb, WAIT_S)
    client:close()
    return response.body:match('"result":"(.*)"}') or response.body
  end
end

local function call(server, verb, ...) return start(server, verb, ...)() end

-- Plays between two players of the test.
local function check_players(server) player.exchange(player.relay(player.join(server), player.join(server))) end

describe("a policy's lookup", function()
  it("a_hook_is_asked_about_every_host_and_the_resolver_last", function()
    local names = resolver.new { ["web.fleet"] = "127.0.0.9" }
    finally(function() names:close() end)
    daemon.with(names:options(options [[
      local seen = {}
      return {
        lookup = function(host, family, ev)
          seen[#seen + 1] = text(host, family, ev.op)
          if host == "db.fleet" then return "10.0.0.5" end
          if host == "10.0.0.6" then return { ip = "10.0.0.7" } end
          if host == "gone.fleet" then return nil, "it moved", "gone" end
        end,
        commands = {
          resolve = function(host, family) return text(relay.resolve(host, tonumber(family))) end,
          seen = function() local all = table.concat(seen, ",") seen = {} return all end,
        },
      }]]), function(server)
      call(server, "seen") -- the listeners' addresses, at the start
      assert.equal("10.0.0.5", call(server, "resolve", "db.fleet", "4"))
      assert.equal("10.0.0.7", call(server, "resolve", "10.0.0.6", "4"))
      assert.equal("10.0.0.8", call(server, "resolve", "10.0.0.8"))
      assert.equal("nil gone.fleet: it moved gone", call(server, "resolve", "gone.fleet"))
      assert.equal(0, names:calls())
      assert.equal("127.0.0.9", call(server, "resolve", "web.fleet", "4"))
      assert.same({ 1, 1 }, { names:calls(), names:calls("web.fleet") })
      assert.equal("db.fleet 4 resolve,10.0.0.6 4 resolve,10.0.0.8 nil resolve,gone.fleet nil resolve,"
        .. "web.fleet 4 resolve", call(server, "seen"))
      assert.truthy(call(server, "resolve", "none.fleet", "4"):find("^nil none%.fleet: .* not%-found$"))
      check_players(server)
    end)
  end)

  it("a_lookup_that_fails_is_an_error_of_that_request_alone", function()
    daemon.with(options([[
      return {
        lookup = function(host, _, ev)
          if ev.op == "listen" then return nil end -- or the daemon would listen there
          if host == "throws.fleet" then error("oops") end
          if host == "number.fleet" then return 5 end
          if host == "true.fleet" then return true end
          if host == "six.fleet" then return "::1" end
          if host == "port.fleet" then return "10.0.0.5:80" end
          if host == "name.fleet" then return "db.fleet" end
          if host == "never.fleet" then relay.await(function() end) end
          if host == "loops.fleet" then while true do end end
          if host == "deep.fleet" then local function f() return f() + 1 end f() end
          if host == "large.fleet" then return ("x"):rep(1e7) end
          return "10.0.0.5"
        end,
        commands = { resolve = function(host) return text(relay.resolve(host, 4)) end },
      }]], { allow_log = { "hook=lookup", '"hook":"lookup"' } }), function(server)
      local never = start(server, "resolve", "never.fleet")
      for _, name in ipairs { "throws", "number", "true", "six", "port", "name", "loops", "deep", "large" } do
        assert.equal(("nil %s.fleet: lookup failed in the policy p policy-error"):format(name),
          call(server, "resolve", name .. ".fleet"))
        assert.equal("10.0.0.5", call(server, "resolve", "good.fleet"))
      end
      assert.equal("nil never.fleet: lookup failed in the policy p policy-error", never())
      assert.equal("nil no host: 1 to 255 bytes without a NUL are expected not-found",
        call(server, "resolve", ("x"):rep(300)))
      check_players(server)
      assert.equal(10, server:metric("moonrelay_script_calls_total", { hook = "lookup", result = "error" }))
    end)
  end)

  it("what_a_hook_looks_up_itself_goes_past_it", function()
    local names = resolver.new { ["db.fleet"] = "127.0.0.1" }
    finally(function() names:close() end)
    local dns = udp.open()
    daemon.with(names:options(options [[
      local u, asked = relay.udp(), 0
      return {
        load = function() assert(u:bind()) end,
        lookup = function(host)
          asked = asked + 1
          if host == "db.fleet" then return relay.resolve(host, 4) end
          if host:find("dns") then
            assert(u:send(host, "127.0.0.1", tonumber(host:match("%d+$"))))
            return "10.0.0.53"
          end
        end,
        commands = {
          resolve = function(host) asked = 0 return text(relay.resolve(host, 4), asked) end,
        },
      }]]), function(server)
      assert.equal("127.0.0.1 1", call(server, "resolve", "db.fleet"))
      assert.equal("10.0.0.53 1", call(server, "resolve", "dns." .. dns.port))
      assert.equal("dns." .. dns.port, dns:recv().data)
    end)
  end)

  it("a_reload_swaps_the_lookup_for_what_is_asked_next", function()
    local one, two = udp.open(), udp.open("127.0.0.2")
    local function policy(ip)
      return HEAD .. ([[
        local u
        return {
          load = function() u = relay.udp() assert(u:bind("127.0.0.1")) end,
          lookup = function(host) if host == "game.fleet" then return "%s" end end,
          commands = {
            send = function(data, port) return text(u:send(data, "game.fleet", tonumber(port))) end,
            resolve = function() return text(relay.resolve("game.fleet", 4)) end,
          },
        }]]):format(ip)
    end
    daemon.with(options(policy "127.0.0.1"), function(server)
      assert.equal("true", call(server, "send", "a", one.port))
      assert.equal("a", one:recv().data)
      assert.equal("127.0.0.1", call(server, "resolve"))
      local fds = server:fds()
      operator.write(server, "p.lua", policy "127.0.0.2")
      operator.does(server, "reload")
      assert.equal("127.0.0.2", call(server, "resolve"))
      assert.equal("true", call(server, "send", "b", two.port))
      assert.equal("b", two:recv().data)
      for _ = 1, 20 do operator.does(server, "reload") end
      loop.wait(function() return server:fds() <= fds end, "the endpoints before to be closed", WAIT_S)
      assert.equal("true", call(server, "send", "c", two.port))
      check_players(server)
    end)
  end)
end)

describe("an endpoint of a policy", function()
  it("has the port of the generation before when it binds right after the swap", function()
    local port = udp.free_port()
    daemon.with(options([[
      local u = relay.udp()
      return {
        load = function()
          relay.after(0, function() relay.log.info("bound", { to = text(u:bind("127.0.0.1", ]] .. port .. [[)) }) end)
        end,
        commands = { port = function() return text(u:address() and u:address().port) end },
      }]]), function(server)
      for _ = 1, 10 do
        loop.wait(function() return call(server, "port") == tostring(port) end, "the port to be bound", WAIT_S)
        operator.does(server, "reload")
      end
      loop.wait(function() return call(server, "port") == tostring(port) end, "the port to be bound", WAIT_S)
      assert.is_nil(server:stdout():find("address%-in%-use"))
      server.base_fds = server.base_fds + 1 -- the endpoint's, should it have been bound only now
    end)
  end)

  it("says where it is bound and answers who sends to it", function()
    local file = assert(io.open((os.getenv("MR_SOURCE_DIR") or ".") .. "/lua/README.md", "rb"))
    local guide = file:read("*a")
    file:close()
    local echo = assert(guide:match("\n```lua\n(%-%- example/echo%.lua\n.-)\n```"))
    daemon.with(operator.options { config = [[return { policies = { "./echo.lua" } }]],
      files = { ["echo.lua"] = echo } }, function(server)
      local at = server:await_log_match("echo.*127%.0%.0%.1:%d+")
      local port = tonumber((type(at) == "string" and at or server:stdout()):match("127%.0%.0%.1:(%d+)\"?%s*\n"))
      local client = udp.open()
      for _, data in ipairs { "hello", "", "a\0b", ("x"):rep(60000) } do
        client:send(data, "127.0.0.1", port)
        client:expect(data, "127.0.0.1", port)
      end
    end)
  end)

  it("an_endpoints_own_lookup_sees_the_implicit_bind", function()
    local there = udp.open()
    daemon.with(options [[
      local seen, fail = {}, false
      local u = relay.udp { lookup = function(host, family, op)
        seen[#seen + 1] = text(host, family, op)
        relay.sleep(0.01)
        if fail then return nil, "not now", "away" end
        if host == "game.fleet" then return "127.0.0.1" end
      end }
      return { commands = {
        send = function(data, port) return text(u:send(data, "game.fleet", tonumber(port))) end,
        fail = function(word) fail = word == "yes" return "ok" end,
        seen = function() local all = table.concat(seen, ",") seen = {} return all end,
      } }]], function(server)
      server.base_fds = server.base_fds + 1 -- the endpoint's, from its first send on
      -- Three sends from three requests, before it is bound: each has its own error, and it can be used after.
      call(server, "fail", "yes")
      local sends = {}
      for i = 1, 3 do sends[i] = start(server, "send", "x", there.port) end
      for i = 1, 3 do assert.truthy(sends[i]():find("^nil .*0%.0%.0%.0: not now away$")) end
      call(server, "fail", "no")
      call(server, "seen")
      assert.equal("true", call(server, "send", "a", there.port))
      assert.equal("a", there:recv().data)
      assert.equal("0.0.0.0 4 bind,game.fleet 4 send", call(server, "seen"))
      assert.equal("true", call(server, "send", "b", there.port))
      assert.equal("game.fleet 4 send", call(server, "seen"))
    end)
  end)

  it("sends to another one, connected and not, and what the kernel refuses is an error of that send", function()
    daemon.with(options [[
      local got = {}
      local a, b = relay.udp(), relay.udp()
      local function take(data, addr) got[#got + 1] = data .. "<" .. (addr.port == a:address().port and "a" or "b") end
      return {
        load = function()
          assert(a:bind("127.0.0.1")) assert(b:bind("127.0.0.1"))
          a:on_message(take) b:on_message(take)
        end,
        commands = {
          play = function()
            local out = {}
            local function say(...) out[#out + 1] = text(...) end
            say(a:send("one", nil, b:address().port))
            say(b:send("two", "127.0.0.1", a:address().port))
            say(a:send("no", "255.255.255.255", 9))
            say(a:send("no", "::1", 9))
            say(a:send(("x"):rep(70000), nil, 9))
            say(a:bind())
            say(a:connect(b:address().port))
            say(a:send("three"))
            say(a:send("no", "127.0.0.1", 9))
            return table.concat(out, "|")
          end,
          got = function() table.sort(got) return table.concat(got, ",") end, -- two sockets have no order
          six = function()
            local u = relay.udp { family = 6 }
            local v = relay.udp { family = 6 }
            local all = {}
            v:on_message(function(data, addr) all[#all + 1] = data .. "<" .. addr.ip end)
            assert(v:bind("::1"))
            assert(u:send("hi", nil, v:address().port))
            for _ = 1, 200 do if #all == 0 then relay.sleep(0.05) end end
            u:close() v:close()
            return table.concat(all, ",")
          end,
        },
      }]], function(server)
      local said = call(server, "play")
      local codes = {}
      for part in (said .. "|"):gmatch("([^|]*)|") do codes[#codes + 1] = part:match("%S+$") end
      assert.same({ "true", "true", "denied", "family", "too-large", "bound", "true", "true", "bound" }, codes)
      loop.wait(function() return call(server, "got") == "one<a,three<a,two<b" end,
        function() return "three messages: " .. call(server, "got") end, WAIT_S)
      assert.equal("hi<::1", call(server, "six"))
    end)
  end)

  it("who_waits_for_an_endpoint_that_closes_is_told", function()
    local names = resolver.new { ["h.fleet"] = "hang" }
    finally(function() names:close() end)
    daemon.with(names:options(options [[
      local u = relay.udp()
      return { commands = {
        send = function() return text(u:send("x", "h.fleet", 9)) end,
        close = function() return text(u:close()) end,
      } }]]), function(server)
      local waiting = start(server, "send")
      loop.wait(function() return names:calls("h.fleet") == 1 end, "the resolver to be asked", WAIT_S)
      assert.equal("true", call(server, "close"))
      assert.equal("nil closed closed", waiting())
      assert.equal("nil closed closed", call(server, "send"))
    end)
  end)

  it("a flood from the network and a handler that never ends cost players nothing", function()
    daemon.with(options([[
      local u, n = relay.udp(), 0
      return {
        load = function()
          assert(u:bind("127.0.0.1"))
          u:on_message(function(data) n = n + 1 if data == "loop" then while true do end end end)
        end,
        commands = {
          port = function() return text(u:address().port) end,
          stats = function() local s = u:stats() return text(s.received, s.dropped, s.waiting, n) end,
        },
      }]], { allow_log = { "hook=on_message", '"hook":"on_message"' } }), function(server)
      local port, flood = tonumber(call(server, "port")), udp.open()
      local pair = player.relay(player.join(server), player.join(server))
      for round = 1, 20 do
        for _ = 1, 500 do flood:send(round % 2 == 0 and "loop" or "x", "127.0.0.1", port) end
        player.exchange(pair)
      end
      check_players(server)
      loop.wait(function()
        local received, dropped, waiting, handled = call(server, "stats"):match("(%d+) (%d+) (%d+) (%d+)")
        return waiting == "0" and tonumber(received) == tonumber(dropped) + tonumber(handled)
          and tonumber(dropped) > 0
      end, function() return "the queue to be worked off: " .. call(server, "stats") end, 60)
    end)
  end)
end)
