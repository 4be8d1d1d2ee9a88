-- SPDX-License-Identifier: MIT
-- The scripting guide does what it says: every block of Lua in lua/README.md is written to the file that its first
-- line names and run here, every function of the module is in it, every command that it shows exists.
local ffi = require "ffi"
local shipped = require "shipped"
local testing = require "relay.testing"

ffi.cdef "int setenv(const char *name, const char *value, int overwrite);"

local guide = shipped.read("lua/README.md")
local dir

-- Blocks of a language, in order.
local function blocks(language)
  local list = {}
  for code in guide:gmatch("\n```" .. language .. "\n(.-)\n```") do list[#list + 1] = code end
  return list
end

local files = {} -- by name
for _, code in ipairs(blocks "lua") do
  local name = code:match("^%-%- ([%w_/]+%.lua)\n")
  assert(name, "a block of Lua does not begin with its file's name: " .. code:sub(1, 60))
  assert(not files[name], "two blocks are named " .. name)
  files[name] = code .. "\n"
end

local function sh(command)
  local pipe = io.popen("(" .. command .. ") 2>&1; echo status $?")
  local out = pipe:read("*a")
  pipe:close()
  return out:match("^(.*)status (%d+)\n$")
end

local function write(name, text)
  local file = assert(io.open(dir .. "/" .. name, "wb"))
  file:write(text)
  file:close()
end

local used = {}
local function path(name)
  assert(files[name], "no block is named " .. name)
  used[name] = true
  return dir .. "/" .. name
end

-- A chain of one recipe, behind a policy that makes tags of what players say.
local TAGS = { name = "tags", chunk = [[
return { register = function(ev) return { tags = { user = ev.meta.user, game = ev.meta.game } } end }]] }

local function recipe(name, cfg)
  local entry = cfg or {}
  entry[1] = path("recipe/" .. name .. ".lua")
  local t = testing.new()
  assert(t:load { policies = { TAGS, entry, { "dynamic", from = "anyone" } } })
  return t
end

local port = 4000
local function join(t, meta, ip)
  port = port + 1
  return t:join { udp = (ip or "10.0.0.1") .. ":" .. port, meta = meta }
end

describe("lua/README.md", function()
  setup(function()
    dir = (sh("mktemp -d")):match("^(%S+)")
    sh("mkdir -p " .. dir .. "/example " .. dir .. "/recipe " .. dir .. "/targets" .. " " .. dir .. "/plain")
    for name, text in pairs(files) do write(name, text) end
  end)
  teardown(function() sh("rm -r " .. dir) end)

  for _, name in ipairs { "game_spec.lua", "testing_spec.lua" } do
    it("has a spec that passes: " .. name, function()
      path(name)
      local out, status = sh("cd " .. dir .. " && busted --lua=luajit " .. name)
      assert.equal("0", status, out)
      assert.truthy(out:find("0 failures / 0 errors", 1, true), out)
      assert.is_nil(out:find("^0 successes"), out)
    end)
  end

  it("has a first config that loads", function()
    ffi.C.setenv("TICKET_KEY", "sesame", 1)
    path "game.lua"
    assert(testing.new():load(path "moonrelay.lua"))
  end)

  it("has an example of a config that loads", function()
    write("example/mine.lua", "return { load = function(cfg) assert(cfg.names == 'a\\n') end }")
    write("example/new.lua", "return { register = function() return false end }")
    write("example/names.txt", "a\n")
    local t = testing.new()
    t.files["names.txt"] = "a\n"
    assert(t:load(path "example/moonrelay.lua"))
    assert.equal("ticket-missing", t:join({ ip = "10.0.0.1", udp = false }).reason)
  end)

  it("has open ports that send each client on to a game server", function()
    path "targets/front.lua"
    local t, seen = testing.new(), {}
    t.hosts["game-2.fleet"], t.hosts["chat.fleet"] = "10.4.4.2", "10.4.4.9"
    assert(t:load(path "targets/moonrelay.lua"))
    local function target(sender, to)
      local d = t:drop { sender = sender, port = to }
      t:advance(0)
      return d.ok and d.relay.target.text or d.reason
    end
    for i = 1, 20 do seen[target("203.0.113." .. i .. ":4000", 7777)] = true end
    assert.same({ ["10.4.4.1:7000"] = true, ["10.4.4.2:7000"] = true }, seen)
    assert.equal("10.4.4.9:9000", target("203.0.113.1:4000", 7778))
  end)

  it("has an example of an endpoint, which needs sockets", function()
    local ok, why = testing.new():load { policies = { { path "example/echo.lua" } } }
    assert.is_nil(ok)
    assert.truthy(why:find("echo.lua:6: not available here", 1, true), why)
  end)

  it("has a recipe that counts relays by game", function()
    local t = recipe("games", { max = { chess = 2, default = 4 } })
    local function pair(game)
      local h, c = join(t, { game = game }), join(t, { game = game })
      return t:connect(c, h.session.oid).code or "ok"
    end
    assert.same({ "ok", "full", "ok" }, { pair "chess", pair "chess", pair "go" })
    assert.same({ "ok", "ok", "full" }, { pair(), pair(), pair() })
  end)

  it("has a recipe that asks a backend", function()
    local t = recipe "match"
    local h, c = join(t, { user = "hanna" }), join(t, { user = "carl" })
    local function ask(response)
      t.http["https://backend.example/match"] = response
      local j = t:connect(c, h.session.oid, { mode = "connect" })
      t:advance(1.6)
      return j.reason or j.ok
    end
    assert.equal("match-refused", ask(nil))
    assert.is_true(ask { status = 200 })
    assert.equal("match-no", ask { status = 403 })
    assert.equal("match-timeout", ask { status = 200, delay = 5 })
    assert.equal('{"from":"carl","to":"hanna"}', t.requests[1].body)
  end)

  it("has a recipe against guessing", function()
    local t = recipe "guess"
    local h, c, got = join(t), join(t, nil, "10.0.0.9"), {}
    for _ = 1, 40 do
      local j = t:connect(c, "nobody", { mode = "connect" })
      got[j.reason or j.code] = (got[j.reason or j.code] or 0) + 1
    end
    assert.equal(10, got["unknown-oid"])
    assert.equal(20, got["too-fast"])
    assert.equal("blocked", t:join({ ip = "10.0.0.9", udp = false }).code)
    assert.is_true(t:connect(join(t), h.session.oid, { mode = "connect" }).ok)
    t:advance(601)
    assert.is_true(t:join({ ip = "10.0.0.9", udp = false }).ok)
  end)

  it("has a recipe that looks at a flow's first datagram", function()
    local t = recipe "knock"
    local h, c = join(t), join(t)
    local to = t:connect(c, h.session.oid).host_relay.port
    local d = t:drop { sender = "203.0.113.5:4000", port = to, data = "GAME hello" }
    assert.is_true(d.ok)
    assert.equal(20, d.spec.idle)
    assert.equal("no-game", t:drop({ sender = "203.0.113.5:4001", port = to, data = "hello" }).reason)
  end)

  it("has a recipe that tells players something", function()
    local t = recipe "news"
    local h = join(t, { game = "chess" })
    join(t)
    assert.equal("2 told", (t:call("news", "tell", "restart-in-10m")))
    local lines = t.lines[h.session.id]
    assert.equal("notice restart-in-10m", lines[#lines])
    assert.same({ chess = 1, none = 1 }, (t:call("news", "games")))
  end)

  it("has a program without the daemon that runs", function()
    local out, status = sh("luajit " .. path "plain/hello.lua")
    assert.equal("hello, moon\n", out)
    assert.equal("0", status)
  end)

  it("names every function and method of module moonrelay", function()
    local text = shipped.read("lua/moonrelay.lua")
    for name in text:gmatch("\nmoonrelay%.([%w_]+) = core%.") do
      assert.truthy(guide:find("moonrelay." .. name, 1, true), name)
    end
    for name in text:match("@class moonrelay.Udp\n(.-)\n\n"):gmatch("@field ([%w_]+) fun") do
      assert.truthy(guide:find("`u:" .. name .. "(", 1, true), name)
    end
  end)

  it("has no block of Lua that is not run here", function()
    for name in pairs(files) do assert.is_true(used[name], name) end
  end)

  it("shows the settings of the editor as they are in luarc.json", function()
    assert.same({ (shipped.read("lua/relay/luarc.json"):gsub("\n$", "")) }, blocks "json")
  end)

  it("names every function and method that editors know of", function()
    local meta = shipped.read("lua/relay/meta.lua")
    for name in meta:gmatch("\nfunction [%a]+[.:]([%w_]+)%(") do
      if name ~= "peek" then assert.truthy(guide:find("%f[%w_]" .. name .. "%f[^%w_]"), name) end
    end
  end)

  it("names every shipped policy and links nothing that is not there", function()
    for _, name in ipairs(shipped.names) do assert.truthy(guide:find("| `" .. name .. "` |", 1, true), name) end
    local anchors = {}
    for title in guide:gmatch("\n#+ ([^\n]+)") do anchors[title:lower():gsub("[^%w ]", ""):gsub(" ", "-")] = true end
    for anchor in guide:gmatch("%]%(#([^)]+)%)") do assert.is_true(anchors[anchor], anchor) end
  end)

  it("shows commands that exist", function()
    local help = sh("'" .. os.getenv("MOONRELAY_BIN") .. "' --help")
    for _, code in ipairs(blocks "sh") do
      for command in code:gmatch("\n?[%w_=]* ?moonrelay (%l+)") do
        assert.truthy(help:find("%f[%w]" .. command .. "%f[^%w]"), command .. "\n" .. help)
      end
    end
  end)
end)
