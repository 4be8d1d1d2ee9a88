-- SPDX-License-Identifier: MIT
-- require "moonrelay" in a plain LuaJIT program, over real sockets of loopback: what needs a resolver and what
-- does not, functions that look up, callbacks, and how long a program runs.
local ffi = require "ffi"
local core = require "moonrelay_core"
local moonrelay = require "moonrelay"
local seed = require "seed"

ffi.cdef [[
struct moonrelay_pollfd { int fd; short events, revents; };
int poll(struct moonrelay_pollfd *fds, unsigned long n, int timeout_ms);
]]

local LOOPBACK = { [4] = "127.0.0.1", [6] = "::1" }
local WILDCARD = { [4] = "0.0.0.0", [6] = "::" }

local function noop() end

local open = {} -- endpoints that are read from

local ready = ffi.new("struct moonrelay_pollfd[1]", { { moonrelay.fd(), 1, 0 } })

-- Turns the loop until the condition holds, and waits between turns for as long as the loop says.
local function until_true(condition, what)
  local deadline = os.time() + 20
  while not condition() do
    assert(os.time() < deadline, what or "it does not come true")
    ffi.C.poll(ready, 1, math.ceil(math.min(moonrelay.timeout() or 1, 1) * 1000))
    moonrelay.step()
  end
end

