-- SPDX-License-Identifier: MIT
-- The HTTP port: health, and clients that do not behave.
--
-- What is held here, and by which test:
--   /livez, /readyz, /healthz                             health_is_200_while_it_serves
--   /readyz sends no datagram to itself                   asking_for_health_sends_no_datagram
--   anything else                                         other_paths_and_methods_are_refused
--   slow and hostile clients                              slow_clients_do_not_keep_others_out
--                                                         a_customers_whole_64_of_ipv6_has_the_share_of_one_address
--                                                         bytes_that_are_no_http_are_refused
--   the HTTP listener's host                              (settings_spec)
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path

local daemon = require "daemon"
local http = require "http"
local loop = require "loop"
local network = require "network"
local player = require "player"
local tcp = require "tcp"

describe("the HTTP port", function()
  local server

  setup(function() server = daemon.start() end)
  teardown(function() server:stop() end)
  after_each(function() server:after_case() end)

  local function connect(from)
    return assert(tcp.connect(server.http.ip, server.http.port, { from = from }))
  end

  it("health_is_200_while_it_serves", function()
    for _, path in ipairs { "/livez", "/readyz", "/healthz" } do
      for _ = 1, 3 do assert.equal(200, server:get(path).status, path) end
      assert.equal(200, server:get(path, { method = "HEAD" }).status, path)
    end
  end)

  it("asking_for_health_sends_no_datagram", function()
    daemon.with({ control_pair = false }, function(mine)
      for _ = 1, 20 do mine:get("/readyz") end
      assert.equal(0, mine:metric("moonrelay_packets_total", { direction = "in" }))
      assert.equal(0, mine:metrics():sum("moonrelay_registrar_total"))
    end)
  end)

  it("other_paths_and_methods_are_refused", function()
    for _, path in ipairs { "/", "/metric", "/metrics/", "/metricsx", "/../metrics", "/v1/relays",
      "/%2e%2e/etc/passwd" } do
      assert.equal(404, server:get(path).status, path)
    end
    for _, method in ipairs { "POST", "PUT", "DELETE", "OPTIONS" } do
      local status = server:get("/metrics", { method = method }).status
      assert.is_true(status == 405 or status == 404, method .. " gives " .. status)
    end
    assert.equal(200, server:get("/metrics?name=x").status)
  end)

  it("requests_on_one_connection_are_answered_in_turn", function()
    local client = connect()
    client:send(("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"):rep(3)
      .. "GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    client:expect_end()
    local _, answers = client.buffer:gsub("HTTP/1%.1 200", "")
    assert.equal(4, answers)
  end)

  it("slow_clients_do_not_keep_others_out", function()
    local CROWD, TIMEOUT_S, ROOM_S = 200, 10, 20
    local slow = {}
    local function ask(from)
      return http.get(server.http.ip, server.http.port, "/metrics", { from = from }).status
    end
    for i = 1, CROWD do
      slow[i] = connect("127.0.5.1")
      slow[i]:send("G")
    end
    for _ = 1, 5 do assert.equal(200, ask "127.0.5.2") end
    player.exchange(player.pair(server))
    -- Refused, or closed by the clock: none of them ends by itself.
    loop.wait(function()
      for _, client in ipairs(slow) do
        if not client.ended then return false end
      end
      return true
    end, "the end of each of them", TIMEOUT_S + ROOM_S)
    assert.equal(200, ask "127.0.5.1")
    for _, client in ipairs(slow) do
      assert.equal("", client.buffer:match("200 OK") or "")
      client:close()
    end
  end)

  it("a_customers_whole_64_of_ipv6_has_the_share_of_one_address", function()
    local PLACES, SHARE = 24, 12
    for i = 1, PLACES do
      if not network.add_address6("\32\1\13\184\0\0\0\7\0\0\0\0\0\0\0" .. string.char(i)) then
        return pending("that takes a network of one's own, with IPv6")
      end
    end
    daemon.with({ set = { http_host = "::" } }, function(mine)
      local slow = assert(tcp.connect("::1", mine.http.port))
      slow:send("GET /li")
      local crowd = {}
      for i = 1, PLACES do
        crowd[i] = assert(tcp.connect("::1", mine.http.port, { from = ("2001:db8:0:7::%x"):format(i) }))
        crowd[i]:send("G")
      end
      loop.wait(function()
        local ended = 0
        for _, client in ipairs(crowd) do ended = ended + (client.ended and 1 or 0) end
        return ended == PLACES - SHARE
      end, "the end of all above the share")
      slow:send("vez HTTP/1.0\r\n\r\n")
      loop.wait(function() return slow.buffer:find(" 200 ", 1, true) end, "an answer")
      for _, client in ipairs(crowd) do client:close() end
      slow:close()
    end)
  end)

  it("bytes_that_are_no_http_are_refused", function()
    for _, bytes in ipairs { "\0\0\0\0\r\n\r\n", "register-host\r\n\r\n", string.rep("x", 100000) .. "\r\n\r\n" } do
      local client = connect()
      client:send(bytes)
      assert.equal(200, server:get("/livez").status)
      assert.is_nil(client.buffer:find("HTTP/1.1 200", 1, true))
      client:close()
    end
    for _, bytes in ipairs { "GET /" .. string.rep("a", 70000) .. " HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET /livez HTTP/1.1\r\n" .. ("X-Y: " .. string.rep("z", 1000) .. "\r\n"):rep(200) .. "\r\n",
      "GET /livez HTTP/9.9\r\n\r\n" } do
      local client = connect()
      client:send(bytes)
      loop.wait(function() return client.ended or client.buffer:find("\r\n", 1, true) end, "a refusal")
      assert.is_nil(client.buffer:find("HTTP/1.1 200", 1, true))
      client:close()
    end
    local hello = connect()
    hello:send("\22\3\1\2\0\1\0\1\252\3\3") -- TLS
    hello:finish()
    hello:close()
    for i = 1, 20 do
      local client = connect()
      client:send(("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"):sub(1, i * 2))
      client:reset()
    end
    -- So many at once from one address may have used up its share for a moment.
    loop.wait(function()
      local ok, response = pcall(server.get, server, "/livez")
      return ok and response.status == 200
    end, "an answer after twenty resets")
  end)

  it("a_client_that_does_not_read_the_page_costs_nothing_else", function()
    local lazy = {}
    for i = 1, 10 do
      lazy[i] = assert(tcp.connect(server.http.ip, server.http.port, { paused = true }))
      lazy[i]:send(("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"):rep(10))
    end
    assert.equal(200, server:get("/metrics").status)
    player.exchange(player.pair(server))
    for _, client in ipairs(lazy) do client:reset() end
    loop.turn()
  end)
end)
