-- SPDX-License-Identifier: MIT
-- Floods over a real daemon while two pairs play, one at 1,000 datagrams a second, one at 60: what the pairs
-- notice, what the daemon needs, what becomes of every datagram. Run it by `scripts/bench floods [--quick]
-- [FLOOD...]`: forged, registrar, slow, expiry, limit, all without a name. It prints the tables of
-- bench/README.md. What sends is bench/flood.c. Start reading at the table `FLOODS`.
local root = os.getenv "MR_SOURCE_DIR" or "."
package.path = root .. "/tests/e2e/?.lua;" .. root .. "/bench/lib/?.lua;" .. package.path

local uv = require "luv"
local control = require "control"
local daemon = require "daemon"
local forge = require "forge"
local http = require "http"
local loop = require "loop"
local player = require "player"
local probe = require "probe"
local tcp = require "tcp"
local udp = require "udp"

local bin = os.getenv "MR_BINARY_DIR" or "build/release"
local is_quick = false

local function say(...) io.write(string.format(...), "\n") io.flush() end

-- ---- newcomers ----------------------------------------------------------------------------------

local NEWCOMER = "127.0.0.201"
local ASK_AGAIN_S, GIVE_UP_S = 0.1, 10 -- as netfox does

-- One who connects, asks for ids and shows his address: ms, or nil and how far he came.
local function join(server, counts)
  local began = uv.hrtime()
  local client, err = tcp.connect(server.command.ip, server.command.port, { from = NEWCOMER })
  if not client then return nil, err end
  client:send "register-host\n"
  local socket, pid, next_at = udp.open(NEWCOMER), nil, 0
  local answer = loop.try(function()
    for line in function() return client:take_line() end do
      pid = pid or line:match "^set%-pid (%S+)$"
      if line:find "^error" then return line end
    end
    if client.ended then return "closed" end
    if pid and loop.now() >= next_at then
      socket:send(pid, server.registrar.ip, server.registrar.port)
      counts.asked, next_at = counts.asked + 1, loop.now() + ASK_AGAIN_S
    end
    return socket:take()
  end, GIVE_UP_S)
  local took = (uv.hrtime() - began) / 1e6
  for _, one in ipairs { client, socket } do
    one:close()
    loop.keep(one)
  end
  loop.turn()
  if type(answer) == "table" then return took end
  return nil, answer or "silence"
end

local function scrape(server)
  local began = uv.hrtime()
  local ok, err = pcall(http.get, server.http.ip, server.http.port, "/metrics", { from = NEWCOMER })
  if not ok then return nil, tostring(err):find "no end" and "closed without an answer" or err end
  return (uv.hrtime() - began) / 1e6
end

