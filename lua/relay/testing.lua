-- SPDX-License-Identifier: MIT
--
-- relay.testing: a whole relay in a busted spec, so that policies are tested by what players see. The
-- engine, the service and the policies are the daemon's own (in moonrelay_core.so, policies in their
-- sandbox); only sockets, time, files and the web are played. lua/README.md, "Testing a policy", is the
-- guide. Start reading at testing.new().
--
-- Every call lets everything happen that is due now and returns; what a policy waits for comes with
-- t:advance(). The core queues what happens (core:take()); pump() hands each of it to a function of
-- `on`, so that results are filled in no matter which call brought them about.

local core = require "moonrelay_core"

local testing = { version = core.version }

---@class relay.testing.Result
---@field ok boolean
---@field code? string # PROTOCOL.md's code of a refusal: "rejected", "full", "blocked" ...
---@field reason? string # what is behind it: a policy's reason, the key of a slot that is full
---@field pending boolean # a policy waits: t:advance() goes on, and this table is filled in then

---@class relay.testing.Player: relay.testing.Result
---@field session? relay.Session # as it is now; after its end as it was
local Player = {}

---@class relay.testing.Connect: relay.testing.Result
---@field via? "direct"|"relay"
---@field relay? relay.Relay # the client's: its port is what the host sends to
---@field host_relay? relay.Relay

---@class relay.testing.Drop: relay.testing.Result
---@field spec? relay.Spec # what the policies granted
---@field relay? relay.Relay # the sender's
---@field replayed integer # how many of the datagrams were forwarded once they were admitted
---@field overflow integer # how many found no room while the policies thought

---@class relay.testing.Log
---@field level "debug"|"info"|"warn"|"error"
---@field policy? string
---@field msg string
---@field fields table<string, string|number|boolean>
---@field area string

---@class relay.testing.Request
---@field method string
---@field url string
---@field headers table<string, string>
---@field body string
---@field timeout number # seconds

---@class relay.testing.Response
---@field status? integer # 200
---@field headers? table<string, string>
---@field body? string
---@field delay? number # seconds until it is there
---@field error? "timeout"|"refused"|"resolve"|"tls"|"too-large"|"busy"|"failed" # there is none
---@field message? string # of the error

---@class relay.testing.Lookup: relay.testing.Result
---@field address? string # "10.4.4.4"
---@field err? string # one line that names the host
---@field op string # what policies see as ev.op

---@class relay.testing.Host
---@field [integer] string # addresses; the first one of the family is the answer
---@field delay? number # seconds until it is there; above 5 it is late

---@alias relay.testing.HostAnswer string|relay.testing.Host|false|nil
---@alias relay.testing.HostFunction fun(host: string, family: 4|6|nil): relay.testing.HostAnswer, string?

---@class relay.testing.Bench
---@field files table<string, string> # what relay.read and the config's `file` find
---@field http table<string, relay.testing.Response>|fun(req: relay.testing.Request): relay.testing.Response?
---@field hosts table<string, relay.testing.HostAnswer|relay.testing.HostFunction>|relay.testing.HostFunction
---@field lines table<string, string[]> # by session id: what the player was sent
---@field logs relay.testing.Log[]
---@field metrics table<string, { v: table<string, number>, value: number? }>
---@field requests relay.testing.Request[]
---@field generation integer # 0: nothing is loaded
---@field now number # seconds since 1970
---@field drained boolean # a drain is over: everybody was sent away
local Bench = {}

local DEFAULT_NOW, DEFAULT_SEED = 1700000000, 1
local ANSWERS_MAX = 1000 -- of one moment: a policy that asks the web in a loop without an end
local REQUESTS_MAX = 32 -- at once, as in the daemon
local LOAD_SECONDS_MAX = 60 -- of the clock: policies give up long before

-- ---- misuse ------------------------------------------------------------------------------------

-- Where this file was called from.
local function place()
  local here = debug.getinfo(1, "S").source
  for level = 2, 250 do
    local info = debug.getinfo(level, "Sl")
    if not info then break end
    if info.currentline > 0 and info.source ~= here then return info.short_src .. ":" .. info.currentline end
  end
  return "relay.testing"