-- Calls f(done) and turns the loop until done was called: what it was given.
local function await(f)
  local got = {}
  f(function(...) got[#got + 1] = { ... } end)
  assert.equal(0, #got, "a callback came before the call returned")
  until_true(function() return #got > 0 end, "no callback comes")
  for _ = 1, 3 do moonrelay.step() end
  assert.equal(1, #got, "a callback comes once")
  return unpack(got[1])
end

-- A bound endpoint that collects what comes, and its port.
local function receiver(family)
  local u, seen = moonrelay.udp { family = family }, {}
  open[u] = true
  assert(await(function(done) u:bind(LOOPBACK[family], 0, done) end))
  u:on_message(function(data, from) seen[#seen + 1] = { data = data, from = from } end)
  return u, u:address().port, seen
end

local function close(...)
  for _, u in ipairs { ... } do u:close() end
  moonrelay.run()
end

-- What lookups came to while f ran.
local function counted(f)
  local before = moonrelay.counts()
  f()
  local after = moonrelay.counts()
  for key, n in pairs(after) do after[key] = n - before[key] end
  return after
end

-- A resolver of the test: what it was asked.
local function replace_resolver(answer)
  local asked = {}
  moonrelay.set_resolver(function(host, family, done)
    asked[#asked + 1] = host .. " " .. tostring(family)
    return answer(host, family, done)
  end)
  return asked
end

after_each(function()
  moonrelay.set_resolver(nil)
  moonrelay.set_lookup(nil)
  for u in pairs(open) do u:close() end -- of a test that failed
  open = {}
end)

for _, family in ipairs { 4, 6 } do
  describe("over IPv" .. family .. " a literal", function()
    it("needs no resolver in bind, connect and send", function()
      local asked = replace_resolver(function() return nil, "nobody is to be asked" end)
      local r, port, seen = receiver(family)
      local u = moonrelay.udp { family = family }
      local counts = counted(function()
        assert.is_true(await(function(done) u:bind(LOOPBACK[family], 0, done) end))
        assert.is_true(await(function(done) u:send("sent", LOOPBACK[family], port, done) end))
        assert.is_true(await(function(done) u:connect(LOOPBACK[family], port, done) end))
        assert.is_true(await(function(done) u:send("connected", done) end))
      end)
      until_true(function() return #seen == 2 end)
      assert.same({ "sent", "connected" }, { seen[1].data, seen[2].data })
      assert.equal(LOOPBACK[family], seen[1].from.ip)
      assert.equal(u:address().port, seen[1].from.port)
      assert.same({ literals = 3, resolver = 0, custom = 0, ignored = 0 }, counts)
      assert.same({}, asked)
      close(r, u)
    end)

    it("is the answer of resolve and lookup, on a later turn", function()
      local counts = counted(function()
        local host = LOOPBACK[family]
        assert.equal(host, (await(function(done) moonrelay.resolve(host, family, done) end)))
        assert.equal(host, (await(function(done) moonrelay.lookup(host, family, done) end)))
        assert.equal(host, (await(function(done) moonrelay.resolve(host, done) end)))
      end)
      assert.same({ literals = 3, resolver = 0, custom = 0, ignored = 0 }, counts)
    end)
  end)

  describe("over IPv" .. family .. " an omitted host", function()
    it("is the wildcard for bind and loopback for send and connect", function()
      local hosts = {}
      local function lookup(host, asked_family, op, done)
        hosts[#hosts + 1] = ("%s %s %d"):format(op, host, asked_family)
        moonrelay.lookup(host, asked_family, done)
      end
      local r, port = receiver(family)
      local u = moonrelay.udp { family = family, lookup = lookup }
      assert.is_true(await(function(done) u:send("a", nil, port, done) end))
      assert.equal(WILDCARD[family], u:address().ip)
      assert.is_true(await(function(done) u:connect(port, done) end))
      assert.is_true(await(function(done) u:send("b", done) end))
      assert.same({
        ("bind %s %d"):format(WILDCARD[family], family),
        ("send %s %d"):format(LOOPBACK[family], family),
        ("connect %s %d"):format(LOOPBACK[family], family),
      }, hosts)
      close(r, u)
    end)
  end)
end

describe("a literal of the other family", function()
  it("goes to the resolver and ends in an error that names both families", function()
    for _, case in ipairs { { 4, "::1", "IPv6" }, { 6, "127.0.0.1", "IPv4" } } do
      local family, host, found = unpack(case)
      local u = moonrelay.udp { family = family }
      for _, op in ipairs { "bind", "send", "connect" } do
        local counts = counted(function()
          local ok, message, code = await(function(done)
            if op == "bind" then return u:bind(host, 0, done) end
            if op == "send" then return u:send("x", host, 9, done) end
            u:connect(host, 9, done)
          end)
          assert.is_nil(ok)
          assert.equal("family", code)
          assert.matches(found, message)
          assert.matches("IPv" .. family, message)
          assert.matches(host, message, 1, true)
        end)
        assert.equal(1, counts.resolver, op)
      end
      close(u)
    end
  end)

  it("is never resolved to something else", function()
    replace_resolver(function() return "127.0.0.1" end)
    local r, port, seen = receiver(4)
    local u = moonrelay.udp { family = 4 }
    assert.equal("family", (select(3, await(function(done) u:send("x", "::1", port, done) end))))
    u:send("y", "127.0.0.1", port)
    until_true(function() return #seen > 0 end)
    assert.equal(1, #seen)
    assert.equal("y", seen[1].data)
    close(r, u)
  end)
end)

describe("the resolver", function()
  it("of the system knows localhost, and not what is nobody's name", function()
    if io.open "/etc/hosts" then -- a bare root may have none
      assert.equal("127.0.0.1", (await(function(done) moonrelay.resolve("localhost", 4, done) end)))
    end
    local address, message, code = await(function(done) moonrelay.resolve("no.such.host.invalid", 4, done) end)
    assert.is_nil(address)
    assert.matches("no.such.host.invalid", message, 1, true)
    assert.is_truthy(({ ["not-found"] = 1, failed = 1, timeout = 1 })[code], code) -- by the network it is run in
  end)

  it("takes what only looks like an address, and its answer is classed like any other", function()
    local counts = counted(function()
      assert.equal("127.0.0.1", (await(function(done) moonrelay.resolve("127.1", 4, done) end)))
    end)
    assert.equal(1, counts.resolver)
  end)

  it("may be replaced, which an endpoint that is there notices at its next send", function()
    local r, port, seen = receiver(4)
    local u = moonrelay.udp { family = 4 }
    local codes = {}
    local function send(data)
      local before = #codes
      u:send(data, "game.example", port, function(ok, _, code) codes[#codes + 1] = ok or code end)
      until_true(function() return #codes > before end)
    end
    local first = replace_resolver(function() return nil, "no, not here" end)
    send "one"
    local second = replace_resolver(function(_, _, done) done "127.0.0.1" end)
    send "two"
    until_true(function() return #seen == 1 end)
    assert.equal("two", seen[1].data)
    assert.same({ "failed", true }, codes)
    assert.same({ "game.example 4" }, first)
    assert.same({ "game.example 4" }, second)
    close(r, u)
  end)

  it("that answers the other family, raises or answers nonsense fails that request alone", function()
    local answers = {
      family = function() return "2001:db8::1" end,
      failed = function() error "oh" end,
      number = function() return 7 end,
      own = function(_, _, done) done(nil, "try later", "try-later") end,
    }
    replace_resolver(function(host, family, done) return answers[host:match("^(%w+)")](host, family, done) end)
    local function code(host) return (select(3, await(function(done) moonrelay.resolve(host, 4, done) end))) end
    assert.equal("family", code "family.example")
    assert.equal("failed", code "failed.example")
    assert.equal("failed", code "number.example")
    assert.equal("try-later", code "own.example")
    assert.equal("127.0.0.1", (await(function(done) moonrelay.resolve("127.0.0.1", 4, done) end)))
  end)
end)

describe("a lookup of an endpoint's own", function()
  it("is asked about every name and literal, on a later turn, with the family and what for", function()
    local asked, is_inside = {}, false
    local u = moonrelay.udp { family = 4, lookup = function(host, family, op, done)
      assert.is_false(is_inside)
      asked[#asked + 1] = { host, family, op, type(done) }
      return host == "game.example" and "127.0.0.1" or host
    end }
    local function call(method, ...)
      is_inside = true
      u[method](u, ...)
      is_inside = false
      moonrelay.run()
    end
    local results = {}
    local function done(ok, message) results[#results + 1] = ok or message end
    local counts = counted(function()
      call("bind", "127.0.0.1", 0, done)
      call("send", "x", "game.example", u:address().port, done)
      call("send", "x", "127.0.0.1", u:address().port, done)
      call("connect", "game.example", u:address().port, done)
      call("send", "x", done)
    end)
    assert.same({ true, true, true, true, true }, results)
    assert.same({
      { "127.0.0.1", 4, "bind", "function" }, { "game.example", 4, "send", "function" },
      { "127.0.0.1", 4, "send", "function" }, { "game.example", 4, "connect", "function" },
    }, asked)
    assert.same({ literals = 0, resolver = 0, custom = 4, ignored = 0 }, counts)
    close(u)
  end)

  local function failing(lookup)
    local fail = true
    local u = moonrelay.udp { family = 4, lookup = function(host, family, op, done)
      if fail then return lookup(host, family, op, done) end
      return host
    end }
    return u, function() fail = false end
  end

  local cases = {
    { "fails", function() return nil, "no such game" end, "failed", "no such game" },
    { "fails later", function(_, _, _, done) done(nil, "no such game", "no-game") end, "no-game", "no such game" },
    { "throws", function() error "oh dear" end, "failed", "oh dear" },
    { "throws a table", function() error {} end, "failed", "table" },
    { "answers nil", function(_, _, _, done) done(nil) end, "failed", "nil" },
    { "answers a number", function() return 42 end, "failed", "number" },
    { "answers a table that has no ip", function() return {} end, "failed", "table without ip" },
    { "answers a number later", function(_, _, _, done) done(42) end, "failed", "number" },
    { "answers what is no address", function() return "127.1" end, "failed", "127.1" },
    { "answers the wrong family", function() return "::1" end, "family", "IPv6" },
    { "answers the wrong family later", function(_, _, _, done) done "::1" end, "family", "IPv6" },
  }
  for _, case in ipairs(cases) do
    local name, lookup, code, word = unpack(case)
    it("that " .. name .. " is one error a request, and the endpoint is usable after", function()
      local u, heal = failing(lookup)
      for _, op in ipairs { "bind", "send", "connect" } do
        local ok, message, got = await(function(done)
          if op == "bind" then return u:bind("game.example", 0, done) end
          if op == "send" then return u:send("x", "game.example", 9, done) end
          u:connect("game.example", 9, done)
        end)
        assert.is_nil(ok)
        assert.equal(code, got)
        assert.matches(word, message, 1, true)
        assert.matches(op == "bind" and "game.example" or "", message, 1, true)
      end
      heal()
      assert.is_true(await(function(done) u:bind("127.0.0.1", 0, done) end))
      local port = u:address().port
      assert.is_true(await(function(done) u:send("x", "127.0.0.1", port, done) end))
      close(u)
    end)
  end

  it("that answers twice counts once, and the second is counted as ignored", function()
    local r, port, seen = receiver(4)
    local u = moonrelay.udp { lookup = function(host, _, _, done)
      done(host == "game.example" and "127.0.0.1" or host)
      done "127.0.0.2"
      return "127.0.0.3"
    end }
    local ended = 0
    local counts = counted(function()
      u:send("x", "game.example", port, function() ended = ended + 1 end)
      until_true(function() return #seen == 1 and ended == 1 end)
    end)
    for _ = 1, 50 do moonrelay.step() end
    assert.equal(1, #seen)
    assert.equal(1, ended)
    assert.equal(4, counts.ignored) -- of the wildcard and of the destination
    close(r, u)
  end)

  it("that never answers ends after five seconds, and the endpoint is usable after", function()
    local u, heal = failing(noop)
    local start = os.time()
    local ok, message, code = await(function(done) u:bind("game.example", 0, done) end)
    assert.is_nil(ok)
    assert.equal("timeout", code)
    assert.matches("game.example", message, 1, true)
    assert.is_true(os.time() - start >= 4)
    heal()
    assert.is_true(await(function(done) u:bind("127.0.0.1", 0, done) end))
    close(u)
  end)

  it("that is late is not heard", function()
    local late
    local u = moonrelay.udp { lookup = function(_, _, _, done) late = done end }
    local results = {}
    u:bind("game.example", 0, function(_, _, code) results[#results + 1] = code end)
    until_true(function() return late end)
    u:close()
    moonrelay.run()
    local counts = counted(function() late "127.0.0.1" end)
    moonrelay.run()
    assert.same({}, results)
    assert.equal(1, counts.ignored)
  end)

  it("that fails for three sends of three different turns gives three errors, and then works", function()
    local u, heal = failing(function(_, _, op)
      if op == "bind" then return nil, "no wildcard" end
      return nil, "no host"
    end)
    local errors = {}
    local function send(n)
      u:send("x" .. n, "game.example", 9, function(ok, message)
        assert.is_nil(ok)
        errors[#errors + 1] = n .. " " .. message
      end)
    end
    send(1)
    moonrelay.step()
    send(2)
    moonrelay.step()
    send(3)
    moonrelay.run()
    assert.equal(3, #errors)
    table.sort(errors)
    for n = 1, 3 do assert.matches("^" .. n .. " .*no wildcard", errors[n]) end
    heal()
    local r, port, seen = receiver(4)
    u:send("after", "127.0.0.1", port)
    until_true(function() return #seen == 1 end)
    assert.equal("after", seen[1].data)
    close(r, u)
  end)

  it("that takes its time keeps sends to one destination in order", function()
    local r, port, seen = receiver(4)
    local waiting = {}
    local u = moonrelay.udp { lookup = function(host, _, op, done)
      if op == "bind" then return host end
      waiting[#waiting + 1] = done
    end }
    for n = 1, 5 do u:send(tostring(n), "game.example", port) end
    until_true(function() return #waiting > 0 end)
    local answered = 0
    until_true(function()
      while waiting[1] do
        table.remove(waiting)("127.0.0.1") -- the last one first
        answered = answered + 1
      end
      return #seen == 5
    end)
    local order = {}
    for _, message in ipairs(seen) do order[#order + 1] = message.data end
    assert.equal("1 2 3 4 5", table.concat(order, " "))
    close(r, u)
  end)

  it("sees the wildcard of a bind that a send makes, and its failure is the send's", function()
    local asked = {}
    local u = moonrelay.udp { family = 6, lookup = function(host, family, op)
      asked[#asked + 1] = ("%s %s %d"):format(op, host, family)
      return nil, "closed today"
    end }
    local _, message = await(function(done) u:send("x", "::1", 9, done) end)
    assert.matches("closed today", message)
    assert.same({ "bind :: 6" }, asked)
    close(u)
  end)

  it("may be that of the whole program", function()
    local asked = {}
    local u = moonrelay.udp()
    local own = moonrelay.udp { lookup = function(host) return host end }
    moonrelay.set_lookup(function(host, family, op, done)
      asked[#asked + 1] = op .. " " .. host
      if host == "home" then return { ip = "127.0.0.1" } end
      moonrelay.lookup(host, family, done)
    end)
    assert.is_true(await(function(done) u:bind("home", 0, done) end))
    assert.is_true(await(function(done) own:bind("127.0.0.1", 0, done) end))
    assert.equal("127.0.0.1", (await(function(done) moonrelay.resolve("home", 4, done) end)))
    assert.equal("127.0.0.1", (await(function(done) moonrelay.lookup("127.0.0.1", 4, done) end)))
    moonrelay.set_lookup(nil)
    assert.equal("127.0.0.1", (await(function(done) moonrelay.resolve("127.0.0.1", 4, done) end)))
    assert.same({ "bind home", "resolve home" }, asked)
    close(u, own)
  end)

  it("that is taken away before it is asked leaves the question to the built-in one", function()
    moonrelay.set_lookup(function() return "127.0.0.9" end)
    local got
    moonrelay.resolve("127.0.0.1", 4, function(address) got = address end)
    moonrelay.set_lookup(nil)
    moonrelay.run()
    assert.equal("127.0.0.1", got)
    replace_resolver(function() return "127.0.0.9" end)
    moonrelay.resolve("game.example", 4, function(_, message) got = message end)
    moonrelay.set_resolver(nil)
    moonrelay.run()
    assert.equal("game.example: the resolver was taken away", got)
  end)

  it("that is not a function is refused when the endpoint is made", function()
    for _, value in ipairs { 7, "text", true, {} } do
      local ok, why = pcall(function() return (moonrelay.udp { lookup = value }) end)
      assert.is_false(ok)
      assert.matches("moonrelay_spec.lua:%d+: udp: lookup is a " .. type(value) .. ", a function is expected", why)
    end
    assert.error_matches(function() moonrelay.set_lookup(7) end, "lookup is a number, a function or nil is expected")
    assert.error_matches(function() moonrelay.set_resolver "x" end, "resolver is a string, a function or nil")
  end)
end)

describe("close", function()
  it("during a lookup leaves only the close callback", function()
    for _, op in ipairs { "bind", "send", "connect" } do
      local started, called = false, {}
      local u = moonrelay.udp { lookup = function() started = true end }
      local function done(name) return function() called[#called + 1] = name end end
      if op == "bind" then u:bind("game.example", 0, done "bind") end
      if op == "send" then for _ = 1, 3 do u:send("x", "game.example", 9, done "send") end end
      if op == "connect" then u:connect("game.example", 9, done "connect") end
      until_true(function() return started end)
      u:close(done "close")
      assert.same({}, called)
      moonrelay.run()
      assert.same({ "close" }, called)
    end
  end)

  it("during a job of the resolver leaves only the close callback", function()
    local called = {}
    local u = moonrelay.udp()
    u:bind("localhost", 0, function() called[#called + 1] = "bind" end)
    u:close(function() called[#called + 1] = "close" end)
    moonrelay.run()
    assert.same({ "close" }, called)
  end)

  it("from inside any callback is fine", function()
    local r, port = receiver(4)
    local closed = {}
    r:on_message(function() r:close(function(ok) closed[#closed + 1] = ok end) end)
    local u
    u = moonrelay.udp { lookup = function(host) return host end }
    u:send("x", "127.0.0.1", port, function() u:close(function(ok) closed[#closed + 1] = ok end) end)
    moonrelay.run()
    assert.same({ true, true }, closed)
    local v
    v = moonrelay.udp { lookup = function() v:close(function(ok) closed[#closed + 1] = ok end) end }
    v:bind(noop)
    moonrelay.run()
    assert.equal(3, #closed)
  end)

  it("ends an endpoint: later calls fail by their callbacks", function()
    local u = moonrelay.udp()
    u:close()
    local codes = {}
    local function done(_, message, code) codes[#codes + 1] = code .. " " .. message end
    u:bind(done)
    u:send("x", "127.0.0.1", 9, done)
    u:connect(9, done)
    u:close(done)
    u:send("nobody is told", "127.0.0.1", 9)
    assert.same({}, codes)
    moonrelay.run()
    assert.same({
      "closed bind: it is closed", "closed send: it is closed",
      "closed connect: it is closed", "closed close: it is closed",
    }, codes)
    assert.same({ nil, "the endpoint is closed", "closed" }, { u:address() })
    assert.equal("udp (closed)", tostring(u))
  end)
end)

describe("an endpoint", function()
  it("says where it is bound", function()
    local u = moonrelay.udp()
    assert.same({ nil, "the endpoint is not bound", "unbound" }, { u:address() })
    assert.is_true(await(function(done) u:bind("127.0.0.1", 0, done) end))
    local a = u:address()
    assert.equal("127.0.0.1:" .. a.port, a.text)
    assert.equal(4, a.family)
    assert.equal("udp " .. a.text, tostring(u))
    close(u)
  end)

  it("tells why the system refuses it", function()
    local r, port = receiver(4)
    r:on_message(nil)
    local u = moonrelay.udp()
    assert.equal("address-in-use", (select(3, await(function(done) u:bind("127.0.0.1", port, done) end))))
    assert.equal("not-available", (select(3, await(function(done) u:bind("192.0.2.1", 0, done) end))))
    assert.is_true(await(function(done) u:bind("127.0.0.1", 0, done) end))
    assert.equal("bound", (select(3, await(function(done) u:bind("127.0.0.1", 0, done) end))))
    assert.equal("too-large", (select(3, await(function(done) u:send(("x"):rep(65508), nil, port, done) end))))
    assert.equal("no-port", (select(3, await(function(done) u:send("x", done) end))))
    assert.is_true(await(function(done) u:send(("x"):rep(65507), nil, port, done) end))
    close(r, u)
  end)

  it("carries any bytes, and none", function()
    local r, port, seen = receiver(4)
    local u = moonrelay.udp()
    local all = {}
    for i = 0, 255 do all[#all + 1] = string.char(i) end
    u:send(table.concat(all), nil, port)
    u:send("", nil, port)
    until_true(function() return #seen == 2 end)
    assert.equal(table.concat(all), seen[1].data)
    assert.equal("", seen[2].data)
    close(r, u)
  end)

  it("that is connected hears its peer alone", function()
    local r, _, seen = receiver(4)
    local peer, peer_port = receiver(4)
    local other = moonrelay.udp()
    local port = r:address().port
    local connected = false
    r:connect("127.0.0.1", peer_port, function(ok) connected = ok end)
    until_true(function() return connected end)
    other:send("no", nil, port)
    peer:send("yes", nil, port)
    until_true(function() return #seen > 0 end)
    for _ = 1, 20 do moonrelay.step() end
    assert.equal(1, #seen)
    assert.equal("yes", seen[1].data)
    close(r, peer, other)
  end)

  it("may answer from inside its handler", function()
    local r, port = receiver(4)
    local answers = {}
    r:on_message(function(data, from) r:send(data:upper(), from.ip, from.port) end)
    local u = moonrelay.udp()
    u:on_message(function(data)
      answers[#answers + 1] = data
      if #answers == 3 then
        u:close()
        r:close()
      end
    end)
    for n = 1, 3 do u:send("hello " .. n, nil, port) end
    moonrelay.run()
    assert.same({ "HELLO 1", "HELLO 2", "HELLO 3" }, answers)
  end)
end)

describe("run", function()
  it("returns at once when nothing is due", function()
    moonrelay.run()
    local u = moonrelay.udp()
    u:on_message(noop) -- not bound: nothing can come
    moonrelay.run()
    u:close()
    moonrelay.run()
    assert.is_false(moonrelay.step())
  end)

  it("goes on as long as a bound endpoint has a handler", function()
    local r, port = receiver(4)
    local u, n = moonrelay.udp(), 0
    r:on_message(function()
      n = n + 1
      if n == 2 then return r:on_message(nil) end
      u:send("again", nil, port)
    end)
    u:send("x", nil, port)
    moonrelay.run()
    assert.equal(2, n)
    moonrelay.run() -- bound still, and nobody listens
    close(r, u)
  end)

  it("raises what a callback raises, with a traceback, and may be called again", function()
    local order = {}
    local function fails(name)
      return function()
        order[#order + 1] = name
        error(name .. " failed")
      end
    end
    moonrelay.resolve("127.0.0.1", 4, fails "first")
    moonrelay.resolve("127.0.0.1", 4, fails "second")
    moonrelay.resolve("127.0.0.1", 4, function(address) order[#order + 1] = address end)
    local ok, why = pcall(moonrelay.run)
    assert.is_false(ok)
    assert.matches("moonrelay_spec.lua:%d+: first failed\nstack traceback:", why)
    assert.error_matches(moonrelay.run, "second failed")
    moonrelay.run()
    assert.same({ "first", "second", "127.0.0.1" }, order)
  end)

  it("raises a value that is no text as it is", function()
    local value = {}
    moonrelay.resolve("127.0.0.1", 4, function() error(value) end)
    local ok, why = pcall(moonrelay.step)
    while ok do ok, why = pcall(moonrelay.step) end
    assert.equal(value, why)
  end)

  it("raises what a handler raises, and the next datagram finds it again", function()
    local r, port = receiver(4)
    local u, n = moonrelay.udp(), 0
    r:on_message(function()
      n = n + 1
      if n == 1 then error "bad datagram" end
      r:close()
    end)
    u:send("one", nil, port)
    u:send("two", nil, port)
    assert.error_matches(moonrelay.run, "bad datagram")
    moonrelay.run()
    assert.equal(2, n)
    close(u)
  end)

  it("is refused from inside a callback, as is step", function()
    local why = {}
    moonrelay.resolve("127.0.0.1", 4, function()
      why[1] = select(2, pcall(moonrelay.run))
      why[2] = select(2, pcall(moonrelay.step))
    end)
    moonrelay.run()
    assert.matches("run%(%) is called from inside a callback", why[1])
    assert.matches("step%(%) is called from inside a callback", why[2])
  end)

  it("works in a coroutine, whose callbacks cannot yield", function()
    local co = coroutine.create(function()
      moonrelay.resolve("127.0.0.1", 4, coroutine.yield)
      moonrelay.run()
    end)
    local ok, why = coroutine.resume(co)
    assert.is_false(ok)
    assert.matches("yield", why)
    moonrelay.run()
  end)
end)

describe("a loop of somebody else's", function()
  it("is told by fd and timeout when step has something to do", function()
    assert.equal("number", type(moonrelay.fd()))
    assert.is_nil(moonrelay.timeout())
    local address
    moonrelay.resolve("127.0.0.1", 4, function(found) address = found end)
    assert.equal(0, moonrelay.timeout())
    moonrelay.step()
    assert.equal("127.0.0.1", address)
    assert.is_nil(moonrelay.timeout())
    local u = moonrelay.udp { lookup = noop }
    u:bind(noop)
    moonrelay.step()
    local seconds = moonrelay.timeout()
    assert.is_true(seconds > 0 and seconds <= 5)
    u:close()
    u:bind(function(_, _, code) address = code end)
    assert.equal(0, moonrelay.timeout())
    moonrelay.run()
    assert.equal("closed", address)
  end)
end)

describe("memory", function()
  local function collect()
    for _ = 1, 3 do collectgarbage() end
    moonrelay.step()
    moonrelay.step()
  end

  it("is given back of endpoints that nobody refers to, and whose handlers refer to them", function()
    local function fds()
      local pipe = io.popen("ls /proc/" .. io.open("/proc/self/stat"):read("*n") .. "/fd | wc -l")
      local n = pipe:read("*n")
      pipe:close()
      return n
    end
    collect()
    local blocks, descriptors = core.blocks(), fds()
    for _ = 1, 20 do
      local u = moonrelay.udp()
      local v = moonrelay.udp { lookup = function(host) return u and host end }
      u:on_message(function() return u, v end)
      assert.is_true(await(function(done) v:bind("127.0.0.1", 0, done) end))
    end
    -- Threads of the resolver may still be at names of other tests: what they hold becomes less.
    until_true(function()
      collect()
      return core.blocks() <= blocks and fds() <= descriptors
    end, "something is left")
  end)

  it("holds an endpoint that nobody refers to as long as something is due", function()
    local seen
    do
      local u = moonrelay.udp()
      u:on_message(function(data)
        seen = data
        u:close()
      end)
      u:bind("127.0.0.1", 0, function() u:send("to myself", nil, u:address().port) end)
    end
    collectgarbage()
    collectgarbage()
    moonrelay.run()
    assert.equal("to myself", seen)
  end)

  it("bears a collector that runs in every callback", function()
    local r, port = receiver(4)
    local n = 0
    r:on_message(function(data)
      collectgarbage()
      n = n + 1
      if data == "last" then r:close() end
    end)
    for i = 1, 20 do
      moonrelay.udp { lookup = function(host) collectgarbage() return host end }
        :send(i == 20 and "last" or "x", nil, port, function() collectgarbage() end)
    end
    moonrelay.run()
    assert.is_true(n >= 1)
  end)
end)

describe("misuse", function()
  local u = moonrelay.udp()

  it("is an error at the place of the call", function()
    local function refused(pattern, f)
      local ok, why = pcall(function() return (f()) end)
      assert.is_false(ok)
      assert.matches("moonrelay_spec.lua:%d+: .*" .. pattern, why)
    end
    refused("a function is expected as the last argument", function() u:bind("127.0.0.1", 0) end)
    refused("nothing was given", function() u:bind() end)
    refused("the host is a number, a string is expected", function() u:bind(7, 0, noop) end)
    refused("the port is a string, a number is expected", function() u:bind("127.0.0.1", "7", noop) end)
    refused("the port is 65536, 0 to 65535 is expected", function() u:bind("127.0.0.1", 65536, noop) end)
    refused("the port is 0, 1 to 65535 is expected", function() u:connect("127.0.0.1", 0, noop) end)
    refused("the port is 1.5", function() u:connect(1.5, noop) end)
    refused("the port is missing", function() u:connect(noop) end)
    refused("the data is a table", function() u:send({}, "127.0.0.1", 9) end)
    refused("there are too many arguments", function() u:send("x", "127.0.0.1", 9, 9) end)
    refused("function", function() u:on_message "x" end)
    refused("udp: family is 5, 4 or 6 is expected", function() moonrelay.udp { family = 5 } end)
    refused("udp: family is string", function() moonrelay.udp { family = "v4" } end)
    refused("udp has no option famly %(did you mean family%?%)", function() moonrelay.udp { famly = 4 } end)
    refused("a family is 4, 6 or nil", function() moonrelay.resolve("x", 5, noop) end)
    refused("string", function() moonrelay.resolve(7, 4, noop) end)
    refused("function", function() moonrelay.resolve("x", 4) end)
    refused("moonrelay.udp", function() u.send("x", "y") end)
  end)

  it("of any kind does no harm", function()
    seed.begin()
    local values = {
      function() return nil end,
      function() return math.random(-2, 70000) end,
      function() return ({ 0 / 0, 1 / 0, -1 / 0, 2 ^ 53, 0.5 })[math.random(5)] end,
      function() return math.random() < 0.5 end,
      function() return setmetatable({}, { __index = error, __tostring = error }) end,
      function() return noop end,
      function() return error end,
      function() return io.stdout end,
      function() return u end,
      function() return ({ "", "127.0.0.1", "::1", "\0", ("x"):rep(300), "127.1" })[math.random(6)] end,
    }
    local function any() return values[math.random(#values)]() end
    local names = { "bind", "connect", "send", "on_message", "address", "close" }
    local sources = { moonrelay.udp, moonrelay.resolve, moonrelay.lookup, moonrelay.set_lookup, moonrelay.set_resolver }
    for _ = 1, 3000 do
      local ok, v = pcall(moonrelay.udp, { family = math.random() < 0.5 and 4 or 6, lookup = any() })
      if not ok then v = moonrelay.udp() end
      for _ = 1, 4 do pcall(v[names[math.random(#names)]], v, any(), any(), any(), any()) end
      pcall(sources[math.random(#sources)], any(), any(), any())
      pcall(moonrelay.step)
      v:close()
    end
    moonrelay.set_lookup(nil)
    moonrelay.set_resolver(nil)
    local deadline = os.time() + 20
    repeat
      local ok, is_due = pcall(moonrelay.step) -- what such callbacks raise
      assert.is_true(os.time() < deadline)
    until ok and not is_due
    assert.is_true(await(function(done) moonrelay.udp():bind("127.0.0.1", 0, done) end))
  end)
end)

describe("the module", function()
  it("has what its annotations say, and the version", function()
    local path = assert(package.searchpath and package.searchpath("moonrelay", package.path))
    local text = assert(io.open(path)):read("*a")
    for name in text:gmatch("\nmoonrelay%.([%w_]+) = core%.") do assert.is_not_nil(moonrelay[name], name) end
    for name in pairs(moonrelay) do assert.matches("\nmoonrelay." .. name .. " = ", text, 1, true) end
    local fields, methods = {}, {}
    for name in text:match("@class moonrelay.Udp\n(.-)\n\n"):gmatch("@field ([%w_]+) fun") do fields[name] = true end
    for name in pairs(debug.getmetatable(moonrelay.udp()).__index) do methods[name] = true end
    assert.same(methods, fields)
    assert.equal(core.version, moonrelay.version)
    for key in pairs(moonrelay.counts()) do assert.matches("@field " .. key .. " integer", text, 1, true) end
  end)

  it("has the codes of endpoints and lookups in its annotations", function()
    local root = os.getenv("MR_SOURCE_DIR") or "."
    local function read(path) return assert(io.open(root .. "/" .. path)):read("*a") end
    local alias = read("lua/moonrelay.lua"):match("@alias moonrelay.Code\n(.-)\n\n")
    local codes = read("src/control/udp.c"):match("\nconst char %*mr_udp_code%b()%s(%b{})")
    for code in (codes .. 'return "not-found"; return "timeout";'):gmatch('return "([%l-]+)";') do
      assert.matches('| "' .. code .. '"', alias, 1, true)
    end
  end)
end)
