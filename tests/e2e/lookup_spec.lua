-- SPDX-License-Identifier: MIT
-- Names in a running daemon: what is asked of the resolver and what is not, and that nothing waits for one
-- that hangs.
local backend = require "backend"
local control = require "control"
local daemon = require "daemon"
local loop = require "loop"
local player = require "player"
local resolver = require "resolver"

-- A policy that asks for a url: what its caller is told is "200", or the code and the message.
local FETCH = [[
  local relay = require "relay"
  return {
    commands = {
      fetch = function(url, timeout)
        local response, message, code = relay.http { url = url, timeout = tonumber(timeout) }
        return response and tostring(response.status) or code .. " " .. message
      end,
      resolve = function(host, family)
        local address, message, code = relay.resolve(host, tonumber(family))
        return address or code .. " " .. message
      end,
    },
  }
]]

local function send_fetch(client, url, timeout)
  client:send("POST", "/v1/call", ('{"policy": "fetch", "verb": "fetch", "args": ["%s", "%s"]}'):format(url, timeout))
end

local function answer_of(client, seconds)
  local response
  loop.wait(function()
    response = client:take()
    return response
  end, "the end of a request", seconds)
  return response.body:match('"result":"(.-)"}') or response.body
end

local function fetch(server, url, timeout)
  local client = control.connect(server)
  send_fetch(client, url, timeout or 20)
  local text = answer_of(client, 30)
  client:close()
  return text
end

local function resolve(server, host, family)
  local client = control.connect(server)
  local response = client:request("POST", "/v1/call",
    ('{"policy": "fetch", "verb": "resolve", "args": ["%s", "%s"]}'):format(host, family or ""), 20)
  client:close()
  return response.body:match('"result":"(.-)"}') or response.body
end

local function options(names)
  return names:options { set = { control = "control.sock" }, policies = { "./fetch.lua" },
    files = { ["fetch.lua"] = FETCH } }
end