end

local function misuse(message, ...)
  error(place() .. ": " .. message:format(...), 0)
end

local function unknown(what, name, names)
  local near = type(name) == "string" and core.suggest(name, names)
  misuse("%s has no %s%s", what, tostring(name),
    near and ("; did you mean " .. near .. "?") or (" (there is " .. table.concat(names, ", ") .. ")"))
end

local function check_type(what, value, ...)
  for i = 1, select("#", ...) do
    if type(value) == select(i, ...) then return value end
  end
  misuse("%s is a %s (a %s is expected)", what, type(value), table.concat({ ... }, " or a "))
end

local function check_options(what, options, names)
  if options == nil then return {} end
  check_type(what, options, "table")
  for key in pairs(options) do
    local is_known = false
    for _, name in ipairs(names) do is_known = is_known or name == key end
    if not is_known then unknown(what, key, names) end
  end
  return options
end

local function check_choice(what, value, names)
  for _, name in ipairs(names) do
    if value == name then return value end
  end
  unknown(what, value, names)
end

-- "1.2.3.4:5" as the relay writes it.
local function check_address(what, text)
  check_type(what, text, "string")
  local a, why = core.address(text)
  if not a then misuse("%s = %q: %s (an address with a port is expected)", what, text, why) end
  if a.port == 0 then misuse("%s = %q has no port", what, text) end
  return a
end

local function check_ip(what, text)
  check_type(what, text, "string")
  local a, why = core.address(text, true)
  if not a then misuse("%s = %q: %s (an address without a port is expected)", what, text, why) end
  return a
end

local function with_port(address, port)
  return (address.family == 6 and "[%s]:%d" or "%s:%d"):format(address.ip, port)
end

-- Words of a command: `key=value`, in the order of their keys.
local function words(meta)
  local list = {}
  for key, value in pairs(check_type("meta", meta or {}, "table")) do
    check_type("a key of meta", key, "string")
    check_type("meta." .. key, value, "string", "number")
    if not key:find("^[a-z][a-z0-9_]*$") or #key > 32 then
      misuse("meta.%s cannot be a word of a command (1 to 32 of a-z 0-9 _, a letter first)", key)
    end
    if tostring(value):find("[ \r\n]") then
      misuse("meta.%s = %q has a space or the end of a line in it: words have none", key, value)
    end
    list[#list + 1] = key .. "=" .. value
  end
  table.sort(list)
  return table.concat(list, " ")
end

-- ---- the config as text ------------------------------------------------------------------------

local RESERVED = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat return
  then true until while]]):gmatch("%a+") do RESERVED[word] = true end

local function write_number(n)
  if n ~= n then return "0/0" end
  if n == math.huge then return "1/0" end
  if n == -math.huge then return "-1/0" end
  return ("%.17g"):format(n)
end

local function write_key(key)
  if type(key) == "string" and key:find("^[%a_][%w_]*$") and not RESERVED[key] then return key end
  return "[" .. (type(key) == "number" and write_number(key) or ("%q"):format(tostring(key))) .. "]"
end

local write

