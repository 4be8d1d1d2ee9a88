-- SPDX-License-Identifier: MIT
-- The ban list of the running daemon, while its source is down, slow, answers HTML or has a bad line: no load without
-- a list, no moment without the last good one, and a game beside it that loses nothing.
local backend = require "backend"
local daemon = require "daemon"
local loop = require "loop"
local operator = require "operator"
local player = require "player"
local tcp = require "tcp"
local traffic = require "traffic"

local BAD = "127.66.80.1"
local LIST = "# cheaters\n127.66.80.0/24\n"

-- Whether the address is refused.
local function is_banned(server, ip)
  local client = tcp.connect(server.command.ip, server.command.port, { from = ip })
  if not client then return true end
  client:send("register-host\n")
  local line
  loop.wait(function()
    line = line or client:take_line()
    return line or client.ended
  end, "an answer or the end")
  client:close()
  return not line or line:find("^set%-oid") == nil
end

local function with(source, fn, opts)
  opts = operator.options(opts or {})
  opts.config = ([[return { policies = {
    { "bans", source = "%s", every = 1, timeout = 1 }, "dynamic" } }]]):format(source)
  opts.allow_log = { "refused, what was in use" }
  daemon.with(opts, function(server)
    local game = traffic.start(player.pair(server))
    fn(server)
    game:stop()
  end)
end

local BROKEN = {
  { "status 500", { status = 500, body = "down" } },
  { "line 1: not a network: <!doctype", { status = 200, type = "text/html", body = "<!doctype html><p>Sign in" } },
  { "line 2: not a network: 127.66.80.0/33", { status = 200, body = "127.0.0.99\n127.66.80.0/33\n" } },
  { "it is empty", { status = 200, body = "\n" } },
}

describe("a ban list", function()
  it("is there before the first decision, and kept when its source fails at a reload or a refresh", function()
    local source = backend.open(function() return { body = LIST } end)
    with(source.url .. "/bans", function(server)
      assert.is_true(is_banned(server, BAD))
      assert.is_false(is_banned(server, "127.66.81.1"))
      for _, case in ipairs(BROKEN) do
        source.answer = function() return case[2] end
        local said = operator.fails(server, "reload")
        assert.truthy(said:find(case[1], 1, true), said)
        assert.is_true(is_banned(server, BAD))
        -- The refresh of the generation in use has met the same, or will within a second.
        server:await_log(case[1])
        assert.is_true(is_banned(server, BAD))
      end
      source.answer = function() return { body = "127.66.81.0/24\n" } end
      loop.wait(function() return not is_banned(server, BAD) end, "the new list")
      assert.is_true(is_banned(server, "127.66.81.1"))
    end)
    source:close()
  end)

  it("is kept when its source is slow or away", function()
    local source = backend.open(function() return { body = LIST } end)
    with(source.url .. "/bans", function(server)
      source.answer = function() end
      local said = operator.fails(server, "reload")
      assert.truthy(said:find("source " .. source.url, 1, true), said)
      assert.is_true(is_banned(server, BAD))
      source:close()
      said = operator.fails(server, "reload")
      assert.truthy(said:find("source " .. source.url, 1, true), said)
      assert.is_true(is_banned(server, BAD))
      server:await_log("ban list kept")
      assert.is_true(is_banned(server, BAD))
    end)
  end)

  it("comes from a file as well, which names its bad line", function()
    with("bans.txt", function(server)
      assert.is_true(is_banned(server, BAD))
      operator.write(server, "bans.txt", LIST .. "not a net\n")
      local said = operator.fails(server, "reload")
      assert.truthy(said:find("bans.txt: line 3: not a network: not", 1, true), said)
      assert.is_true(is_banned(server, BAD))
      os.remove(server.dir .. "/bans.txt")
      operator.fails(server, "reload")
      assert.is_true(is_banned(server, BAD))
      operator.write(server, "bans.txt", "127.66.82.0/24\n")
      operator.does(server, "reload")
      assert.is_false(is_banned(server, BAD))
    end, { files = { ["bans.txt"] = LIST } })
  end)

  it("stops a start that cannot have it", function()
    local source = backend.open(function() return { status = 404, body = "" } end)
    local result = daemon.run({ "check", "moonrelay.lua" }, { files = { ["moonrelay.lua"] =
      ([[return { policies = { { "bans", source = "%s/bans" } } }]]):format(source.url) } })
    assert.are_not.equal(0, result.code)
    assert.truthy(result.stderr:find("status 404", 1, true), result.stderr)
    source:close()
  end)

  it("is told once and not at every reading", function()
    local source = backend.open(function() return { body = LIST } end)
    with(source.url .. "/bans", function(server)
      local function told() return select(2, server:stdout():gsub("list of blocked nets replaced", "")) end
      loop.wait(function() return #source.requests >= 4 end, "four readings")
      loop.wait(function() return told() == 1 end, "the first list in the log") -- which a thread of its own writes
      source.answer = function() return { body = "127.66.81.0/24\n" } end
      loop.wait(function() return is_banned(server, "127.66.81.1") end, "the new list")
      loop.wait(function() return told() == 2 end, "the new list in the log")
    end)
    source:close()
  end)

  it("ends what is there of whoever gets onto it, and nobody else's", function()
    with("bans.txt", function(server)
      local host, bad = player.join(server), player.join(server, { tcp_ip = "127.66.83.1" })
      local good = player.join(server, { tcp_ip = "127.66.84.1" })
      local one, two = player.relay(bad, host), player.relay(good, host)
      player.exchange(one)
      operator.write(server, "bans.txt", LIST .. "127.66.83.0/24\n")
      bad.tcp:expect("error session:blocked")
      player.exchange(two)
    end, { files = { ["bans.txt"] = LIST } })
  end)
end)
