-- SPDX-License-Identifier: MIT
-- Programs of their own with require "moonrelay": what they do first, and how they end. Each is a process.

local function run(code)
  local name = os.tmpname()
  local file = assert(io.open(name, "wb"))
  file:write(code)
  file:close()
  local pipe = io.popen("luajit '" .. name .. "' 2>&1 </dev/null; echo status $?")
  local out = pipe:read("*a")
  pipe:close()
  os.remove(name)
  local text, status = out:match("^(.*)status (%d+)\n$")
  return text, tonumber(status)
end

local function prints(expected, code)
  local text, status = run(code)
  assert.equal(expected, text)
  assert.equal(0, status)
end

describe("a program", function()
  it("whose first act is to bind to a literal gets its callback, by run", function()
    prints("returned\ntrue\n127.0.0.1\n", [[
      local u = require("moonrelay").udp()
      u:bind("127.0.0.1", 0, function(ok)
        print(ok)
        print(u:address().ip)
      end)
      print "returned"
      require("moonrelay").run()]])
  end)

  it("whose first act is to bind gets its callback by step alone", function()
    prints("bound\nfalse\n", [[
      local moonrelay = require "moonrelay"
      local is_bound
      moonrelay.udp { family = 6 }:bind("::1", 0, function(ok) is_bound = assert(ok) print "bound" end)
      for _ = 1, 10 do if not is_bound then moonrelay.step() end end
      print(moonrelay.step())]])
  end)

  it("whose first act is to send or resolve gets its callback", function()
    prints("sent\n", [[
      local moonrelay = require "moonrelay"
      moonrelay.udp():send("x", "127.0.0.1", 9, function(ok, why) assert(ok, why) print "sent" end)
      moonrelay.run()]])
    prints("127.0.0.1\n", [[
      require("moonrelay").resolve("127.0.0.1", 4, function(address) print(address) end)
      require("moonrelay").run()]])
  end)

  it("that does nothing with it ends at once", function()
    prints("", [[require("moonrelay").run()]])
    prints("", [[local u = require("moonrelay").udp() u:on_message(print)]])
  end)

  it("ends well whatever is under way", function()
    prints("", [[
      local moonrelay = require "moonrelay"
      moonrelay.set_resolver(function() end)
      moonrelay.resolve("never.example", 4, print)
      moonrelay.udp { lookup = function() end }:bind("never.example", 0, print)
      moonrelay.udp():send("x", "localhost", 9, print)
      local u = moonrelay.udp()
      u:bind("127.0.0.1", 0, function() end)
      u:on_message(print)
      moonrelay.udp():bind(function() end)
      local v = moonrelay.udp()
      v:bind("localhost", 0, print)
      moonrelay.step()
      moonrelay.step()
      v:close(print)
      u:close(print)]])
    prints("", [[
      local moonrelay = require "moonrelay"
      moonrelay.resolve("localhost", 4, print)]])
  end)

  it("ends well although finalizers use what is ending", function()
    prints("made\nthe program has ended\n", [[
      local moonrelay
      local first = newproxy(true) -- ends after the program
      getmetatable(first).__gc = function()
        local ok, why = pcall(moonrelay.udp)
        print(not ok and why)
      end
      moonrelay = require "moonrelay"
      local last = newproxy(true) -- ends before it
      getmetatable(last).__gc = function()
        moonrelay.udp():bind("127.0.0.1", 0, print)
        print "made"
      end
      moonrelay.run()]])
  end)

  it("ends well while a resolver hangs, and does not wait for it", function()
    local start = os.time()
    prints("", [[
      local moonrelay = require "moonrelay"
      for i = 1, 8 do moonrelay.resolve(i .. ".invalid", 4, function() end) end
      moonrelay.step()
      moonrelay.step()]])
    assert.is_true(os.time() - start < 10)
  end)

  it("is not left by the resolver's threads when its state is closed and it lives on", function()
    prints("closed\n", [[
      local ffi = require "ffi"
      ffi.cdef "int poll(void *, unsigned long, int);"
      local last = newproxy(true) -- made before the module is loaded: ends after it was unloaded
      getmetatable(last).__gc = function()
        ffi.C.poll(nil, 0, 300)
        print "closed"
      end
      local moonrelay = require "moonrelay"
      for i = 1, 8 do moonrelay.resolve(i .. ".invalid", 4, function() end) end
      moonrelay.step()]])
  end)

  it("that listens lives until it closes, however late a datagram comes", function()
    local name = os.tmpname()
    local file = assert(io.open(name, "wb"))
    file:write [[
      local moonrelay = require "moonrelay"
      local u = moonrelay.udp()
      u:on_message(function(data)
        print(data)
        u:close()
      end)
      u:bind("127.0.0.1", 0, function()
        print(u:address().port)
        io.stdout:flush()
      end)
      moonrelay.run()
      print "over"]]
    file:close()
    local server = io.popen("luajit '" .. name .. "' 2>&1 </dev/null")
    local port = assert(tonumber((server:read("*l"))))
    local moonrelay = require "moonrelay"
    local u = moonrelay.udp()
    u:send("late", nil, port)
    moonrelay.run()
    assert.equal("late", server:read("*l"))
    assert.equal("over", server:read("*l"))
    server:close()
    os.remove(name)
    u:close()
    moonrelay.run()
  end)

  it("fails with the traceback of a callback that raises", function()
    local text, status = run [[
      local moonrelay = require "moonrelay"
      local function deep() error "in the callback" end
      moonrelay.resolve("127.0.0.1", 4, function() deep() end)
      moonrelay.run()]]
    assert.equal(1, status)
    assert.matches("in the callback", text)
    assert.matches("in function 'deep'", text)
  end)

  it("runs in compiled code as in the interpreter", function()
    prints("3000 0\n", [[
      local moonrelay = require "moonrelay"
      require("jit").opt.start("hotloop=2", "hotexit=2")
      local u, n = moonrelay.udp(), 0
      local sink = moonrelay.udp()
      sink:bind("127.0.0.1", 0, assert)
      moonrelay.run()
      local port = sink:address().port
      local function sent(ok, why)
        assert(ok, why)
        n = n + 1
        if n < 3000 then u:send("x", "127.0.0.1", port, sent) end
      end
      sent(true)
      moonrelay.run()
      print(n .. " " .. moonrelay.counts().resolver)]])
  end)

  it("has a callback by step in a loop that polls fd", function()
    prints("ready true\n", [[
      local ffi = require "ffi"
      local moonrelay = require "moonrelay"
      ffi.cdef "struct pollfd { int fd; short events, revents; }; int poll(struct pollfd *, unsigned long, int);"
      local seen = false
      local u = moonrelay.udp()
      u:on_message(function() seen = true end)
      u:bind("127.0.0.1", 0, function() u:send("x", nil, u:address().port) end)
      local p = ffi.new("struct pollfd[1]", { { moonrelay.fd(), 1, 0 } })
      while not seen do
        local seconds = moonrelay.timeout()
        ffi.C.poll(p, 1, seconds and math.ceil(seconds * 1000) or 5000)
        moonrelay.step()
      end
      print("ready " .. tostring(seen))]])
  end)
end)