local function write_table(value, depth)
  if depth > 50 then misuse("t:load: the table is nested too deep, or holds itself") end
  local list, n = {}, #value
  for i = 1, n do list[i] = write(value[i], depth + 1) end
  local named = {}
  for key, item in pairs(value) do
    if not (type(key) == "number" and key >= 1 and key <= n and key % 1 == 0) then
      named[#named + 1] = write_key(key) .. " = " .. write(item, depth + 1)
    end
  end
  table.sort(named)
  for _, item in ipairs(named) do list[#list + 1] = item end
  return "{\n" .. table.concat(list, ",\n") .. "\n}"
end

-- What a config cannot hold is written as what it is, so that the config's own check refuses it.
function write(value, depth)
  local kind = type(value)
  if kind == "string" then return ("%q"):format(value) end
  if kind == "number" then return write_number(value) end
  if kind == "boolean" then return tostring(value) end
  if kind == "table" then return write_table(value, depth) end
  if kind == "function" then return "function() end" end
  misuse("t:load: the table holds a %s", kind)
end

-- ---- players -----------------------------------------------------------------------------------

-- Results show sessions and relays as they are now, and after their end as they were last.
local views = { session = "session", relay = "relay", host_relay = "relay" }

local function view(result, field)
  local id = rawget(result, "_" .. field)
  if not id then return nil end
  local core_bench = result._bench._core
  local now = core_bench[views[field]](core_bench, id)
  local seen = result._seen
  seen[field] = now or seen[field]
  return seen[field]
end

local function result_type(methods)
  return {
    __index = function(result, key)
      if views[key] then return view(result, key) end
      return methods[key]
    end,
  }
end

local player_type, plain_type = result_type(Player), result_type({})

local function new_result(bench, kind)
  return setmetatable({ ok = false, pending = true, _bench = bench, _seen = {} }, kind or plain_type)
end

local function set_view(result, field, id)
  rawset(result, "_" .. field, id)
  view(result, field) -- seen, should it end at once
end

local function settle_result(result, code, reason)
  result.pending = false
  result.ok = code == nil
  result.code = code
  result.reason = reason ~= "" and reason or nil
end

--- The player's connection ends: "closed" (a FIN, the default), "reset", "timeout", "output".
---@param reason? "closed"|"reset"|"timeout"|"output"
function Player:leave(reason)
  check_choice("h:leave", reason or "closed", { "closed", "reset", "timeout", "output" })
  local bench = self._bench
  bench._core:leave(self._conn, reason or "closed")
  bench:_pump()
end

-- ---- what happens ------------------------------------------------------------------------------

local on = {}

function on.line(bench, h)
  local conn = bench._conns[h.id]
  conn.lines[#conn.lines + 1] = h.text
  conn.pid = h.text:match("^set%-pid (.*)$") or conn.pid
end

-- A command that was under way has no answer; what the last line says is why.
function on.closed(bench, h)
  local conn = bench._conns[h.id]
  local about, why = (conn.lines[#conn.lines] or ""):match("^error (%w+):(.*)$")
  conn.is_closed = true
  conn.code = about == "connection" and why or "closed"
  conn.reason = about == "session" and why or nil
  for _, entry in ipairs(conn.queue) do settle_result(entry.result, conn.code, conn.reason) end
  conn.queue = {}
end

function on.command(bench, h)
  local conn = bench._conns[h.id]
  local entry = table.remove(conn.queue, 1)
  settle_result(entry.result, h.code, h.reason)
  if not h.code then entry.succeed(bench, conn, entry.result, h) end
end

function on.knock(bench, h)
  local results = bench._flows[h.id] or {}
  bench._flows[h.id] = nil
  for _, result in ipairs(results) do
    settle_result(result, h.code, h.reason)
    if h.relay then
      set_view(result, "relay", h.relay)
      local relay = result.relay
      result.replayed = relay and relay.packets_in - h.packets or 0
      result.spec = h.spec
    end
  end
end

function on.log(bench, h)
  local fields = h.fields
  local policy = fields.policy
  fields.policy = nil
  local entry = { level = h.level, policy = policy, msg = h.msg, fields = fields, area = h.area }
  bench.logs[#bench.logs + 1] = entry
end

function on.http(bench, h)
  local request = { method = h.method, url = h.url, headers = h.headers, body = h.body, timeout = h.timeout }
  local errand = { job = h.id, request = request, max_bytes = h.max_bytes, due = 0 }
  local n = 0
  for _, other in ipairs(bench._errands) do n = n + (other.request and 1 or 0) end
  if n >= REQUESTS_MAX then
    errand.response = { error = "busy" } -- nobody is asked
  else
    bench.requests[#bench.requests + 1] = request
  end
  bench._errands[#bench._errands + 1] = errand
end

function on.read(bench, h)
  bench._errands[#bench._errands + 1] = { job = h.id, path = h.path, max_bytes = h.max_bytes, due = 0 }
end

function on.loaded(bench, h)
  bench._loaded = { error = h.error }
end

function on.lookup(bench, h)
  bench._errands[#bench._errands + 1] = { job = h.id, host = h.host, family = h.family, due = 0 }
end

function on.looked_up(bench, h)
  local result = bench._asked[h.id]
  bench._asked[h.id] = nil
  settle_result(result, h.code, h.error)
  result.address, result.err = h.address, h.error
end

function on.called(bench, h)
  local call = bench._calls[h.id]
  bench._calls[h.id] = nil
  if h.failed then
    settle_result(call, "failed", h.text)
  else
    settle_result(call)
    call.value = h.text
    if h.is_json then call.value = core.json(h.text) end
  end
end

function Bench:_pump()
  repeat
    local list = self._core:take()
    for _, h in ipairs(list) do on[h.kind](self, h) end
  until #list == 0
end

-- ---- the world outside -------------------------------------------------------------------------

local ERRORS = { "timeout", "refused", "resolve", "tls", "too-large", "busy", "failed" }

-- What the test's own function says; it may play, but not let time pass.
local function ask_test(bench, f, request)
  bench._is_asking = true
  local ok, response, why = pcall(f, request)
  bench._is_asking = false
  if not ok then error(response, 0) end
  return response, why
end

local function find_response(bench, request)
  local http = check_type("t.http", bench.http, "table", "function")
  local response = http
  if type(http) == "table" then response = http[request.url] end
  if type(response) == "function" then response = ask_test(bench, response, request) end
  if response == nil then
    return { error = "refused", message = ("t.http has no %s"):format(request.url) }
  end
  check_options("a response", response, { "status", "headers", "body", "delay", "error", "message" })
  check_type("delay of a response", response.delay or 0, "number")
  if response.error then check_choice("error of a response", response.error, ERRORS) end
  return response
end

local function answer_http(bench, errand)
  local response = errand.response
  local job, message = errand.job, response.message and tostring(response.message)
  local body = check_type("body of a response", response.body or "", "string")
  if errand.is_late then
    bench._core:answer_http(job, nil, "timeout", "no answer in time")
  elseif response.error then
    bench._core:answer_http(job, nil, response.error, message or response.error)
  elseif #body > errand.max_bytes then
    bench._core:answer_http(job, nil, "too-large", "the response is larger than max_bytes")
  else
    local status, headers = check_type("status of a response", response.status or 200, "number"), {}
    for name, value in pairs(response.headers or {}) do
      headers[tostring(name):lower()] = tostring(value)
    end
    bench._core:answer_http(job, status, headers, body)
  end
end

-- Whether a path leaves the folder that it starts in, as no file of the daemon's may.
local function leads_out(path)
  local depth = 0
  if path:sub(1, 1) == "/" then return true end
  for name in path:gmatch("[^/]+") do
    depth = depth + (name == ".." and -1 or name == "." and 0 or 1)
    if depth < 0 then return true end
  end
  return false
end

-- In the daemon's words.
local function answer_file(bench, errand)
  local path, job = errand.path, errand.job
  local files = check_type("t.files", bench.files, "table")
  local text = files[path] or files[path:gsub("^%./+", "")]
  if leads_out(path) then
    bench._core:answer_file(job, nil, "outside", path .. ": it leads out of its folder")
  elseif text == nil then
    bench._core:answer_file(job, nil, "missing", path .. ": no such file or directory")
  elseif #check_type("t.files[" .. path .. "]", text, "string") > errand.max_bytes then
    bench._core:answer_file(job, nil, "too-large", path .. ": it is too large")
  else
    bench._core:answer_file(job, text)
  end
end

-- What t.hosts says of a host: a list of addresses with its delay, or nil and why not.
local function find_host(bench, host, family)
  local found, why = check_type("t.hosts", bench.hosts, "table", "function"), nil
  if type(found) == "table" then found = found[host] end
  if type(found) == "function" then
    found, why = ask_test(bench, function() return found(host, family ~= 0 and family or nil) end)
  end
  if not found then
    -- What a resolver makes of a literal of the other family.
    if found == nil and not why and core.address(host, true) then return { host } end
    return nil, why and tostring(why) or ("%s: t.hosts has no such host"):format(host)
  end
  check_type("t.hosts[" .. host .. "]", found, "string", "table")
  if type(found) == "string" then return { found } end
  for key in pairs(found) do
    if type(key) ~= "number" then check_choice("t.hosts[" .. host .. "]", key, { "delay" }) end
  end
  check_type("delay of a host", found.delay or 0, "number")
  return found
end

-- The first address of the family, else the first.
local function choose_address(host, list, family)
  local first
  for _, text in ipairs(list) do
    local a = check_ip("an address of t.hosts[" .. host .. "]", text)
    if family == 0 or a.family == family then return text end
    first = first or text
  end
  return first
end

local function look_at_host(bench, errand)
  local list, why = find_host(bench, errand.host, errand.family)
  local address = list and choose_address(errand.host, list, errand.family)
  errand.response = { address = address, why = why or ("%s has no address"):format(errand.host) }
  if list and list.delay then errand.due = bench._core:clock() + math.ceil(math.max(list.delay, 0) * 1e9) end
end

local function answer_host(bench, errand)
  local response = errand.response
  if response.address then
    bench._core:answer_lookup(errand.job, response.address)
  else
    bench._core:answer_lookup(errand.job, nil, "not-found", response.why)
  end
end

-- Looks up what an errand will come to, and when.
local function look_at(bench, errand)
  if errand.path or errand.response then return end
  if errand.host then return look_at_host(bench, errand) end
  local response = find_response(bench, errand.request)
  local delay = response.delay or 0
  errand.is_late = delay > errand.request.timeout
  errand.response = response
  if delay > 0 then
    errand.due = bench._core:clock() + math.ceil(math.min(delay, errand.request.timeout) * 1e9)
  end
end

-- Answers what is due, or of that only one. Returns how many answers that were, and when the next one is due.
function Bench:_answer(only)
  local now, due, later, nearest = self._core:clock(), {}, {}, math.huge
  for _, errand in ipairs(self._errands) do
    local is_meant = not only or errand.job == only
    if is_meant then look_at(self, errand) end
    if is_meant and errand.due <= now then
      due[#due + 1] = errand
    else
      later[#later + 1] = errand
      nearest = math.min(nearest, errand.due)
    end
  end
  self._errands = later
  for _, errand in ipairs(due) do
    (errand.path and answer_file or errand.host and answer_host or answer_http)(self, errand)
    self:_pump()
  end
  return #due, nearest
end

-- Lets time pass until then, or until is_over() says so.
function Bench:_run(until_ns, is_over)
  local answers = 0
  if self._is_asking then misuse("time cannot pass while t.http or t.hosts is asked") end
  self:_pump()
  while true do
    local n, nearest = self:_answer()
    answers = answers + n
    if is_over() then return end
    if n == 0 or answers > ANSWERS_MAX then
      if self._core:clock() >= until_ns then return end
      self._core:step(math.min(until_ns, nearest))
      answers = 0
      self:_pump()
      if is_over() then return end
    end
  end
end

-- ---- loading -----------------------------------------------------------------------------------

local function never() return false end

local function load_source(bench, source)
  local ok, why = bench._core:load(source.path, source.text, check_type("t.files", bench.files, "table"))
  if ok then
    bench._loaded = false
    bench:_run(bench._core:clock() + LOAD_SECONDS_MAX * 1e9, function() return bench._loaded ~= false end)
    if not bench._loaded then misuse("t:load does not end") end
    why = bench._loaded.error
  end
  if not why then return true end
  if source.text then why = why:gsub("t:load:?%d*", (source.place:gsub("%%", "%%%%"))) end
  return nil, why
end

--- Loads a config: the table that a config file returns, in which { chunk = "return {...}" } is a policy as
--- well, or the path of a file. Paths in a table are relative to the working directory.
---@param config table|string
---@return true? ok, string? why # nil, "file:line: ...": what was loaded before goes on
function Bench:load(config)
  local source
  if type(config) == "string" then
    source = { path = config }
  else
    check_type("t:load", config, "table", "string")
    source = { path = "t:load", text = "return " .. write(config, 0), place = place() }
  end
  local ok, why = load_source(self, source)
  if ok then self._source = source end
  return ok, why
end

--- Loads again what was loaded last: files are read anew.
---@return true? ok, string? why
function Bench:reload()
  if not self._source then misuse("t:reload: nothing is loaded") end
  return load_source(self, self._source)
end

-- Without a load the chain is what it is without a config.
local function need_chain(bench)
  if bench.generation == 0 then
    local ok, why = bench:load {}
    if not ok then misuse("%s", why) end
  end
end

-- ---- what players and strangers do -------------------------------------------------------------

local function say(bench, conn, line, result, succeed)
  bench:_pump()
  if conn.is_closed then return settle_result(result, conn.code, conn.reason) end
  conn.queue[#conn.queue + 1] = { result = result, succeed = succeed }
  bench._core:input(conn.id, line .. "\n")
  bench:_pump()
end

local function joined(bench, conn, result, h)
  bench.lines[h.session] = conn.lines
  if conn.udp then
    bench._core:registrar(conn.udp, conn.pid)
  end
  set_view(result, "session", h.session)
end

-- A new address for those who name none: 10.77.0.1, 10.77.0.2, ...
local function draw_ip(bench)
  bench._drawn = bench._drawn + 1
  return core.address(("10.77.%d.%d"):format(bench._drawn / 250 % 250, bench._drawn % 250 + 1))
end

--- A player connects, registers, and is seen at the registrar.
---@param options? { ip?: string, udp?: string|false, meta?: table<string, string|number> }
---@return relay.testing.Player
function Bench:join(options)
  local o = check_options("t:join", options, { "ip", "udp", "meta" })
  local udp = o.udp and check_address("t:join: udp", o.udp)
  local ip = o.ip and check_ip("t:join: ip", o.ip) or udp or draw_ip(self)
  local line = "register-host " .. words(o.meta)
  need_chain(self)
  self._ports = self._ports % 20000 + 1
  local result = new_result(self, player_type)
  local id = self._core:accept(with_port(ip, 40000 + self._ports))
  local conn = { id = id, lines = {}, queue = {}, is_closed = id == nil,
    code = self.drained and "closed" or "too-many" }
  if o.udp ~= false then conn.udp = udp and udp.text or with_port(ip, 20000 + self._ports) end
  result._conn = id or "0"
  self._conns[result._conn] = conn
  say(self, conn, line, result, joined)
  return result
end

local function connected(_, _, result, h)
  result.via = h.is_relayed and "relay" or "direct"
  if h.relay then
    set_view(result, "relay", h.relay)
    set_view(result, "host_relay", h.host_relay)
  end
end

--- A player asks for a host.
---@param player relay.testing.Player
---@param oid string
---@param options? { mode?: "relay"|"connect", meta?: table<string, string|number> } # "relay" is the default
---@return relay.testing.Connect
function Bench:connect(player, oid, options)
  local o = check_options("t:connect", options, { "mode", "meta" })
  if getmetatable(player) ~= player_type or player._bench ~= self then
    misuse("t:connect: who connects is a result of this t:join (a %s was given)", type(player))
  end
  check_type("t:connect: the oid", oid, "string")
  if oid == "" or oid:find("[ \r\n]") then misuse("t:connect: %q cannot be an oid", oid) end
  local mode = check_choice("t:connect: mode", o.mode or "relay", { "relay", "connect" })
  local line = (mode == "relay" and "connect-relay " or "connect ") .. oid .. " " .. words(o.meta)
  local result = new_result(self)
  say(self, self._conns[player._conn], line, result, connected)
  return result
end

local function check_data(data)
  local list = type(data) == "table" and data or { data or "" }
  if #list == 0 then misuse("t:drop: data is an empty list") end
  for _, item in ipairs(list) do
    if #check_type("t:drop: data", item, "string") > 65507 then
      misuse("t:drop: a datagram has at most 65507 bytes")
    end
  end
  return list
end

--- Datagrams from an address arrive at one of our ports. The policies are always asked, also about a sender
--- who has been admitted or muted before. With a list of data they arrive one after the other, before anybody
--- has decided.
---@param options { sender: string, port: integer, data?: string|string[] }
---@return relay.testing.Drop
function Bench:drop(options)
  local o = check_options("t:drop", options, { "sender", "port", "data" })
  local sender = check_address("t:drop: sender", o.sender)
  local port = check_type("t:drop: port", o.port, "number")
  local data = check_data(o.data)
  if port % 1 ~= 0 or port < 1 or port > 65535 then
    misuse("t:drop: port = %s (1 to 65535 is expected)", port)
  end
  need_chain(self)
  local result = new_result(self)
  result.replayed, result.overflow = 0, 0
  local flow, verdict, overflow = self._core:knock(sender.text, port, data)
  if not verdict then misuse("t:drop: port %d is none of the relay's (udp_relay_ports)", port) end
  result.overflow = overflow
  if flow then
    self._flows[flow] = self._flows[flow] or {}
    table.insert(self._flows[flow], result)
  elseif verdict == "forward" then
    settle_result(result)
    result.replayed = #data - overflow
  else
    settle_result(result, verdict, verdict)
  end
  self:_pump()
  return result
end

local OPS = { "resolve", "bind", "connect", "send", "target", "listen", "http" }

--- The address of a host, as something of the relay would ask for it: through the hooks `lookup`, then a
--- literal is itself, then t.hosts. family nil: either.
---@param host string
---@param family? 4|6
---@param op? "resolve"|"bind"|"connect"|"send"|"target"|"listen"|"http" # "resolve"
---@return relay.testing.Lookup
function Bench:lookup(host, family, op)
  check_type("t:lookup: the host", host, "string")
  if host == "" or #host > 255 or host:find("%z") then
    misuse("t:lookup: a host has 1 to 255 bytes and no NUL")
  end
  if family ~= nil and family ~= 4 and family ~= 6 then
    misuse("t:lookup: family = %s (4, 6 or nil is expected)", tostring(family))
  end
  check_choice("t:lookup: op", op or "resolve", OPS)
  need_chain(self)
  if self._is_asking then misuse("nothing can be looked up while t.http or t.hosts is asked") end
  local result = new_result(self)
  result.op = op or "resolve"
  local id = self._core:ask(host, family or 0, result.op)
  self._asked[id] = result
  self:_pump()
  self:_answer(id) -- of the world only this: what policies wait for comes with time
  return result
end

--- Lets time pass: timers run, waits end, answers of the web and files arrive.
---@param seconds number
function Bench:advance(seconds)
  check_type("t:advance", seconds, "number")
  if not (seconds >= 0 and seconds < 1e6) then
    misuse("t:advance(%s): 0 to 999999 seconds are expected", seconds)
  end
  self:_run(self._core:clock() + math.floor(seconds * 1e9 + 0.5), never)
end

--- A command of a policy, as `moonrelay call` gives it. What it returns; nil and why when it failed; a result
--- with .pending (later .value) when it waits.
---@param policy string
---@param verb string
---@return any value, string? why
function Bench:call(policy, verb, ...)
  check_type("t:call: the policy", policy, "string")
  check_type("t:call: the verb", verb, "string")
  local args = { ... }
  for i = 1, select("#", ...) do
    args[i] = tostring(check_type("t:call: an argument", args[i], "string", "number"))
  end
  need_chain(self)
  self._last_call = self._last_call + 1
  local result = new_result(self)
  self._calls[tostring(self._last_call)] = result
  self._core:call(self._last_call, policy, verb, args)
  self:_pump()
  if result.pending then return result end
  if result.ok then return result.value end
  return nil, result.reason
end

--- Ends a relay, as the control socket would.
---@param relay string|relay.Relay
---@return true? ok, string? why
function Bench:close(relay)
  if type(relay) == "table" then relay = relay.id end
  check_type("t:close: the relay", relay, "string")
  need_chain(self)
  local ok = self._core:close_relay(relay)
  self:_pump()
  if ok then return true end
  return nil, "no relay " .. relay
end

--- Drains, as `moonrelay drain` does: who registers from now on cannot be joined. When the time is over, or
--- when nobody is left, everybody is sent away and `t.drained` is true. Again: another time. false: taken
--- back.
---@param seconds number|false
---@return true? ok, string? why
function Bench:drain(seconds)
  check_type("t:drain", seconds, "number", "boolean")
  if seconds ~= false and not (seconds ~= true and seconds >= 0 and seconds <= 31622400) then
    misuse("t:drain(%s): 0 to 31622400 seconds, or false, are expected", tostring(seconds))
  end
  need_chain(self)
  local ok, why = self._core:drain(seconds)
  self:_pump()
  if ok then return true end
  return nil, why
end

-- ---- metrics -----------------------------------------------------------------------------------

local function unescape(text)
  return (text:gsub("\\(.)", { n = "\n", ["\\"] = "\\", ['"'] = '"' }))
end

-- The values of a sample's labels, in their order, without the policy's name.
local function label_values(text)
  local list = {}
  for key, value in text:gmatch('([%w_]+)="(.-[^\\])"') do
    if key ~= "policy" then list[#list + 1] = unescape(value) end
  end
  return table.concat(list, ",")
end

local function find_metric(page, names, name)
  local found
  for line in page:gmatch("[^\n]+") do
    local sample, labels, value = line:match("^([%w_:]+){(.*)} (%S+)$")
    if not sample then
      sample, value = line:match("^([%w_:]+) (%S+)$")
    end
    local family = line:match("^# TYPE ([%w_:]+)")
    if family then names[#names + 1] = (family:gsub("^moonrelay_policy_", "")) end
    if family == name or sample == name then found = found or { v = {} } end
    if sample == name then
      local key = labels and label_values(labels) or ""
      found.v[key] = (found.v[key] or 0) + tonumber(value)
      if key == "" then found.value = found.v[key] end
    end
  end
  return found
end

local function new_metrics(bench)
  return setmetatable({}, {
    __index = function(_, name)
      need_chain(bench)
      local page, names = bench._core:metrics(), {}
      local found = find_metric(page, names, name)
        or find_metric(page, {}, "moonrelay_policy_" .. tostring(name))
      if not found then unknown("t.metrics", name, names) end
      return found
    end,
    __newindex = function() misuse("t.metrics is read-only") end,
  })
end

-- ---- the bench ---------------------------------------------------------------------------------

local FIELDS = {
  "load", "reload", "join", "connect", "drop", "advance", "call", "close", "files", "http", "lines", "logs",
  "metrics", "requests", "generation", "now", "lookup", "hosts", "drain", "drained",
}

local bench_type = {
  __index = function(bench, key)
    if key == "generation" then return rawget(bench, "_core"):generation() end
    if key == "now" then return rawget(bench, "_start") + (rawget(bench, "_core"):clock() - 1e9) / 1e9 end
    if Bench[key] ~= nil then return Bench[key] end
    if key == "drained" then return rawget(bench, "_core"):is_drained() end
    if type(key) == "string" and key:sub(1, 1) == "_" then return nil end
    unknown("t", key, FIELDS)
  end,
  __newindex = function(_, key)
    unknown("t", key, { "files", "http", "hosts" })
  end,
}

--- A relay of its own: nothing is shared with another one. It ends when nobody refers to it any more.
---@param options? { now?: number, seed?: integer, settings?: table<string, string|number|boolean> }
---@return relay.testing.Bench
function testing.new(options)
  local o = check_options("testing.new", options, { "now", "seed", "settings" })
  local now = check_type("testing.new: now", o.now or DEFAULT_NOW, "number")
  local seed = check_type("testing.new: seed", o.seed or DEFAULT_SEED, "number")
  if not (seed >= 0 and seed < 9e15) then misuse("testing.new: seed = %s (0 to 9e15 is expected)", seed) end
  local bench = {
    _core = core.bench { now = now, seed = seed },
    _start = now,
    _conns = {}, _flows = {}, _errands = {}, _calls = {}, _asked = {},
    _drawn = 0, _ports = 0, _last_call = 0, _loaded = false, _source = false, _is_asking = false,
    files = {}, http = {}, hosts = {}, lines = {}, logs = {}, requests = {},
  }
  bench.metrics = new_metrics(bench)
  for key, value in pairs(check_type("testing.new: settings", o.settings or {}, "table")) do
    check_type("testing.new: settings." .. tostring(key), value, "string", "number", "boolean")
    local ok, why = bench._core:set(tostring(key), tostring(value))
    if not ok then misuse("testing.new: %s", why) end
  end
  return setmetatable(bench, bench_type)
end

return testing