-- Newcomers one after the other, two a second, until it is over. counts = { took =, refused =, asked = }.
local function meet_newcomers(server, arrive, counts, is_over)
  local next_at = 0
  while not is_over() do
    if loop.now() >= next_at then
      next_at = loop.now() + 0.5
      local took, err = arrive(server, counts)
      if took then
        counts.took[#counts.took + 1] = took
      else
        counts.refused, counts.why = counts.refused + 1, err
      end
    end
    probe.rest(0.02)
  end
end

-- ---- what floods --------------------------------------------------------------------------------

local function numbers(text)
  local found = {}
  for key, value in text:gmatch "(%S+)=(%S+)" do found[key] = tonumber(value) end
  return found
end

-- Adds up what the floods of all phases did.
local function add_up(sum, one)
  for key, value in pairs(one) do sum[key] = (sum[key] or 0) + value end
end

-- A program of bench/flood.c with these arguments, for so long or until it has sent what it was to.
local function attack(server, run, args, seconds, fds)
  local program, ends = probe.spawn(server, "flood", args, fds), loop.now() + seconds
  meet_newcomers(server, run.case.arrive or join, run.during,
    function() return loop.now() >= ends or program.has_ended() end)
  local did = numbers(program.stop())
  did.sent = did.sent - did.not_taken
  add_up(run.sent, did)
end

local serial = 0

-- Datagrams to relay ports, each from another source than any before.
local function attack_forged(server, run, rate, count, seconds, ports)
  local args = { "forged", tostring(rate), tostring(count), tostring(serial), "64" }
  serial = serial + 1.5e6
  for _, port in ipairs(ports) do args[#args + 1] = tostring(port) end
  attack(server, run, args, seconds)
end

local function forged_at_all(rate)
  return function(server, run, seconds) attack_forged(server, run, rate, 0, seconds, server.relay_ports) end
end

local function forged_at_the_pair(rate)
  return function(server, run, seconds)
    attack_forged(server, run, rate, 0, seconds, { run.game.host_port, run.game.client_port })
  end
end

local function junk(server, run, seconds)
  attack(server, run, { "junk", is_quick and "5000" or "100000", "0", is_quick and "100" or "4000",
    tostring(server.registrar.port) }, seconds)
end

local function slow(connections, addresses, port)
  return function(server, run, seconds)
    if is_quick then connections, addresses = math.min(connections, 50), math.min(addresses, 50) end
    attack(server, run, { "slow", tostring(connections), tostring(addresses), "5000",
      tostring(server[port].port) }, seconds)
  end
end

local function flood_the_limit(server, run, seconds)
  local flooder = run.flooder
  attack(server, run, { "plain", is_quick and "2000" or "50000", "0", "200", tostring(flooder.host_port) },
    seconds, { flooder.client.udp.handle:fileno() })
end

-- ---- relays that end at once --------------------------------------------------------------------

local RELAYS = 10000

local OPEN_DOOR = [[
return { drop = function(ev) return {} end, create = function() end }]]

local function with_timeout(timeout)
  return ([[return { settings = { udp_relay_timeout = %q }, policies = { "./open.lua", "dynamic" } }]])
    :format(timeout)
end

-- Strangers knock until there are so many relays.
local function fill(server, run)
  local wanted = (is_quick and 100 or RELAYS) + 4
  local knock = player.pair(server)
  wanted = wanted + 2
  local began, here = loop.now(), 0
  repeat
    attack_forged(server, { case = run.case, during = run.unused, sent = {} }, 2000, math.min(2000, wanted - here), 30,
      { knock.host_port })
    loop.try(function()
      here = server:metric "noray_relay_count"
      return here >= wanted or server:metric "moonrelay_held" == 0
    end, 5)
    assert(loop.now() - began < 90, "the relays of strangers are not made")
  until here >= wanted
  knock.host.udp:drain()
  run.relays = here
end

local function write_config(server, text)
  local file = assert(io.open(server.dir .. "/moonrelay.lua", "w"))
  file:write(text)
  file:close()
  local line = control.connect(server)
  line:reload()
  line:close()
end

-- A reload takes its own time, so the first one changes nothing and is looked at by itself.
local function reload(server, run)
  local before = probe.turns(server:metrics())
  write_config(server, with_timeout "1h")
  run.turn_of_reload = probe.longest_turn(before, probe.turns(server:metrics()))
end

local function expire(server, run, seconds)
  local began = loop.now()
  write_config(server, with_timeout "1s")
  probe.rest(0.2) -- a page of figures is a long turn of its own with so many ports
  loop.wait(function() return server:metric "noray_relay_count" <= 4 + 2 end, "the end of all relays", 30)
  run.sent.sent = run.relays - 4
  run.took_s = loop.now() - began
  meet_newcomers(server, join, run.during, function() return loop.now() >= began + seconds end)
end

-- ---- the floods ---------------------------------------------------------------------------------

local NO_POLICY = [[return { policies = {} }]]
local DYNAMIC = [[return { policies = { "dynamic" } }]] -- what is shipped: from registered players' addresses only
local ANYONE = [[return { policies = { { "dynamic", from = "anyone" } } }]]

local function forged(about, config, flood)
  return { name = "forged", about = about, is_forged = true, config = config, rounds = 2, seconds = 3,
    flood = flood }
end

local function slowly(about, flood, more)
  local case = { name = "slow", about = about, rounds = 1, seconds = 8, where = "tcp", flood = flood }
  for key, value in pairs(more or {}) do case[key] = value end
  return case
end

-- `about` is the row's name, `flood(server, run, seconds)` one phase of it, `seconds` its length, `rounds` how
-- many there are; `is_forged`: it needs a raw socket.
local FLOODS = {
  forged("forged sources, no policy", NO_POLICY, forged_at_all(170000)),
  forged("... with `dynamic`", DYNAMIC, forged_at_all(170000)),
  forged("... with `dynamic`, `from = \"anyone\"`", ANYONE, forged_at_all(170000)),
  forged("... at the pair's own two ports", DYNAMIC, forged_at_the_pair(100000)),
  forged("... as fast as it goes", DYNAMIC, forged_at_all(0)),
  { name = "registrar", about = "junk at the registrar, 4,000 sources", rounds = 2, seconds = 3, flood = junk,
    where = "registrar" },
  slowly("slow TCP, 6,000 from 6,000 addresses", slow(6000, 6000, "command")),
  slowly("... 10,000 from 10,000 addresses", slow(10000, 10000, "command")),
  slowly("... 2,000 from one address", slow(2000, 1, "command")),
  slowly("... 1,000 at HTTP from one address", slow(1000, 1, "http"), { arrive = scrape }),
  slowly("... 1,000 at HTTP from 1,000 addresses", slow(1000, 1000, "http"), { arrive = scrape, seconds = 12 }),
  { name = "expiry", about = "10,000 relays end at once", is_forged = true, rounds = 1, seconds = 3,
    where = "expiry", prepare = fill, first = reload, flood = expire,
    config = with_timeout "1h", files = { ["open.lua"] = OPEN_DOOR },
    set = { udp_relay_ports = "0+" .. RELAYS + 63, udp_relay_timeout = false, control = "control.sock",
      dynamic_per_address = "65536", dynamic_per_target = "65536", dynamic_share = "100", udp_buffer = "64kb" } },
  { name = "limit", about = "a relay at a global limit, ten play at 60 Hz", rounds = 2, seconds = 3,
    flood = flood_the_limit, players = 10,
    set = { udp_relay_max_global_traffic = tostring(11 * 12600), udp_relay_max_individual_traffic = "0" } },
}

-- ---- a run --------------------------------------------------------------------------------------

local function snapshot(server)
  return { page = server:metrics(), memory = server:memory(), fds = server:fds() }
end

local function pairs_of(server, run)
  local first = player.pair(server)
  run.game = first
  if not run.case.players then
    return { { first, us = 1000 }, { player.pair(server), us = 16667 } }
  end
  local list = { { first, us = 16667, bytes = 200 } }
  for i = 2, run.case.players do list[i] = { player.pair(server), us = 16667, bytes = 200 } end
  run.flooder = player.pair(server)
  run.flooder.host.udp.handle:recv_stop()
  return list
end

-- One phase of flood, with what the daemon's threads needed meanwhile.
local function flooded(run)
  return function(server)
    local cpu, began = probe.cpu(server), uv.hrtime()
    run.case.flood(server, run, is_quick and 0.3 or run.case.seconds)
    local after, took = probe.cpu(server), (uv.hrtime() - began) / 1e9
    run.memory = run.memory or server:memory()
    for who, s in pairs(after) do run.cpu[who] = (run.cpu[who] or 0) + s - cpu[who] end
    run.seconds = run.seconds + took
  end
end

local function quiet(run)
  return function(server)
    local ends = loop.now() + (is_quick and 0.2 or 2)
    meet_newcomers(server, run.case.arrive or join, run.quiet, function() return loop.now() >= ends end)
  end
end

-- Until no count moves any more.
local function settle(server)
  local last
  loop.try(function()
    local page = server:metrics()
    local now = page:value("moonrelay_packets_total", { direction = "in" }) + page:sum "moonrelay_drops_total"
      + page:sum "moonrelay_registrar_total" + page:value "noray_tcp_connections"
    local is_same = now == last and page:value "moonrelay_held" == 0
    last = now
    probe.rest(0.1)
    return is_same
  end, 20)
end

local function measure(case)
  local run = { case = case, sent = {}, cpu = {}, seconds = 0, load = daemon.read("/proc/loadavg"):match "^%S+" }
  for _, which in ipairs { "during", "quiet", "unused" } do run[which] = { took = {}, refused = 0, asked = 0 } end
  local set = { workers = "2" }
  for key, value in pairs(case.set or {}) do set[key] = value end
  daemon.with({ set = set, config = case.config, files = case.files, control_pair = false }, function(server)
    local played = pairs_of(server, run)
    if case.prepare then case.prepare(server, run) end
    local plan = { { "before", quiet(run) } }
    if case.first then table.insert(plan, 1, { "first", function() case.first(server, run) end }) end
    for i = 1, is_quick and 1 or case.rounds do
      plan[#plan + 1] = { "during", flooded(run) }
      plan[#plan + 1] = { i < case.rounds and not is_quick and "between" or "after", quiet(run) }
    end
    run.before = snapshot(server)
    local turns = probe.turns(run.before.page)
    run.rows, run.by_name, run.played = probe.measure(server, played, plan)
    settle(server)
    run.after = snapshot(server)
    run.longest_turn = probe.longest_turn(turns, probe.turns(run.after.page))
    if not case.where then run.closing = server:metric "moonrelay_held" end
  end)
  return run
end

-- ---- tables -------------------------------------------------------------------------------------

local function thousands(n)
  local text = ("%d"):format(n)
  while true do
    local with, changed = text:gsub("^(%d+)(%d%d%d)", "%1,%2")
    if changed == 0 then return with end
    text = with
  end
end

local function time(us)
  if us ~= us then return "-" end
  return us < 1000 and ("%.0f us"):format(us) or ("%.1f ms"):format(us / 1000)
end

-- All pairs of a row from `first` on as one; all rows of these names.
local function merge(run, names, first, last)
  local all = { took = {}, sent = 0, lost = 0 }
  for _, name in ipairs(names) do
    local row = run.by_name[name]
    for i = first, row and last or 0 do
      local one = row.pairs[i] or { took = {}, sent = 0, lost = 0 }
      all.sent, all.lost = all.sent + one.sent, all.lost + one.lost
      for _, took in ipairs(one.took) do all.took[#all.took + 1] = took end
    end
  end
  table.sort(all.took)
  return all
end

local QUIET = { "before", "between" }

local function print_pairs(runs)
  say("\n| flood | a second | lost before, during, after | 60 Hz | median | of quiet | 99 %% | of quiet "
    .. "| 99.9 %% | of quiet |")
  say "|---|---|---|---|---|---|---|---|---|---|"
  for _, run in ipairs(runs) do
    local last = run.case.players or 1
    local before, during, after = merge(run, QUIET, 1, last), merge(run, { "during" }, 1, last),
      merge(run, { "after" }, 1, last)
    local cells = {}
    for _, p in ipairs { 0.5, 0.99, 0.999 } do
      local was, is = probe.percentile(before.took, p), probe.percentile(during.took, p)
      cells[#cells + 1] = time(was) .. ", " .. time(is) .. " | " .. ("%.2f"):format(is / was)
    end
    local slow_pair = run.case.players and "" or (function()
      local one = merge(run, { "during" }, 2, 2)
      return ("%d of %d"):format(one.lost, one.sent)
    end)()
    say("| %s | %s | %d, %d, %d of %s | %s | %s |", run.case.about,
      run.case.where == "expiry" and "" or thousands((run.sent.sent or 0) / run.seconds), before.lost, during.lost,
      after.lost, thousands(during.sent), slow_pair, table.concat(cells, " | "))
  end
end

local function print_daemon(runs)
  say("\n| flood | control thread | workers | longest turn | memory | descriptors | newcomers, median, most "
    .. "| quiet |")
  say "|---|---|---|---|---|---|---|---|"
  for _, run in ipairs(runs) do
    local function newcomers(counts)
      table.sort(counts.took)
      local text = ("%s, %s"):format(time(probe.percentile(counts.took, 0.5) * 1000),
        time((counts.took[#counts.took] or 0 / 0) * 1000))
      if counts.refused > 0 then text = text .. (", %d not served (%s)"):format(counts.refused, counts.why) end
      return text
    end
    say("| %s | %.0f %% | %.0f %% | %s | %.1f, %.1f, %.1f MB | %d, %d | %s | %s |", run.case.about,
      100 * run.cpu.control / run.seconds, 100 * run.cpu.workers / run.seconds, run.longest_turn,
      run.before.memory / 1e6, run.memory / 1e6, run.after.memory / 1e6, run.before.fds, run.after.fds,
      newcomers(run.during), newcomers(run.quiet))
  end
end

-- What a family of counters has grown by, as { total, "label n" ... }.
local function growth(run, family, label)
  local total, list = 0, {}
  for _, sample in ipairs(run.after.page.samples) do
    if sample.name == family then
      local n = sample.value - (run.before.page:value(family, sample.labels) or 0)
      total = total + n
      if n ~= 0 then list[#list + 1] = { name = sample.labels[label], n = n } end
    end
  end
  table.sort(list, function(a, b) return a.n > b.n end)
  return total, list
end

local function spell(list)
  local words = {}
  for i, one in ipairs(list) do words[i] = one.name .. " " .. thousands(one.n) end
  return #words > 0 and table.concat(words, ", ") or "no drop"
end

local function grown(run, name, labels)
  return run.after.page:value(name, labels) - run.before.page:value(name, labels)
end

-- A line, and whether it comes out even.
local ACCOUNTS = {
  relays = function(run)
    local drops, list = growth(run, "moonrelay_drops_total", "reason")
    local received = grown(run, "moonrelay_packets_total", { direction = "in" })
    local forwarded = grown(run, "moonrelay_packets_total", { direction = "out" })
    local lost, sent = grown(run, "moonrelay_kernel_drops_total"), run.sent.sent + run.played
    return ("%s sent, %s of them by the pairs: %s received, %s lost in sockets' buffers; forwarded %s, %s"):format(
      thousands(sent), thousands(run.played), thousands(received), thousands(lost), thousands(forwarded),
      spell(list)), sent == received + lost and received == forwarded + drops
  end,
  registrar = function(run)
    local results, list = growth(run, "moonrelay_registrar_total", "result")
    local lost, sent = grown(run, "moonrelay_registrar_kernel_drops_total"),
      run.sent.sent + run.during.asked + run.quiet.asked
    return ("%s sent with %s bytes: %s lost in the socket's buffer, %s; %s bytes came back"):format(thousands(sent),
      thousands(run.sent.bytes), thousands(lost), spell(list), thousands(run.sent.answered_bytes)),
      sent == lost + results and run.sent.answered_bytes <= run.sent.bytes
  end,
  tcp = function(run)
    return ("%s connections begun, %s at once, %s ended by the server, %s bytes sent, %s came back"):format(
      thousands(run.sent.sent), thousands(run.sent.most), thousands(run.sent.ended), thousands(run.sent.bytes),
      thousands(run.sent.answered_bytes)), true
  end,
  expiry = function(run)
    return ("%s relays ended within %.1f s of the reload that did it; a reload that changes nothing: %s"):format(
      thousands(run.sent.sent), run.took_s, run.turn_of_reload), grown(run, "noray_relay_expired") >= run.sent.sent
  end,
}

local function print_accounts(runs)
  say ""
  local is_right = true
  for _, run in ipairs(runs) do
    local text, is_even = ACCOUNTS[run.case.where or "relays"](run)
    is_right = is_right and is_even
    say("- %s%s: %s.", is_even and "" or "NOT EVEN: ", run.case.about, text)
    if run.case.players then
      local least = 1
      for i = 1, run.case.players do
        local one = run.by_name.during.pairs[i]
        least = math.min(least, (one.sent - one.lost) / one.sent)
      end
      say("  Of what each of the ten sent, at least %.1f %% arrived.", 100 * least)
    end
  end
  return is_right
end

-- ---- main ---------------------------------------------------------------------------------------

local wanted = {}
for _, word in ipairs(arg) do
  if word == "--quick" then is_quick = true else wanted[word] = true end
end
local all, runs = next(wanted) == nil, {}
for _, case in ipairs(FLOODS) do
  if case.is_forged and not forge.is_allowed() then
    io.stderr:write(case.about, ": left out, forging a source needs root\n")
  elseif all or wanted[case.name] then
    local run = measure(case)
    runs[#runs + 1] = run
    io.stderr:write(("%s (load average %s)\n"):format(case.about, run.load))
  end
end
if #runs > 0 then
  say("Load average %s before, %s after; %s", runs[1].load, daemon.read("/proc/loadavg"):match "^%S+",
    os.date "!%Y-%m-%d %H:%M")
  print_pairs(runs)
  print_daemon(runs)
end
local is_right = print_accounts(runs)
if all or wanted.expiry then
  assert(os.execute(bin .. "/bench/bench_expiry " .. (is_quick and 5000 or 100000)) == 0, "bench_expiry failed")
end
os.exit(is_right and 0 or 1)