describe("lookup", function()
  it("asks no resolver when every address of the settings is a literal", function()
    local names = resolver.new()
    finally(function() names:close() end)
    daemon.with(names:options(), function(server)
      assert.equal(0, names:calls())
      assert.equal(0, server:metric("moonrelay_lookup_total", { kind = "resolver", result = "ok" }))
    end)
  end)

  it("finds listeners by name, and policies say where they are", function()
    local names = resolver.new { ["tcp.fleet"] = "127.0.0.2", ["udp.fleet"] = { "127.0.0.3", "::1" } }
    finally(function() names:close() end)
    daemon.with(names:options { control_pair = false, policies = { "./here.lua" }, files = { ["here.lua"] = [[
      local relay = require "relay"
      return {
        lookup = function(host, family, ev)
          relay.log.info("asked " .. host .. " " .. tostring(family) .. " " .. ev.op)
          if host == "web.fleet" then return "127.0.0.4" end
        end,
      }
    ]] }, set = { socket_host = "tcp.fleet", udp_host = "udp.fleet", http_host = "web.fleet" } }, function(server)
      assert.same({ "127.0.0.2", "127.0.0.3", "127.0.0.4" },
        { server.command.ip, server.registrar.ip, server.http.ip })
      local host, client = player.join(server), player.join(server)
      local pair = player.relay(client, host)
      pair.ip = "127.0.0.3"
      player.exchange(pair)
      assert.same({ 1, 1, 0 }, { names:calls("tcp.fleet"), names:calls("udp.fleet"), names:calls("web.fleet") })
      assert.is_truthy(server:stdout():find("asked udp.fleet nil listen", 1, true))
    end)
  end)

  it("refuses a start for a listener that has no address and says why", function()
    local names = resolver.new { ["slow.fleet"] = "again" }
    finally(function() names:close() end)
    for host, why in pairs { ["no.fleet"] = "Name or service not known",
      ["slow.fleet"] = "Temporary failure in name resolution" } do
      local result = daemon.run({ "serve", "--set", "socket_port=0", "--set", "http_port=0", "--set",
        "udp_registrar_port=0", "--set", "udp_relay_ports=0+3", "--set", "control=", "--set", "udp_host=" .. host },
        names:options())
      assert.equal(1, result.code)
      assert.is_truthy(result.stderr:find('udp_host = "' .. host .. '" cannot be looked up: ' .. host .. ": " .. why,
        1, true), result.stderr)
    end
  end)

  it("asks once for the name in a policy's request and not for an address in it", function()
    local names = resolver.new { ["a.fleet"] = "127.0.0.1" }
    finally(function() names:close() end)
    local web = backend.open(function() return { body = "hi" } end)
    local port = web.url:match("%d+$")
    daemon.with(options(names), function(server)
      assert.equal("200", fetch(server, web.url))
      assert.equal(0, names:calls())
      assert.equal("200", fetch(server, "http://a.fleet:" .. port))
      assert.same({ 1, 1 }, { names:calls(), names:calls("a.fleet") })
      assert.equal("a.fleet:" .. port, web.requests[2].headers.host)
      assert.equal("resolve b.fleet: Name or service not known", fetch(server, "http://b.fleet:" .. port))
      assert.equal(1, server:metric("moonrelay_lookup_total", { kind = "literal", result = "ok" }) - 3) -- listeners
      assert.equal(1, server:metric("moonrelay_lookup_total", { kind = "resolver", result = "ok" }))
      assert.equal(1, server:metric("moonrelay_lookup_total", { kind = "resolver", result = "not-found" }))
      assert.equal(2, server:metric("moonrelay_lookup_duration_seconds_count", {}))
    end)
  end)

  it("that hangs costs those who wait for that name their time and nobody else", function()
    local names = resolver.new { ["h.fleet"] = "hang" }
    finally(function() names:close() end)
    local web = backend.open(function() return { body = "hi" } end)
    local port = web.url:match("%d+$")
    daemon.with(options(names), function(server)
      local waiting = {}
      for i = 1, 6 do
        waiting[i] = control.connect(server)
        send_fetch(waiting[i], "http://h.fleet:" .. port, i == 6 and 1 or 60)
      end
      loop.wait(function() return names:calls() == 4 end, "four threads that hang")
      assert.equal("timeout h.fleet: no address within the timeout", answer_of(waiting[6], 20))
      -- Whoever has an address goes on: players, their commands, the registrar, requests, the page of figures.
      local pair = player.relay(player.join(server), player.join(server))
      player.exchange(pair)
      assert.equal("200", fetch(server, web.url))
      assert.equal(0, server:metric("moonrelay_lookup_total", { kind = "resolver", result = "ok" }))
      for i = 1, 5 do assert.equal("resolve h.fleet: no answer in time", answer_of(waiting[i], 30)) end
      player.exchange(pair)
      assert.equal(4, names:calls()) -- there is no fifth thread
      assert.equal(5, server:metric("moonrelay_lookup_total", { kind = "resolver", result = "timeout" }))
      assert.equal(1, server:metric("moonrelay_lookup_total", { kind = "resolver", result = "cancelled" }))
      names:set("h.fleet", "127.0.0.1")
      assert.equal("200", fetch(server, "http://h.fleet:" .. port))
      for _, client in ipairs(waiting) do client:close() end
    end)
  end)

  it("that hangs keeps no daemon from ending", function()
    local names = resolver.new { ["h.fleet"] = "hang" }
    finally(function() names:close() end)
    daemon.with(options(names), function(server)
      local client = control.connect(server)
      send_fetch(client, "http://h.fleet/", 60)
      loop.wait(function() return names:calls() == 1 end, "a thread that hangs")
      client:close()
    end)
  end)

  it("is what the policies say, then what an address is in itself, then what the resolver says", function()
    local names = resolver.new { ["self.fleet"] = "10.0.0.7", ["other.fleet"] = { "2001:db8::8", "10.0.0.8" } }
    finally(function() names:close() end)
    local opts = options(names)
    opts.policies = { "./fetch.lua", "./names.lua" }
    opts.files["names.lua"] = [[
      local relay = require "relay"
      return {
        lookup = function(host, family, ev)
          if host == "room.fleet" or host == "10.1.1.1" then return "127.0.0.9" end
          if host == "six.fleet" then return "::1" end
          if host == "no.fleet" then return nil, "no such room", "no-such-room" end
          if host == "bad.fleet" then error("as a policy does") end
          if host == "number.fleet" then return 7 end
          if host == "self.fleet" then return (relay.resolve("self.fleet")) end
        end,
      }
    ]]
    daemon.with(opts, function(server)
      server:allow("hook failed")
      assert.equal("127.0.0.9", resolve(server, "room.fleet"))
      assert.equal("127.0.0.9", resolve(server, "10.1.1.1", 4)) -- an address, too
      assert.equal("10.1.1.2", resolve(server, "10.1.1.2"))
      assert.equal("no-such-room no.fleet: no such room", resolve(server, "no.fleet"))
      assert.is_truthy(resolve(server, "bad.fleet"):find("^policy%-error bad%.fleet: "))
      assert.is_truthy(resolve(server, "number.fleet"):find("^policy%-error number%.fleet: "))
      assert.equal("::1", resolve(server, "six.fleet"))
      assert.is_truthy(resolve(server, "six.fleet", 4):find("^policy%-error six%.fleet: "))
      assert.equal(0, names:calls())
      assert.equal("10.0.0.7", resolve(server, "self.fleet")) -- what a hook asks itself goes past it
      assert.equal(1, names:calls())
      assert.equal("2001:db8::8", resolve(server, "other.fleet"))
      assert.equal("10.0.0.8", resolve(server, "other.fleet", 4))
      assert.equal("family ::1 is an IPv6 address and IPv4 is asked for", resolve(server, "::1", 4))
      assert.equal(4, names:calls()) -- the literal of the other family is the fourth
      -- Who answers is asked anew each time: another policy by a reload, then none.
      local client = control.connect(server)
      for _, text in ipairs { 'return { lookup = function() return "127.0.0.10" end }', "return {}" } do
        local file = assert(io.open(server.dir .. "/names.lua", "w"))
        file:write(text)
        file:close()
        client:reload()
        assert.equal(text == "return {}" and "10.0.0.7" or "127.0.0.10", resolve(server, "self.fleet"))
      end
      client:close()
      assert.equal(5, names:calls())
    end)
  end)
end)
