-- SPDX-License-Identifier: MIT
--
-- What editors with LuaLS know of policies: the module `relay`, the events, what hooks may return. It is
-- never run. Point `workspace.library` of .luarc.json at the folder that holds `relay/`. lua/README.md says
-- what everything means.
-- luacheck: ignore 211 212 241

---@meta relay

---@class relay.Address
---@field ip string
---@field port integer
---@field family 4|6
---@field net string # the address for IPv4, its /64 for IPv6
---@field text string # "1.2.3.4:5", "[::1]:5"

---@class relay.Session
---@field id string
---@field oid? string # nil in register
---@field ip string # of its TCP connection
---@field net string
---@field addr? relay.Address # as the registrar saw it
---@field tags table<string, string>
---@field meta table<string, string>
---@field since number
---@field joins integer

---@class relay.Relay
---@field id string # "51200.17"
---@field kind "player"|"dynamic"|"target"
---@field port integer
---@field target? relay.Address # kind target: where its flow goes
---@field addr relay.Address
---@field session? string # id of its player
---@field tags table<string, string>
---@field since number
---@field age number
---@field packets_in integer
---@field packets_out integer
---@field bytes_in integer
---@field bytes_out integer
---@field drops integer

---@class relay.Event
---@field now number # seconds since 1970
---@field id string
---@field tags table<string, string>
---@field meta table<string, string>

---@class relay.RegisterEvent: relay.Event
---@field session relay.Session

---@class relay.ConnectEvent: relay.Event
---@field from relay.Session
---@field to? relay.Session # nil: nobody has that oid
---@field oid string
---@field mode "connect"|"relay"
---@field via? "direct"|"relay" # how it would be without the policies

---@class relay.CreateEvent: relay.Event
---@field reason "connect"|"dynamic"|"script"|"api"
---@field addr relay.Address
---@field session? relay.Session
---@field peer? relay.Session

---@class relay.DropEvent: relay.Event
---@field reason "unknown_sender"|"not_paired"|"unknown_target"|"new_flow"
---@field sender relay.Address
---@field addr relay.Address # the same as sender
---@field port integer
---@field size integer
---@field known boolean # its address has, or had in 10 minutes, a session here
local DropEvent = {}

--- The first bytes of the datagram.
---@param n? integer # at most 64, which is the default
---@return string
function DropEvent:peek(n) end

---@class relay.LookupEvent: relay.Event
---@field host string # as it was given
---@field family? 4|6 # nil: either
---@field op "bind"|"connect"|"send"|"target"|"listen"|"http"|"resolve" # what for

---@class relay.DestroyedEvent: relay.Event
---@field reason "idle"|"lifetime"|"traffic"|"api"|"blocked"|"shutdown"
---@field addr relay.Address
---@field relay relay.Relay

---@class relay.ConnectedEvent: relay.Event
---@field from relay.Session
---@field to relay.Session
---@field oid string
---@field mode "connect"|"relay"
---@field via "direct"|"relay"

---@class relay.CreatedEvent: relay.Event
---@field reason "connect"|"dynamic"|"script"|"api"
---@field addr relay.Address
---@field session? relay.Session
---@field relay relay.Relay

---@class relay.LeftEvent: relay.Event
---@field reason "closed"|"reset"|"timeout"|"replaced"|"kicked"|"blocked"|"output"|"drained"
---@field session relay.Session

---@class relay.RegisterAnswer
---@field oid? string # 1 to 256 of visible ASCII
---@field takeover? boolean
---@field tags? table<string, string|number>
---@field slots? table<string, integer> # key = how many sessions may hold it

---@class relay.ConnectAnswer
---@field oid? string # another host
---@field via? "direct"|"relay"

---@class relay.Spec
---@field ttl? number # seconds
---@field idle? number # seconds
---@field rate? { pps?: number, bps?: number } # datagrams and BYTES a second
---@field max_bytes? number
---@field tags? table<string, string|number>
---@field slots? table<string, integer> # key = how many relays may hold it
---@field hold? { packets?: integer, bytes?: integer, ms?: number } # drop: of this flow, while it waits
---@field target? string # drop: "host:port" or "[IPv6]:port" that the flow goes on to

---@class relay.Refusal
---@field mute? number # seconds in which the flow asks nobody

---@alias relay.Found string|relay.Address|false|nil # an address; nil: next, or an error and its code follow

---@class relay.Policy
---@field api? 1
---@field load? fun(cfg: table)
---@field register? fun(ev: relay.RegisterEvent): relay.RegisterAnswer|false|nil, string?
---@field connect? fun(ev: relay.ConnectEvent): relay.ConnectAnswer|false|nil, string?
---@field create? fun(ev: relay.CreateEvent): relay.Spec|boolean|nil, string?
---@field drop? fun(ev: relay.DropEvent): relay.Spec|false|nil, string?, relay.Refusal?
---@field lookup? fun(host: string, family: 4|6|nil, ev: relay.LookupEvent): relay.Found, string?, string?
---@field connected? fun(ev: relay.ConnectedEvent)
---@field created? fun(ev: relay.CreatedEvent)
---@field destroyed? fun(ev: relay.DestroyedEvent)
---@field left? fun(ev: relay.LeftEvent)
---@field commands? table<string, fun(...: string): string|table|nil> # moonrelay call POLICY VERB ARGS

---@class relay
---@field log relay.Log
---@field json relay.Json
---@field crypto relay.Crypto
---@field settings table<string, string> # as `moonrelay settings` prints them; read-only
local relay = {}

---@class relay.Log
local log = {}

---@alias relay.Fields table<string, string|number|boolean> # keys of a-z 0-9 _, at most 32

---@param msg string
---@param fields? relay.Fields
function log.debug(msg, fields) end

---@param msg string
---@param fields? relay.Fields
function log.info(msg, fields) end

---@param msg string
---@param fields? relay.Fields
function log.warn(msg, fields) end

---@param msg string
---@param fields? relay.Fields
function log.error(msg, fields) end

--- Seconds since 1970.
---@return number
function relay.now() end

--- Seconds that never jump.
---@return number
function relay.monotonic() end

--- The family of an address's text, nil when it is none.
---@param text string
---@return 4|6|nil
function relay.isip(text) end

--- Waits.
---@param seconds number
function relay.sleep(seconds) end

--- Calls start(done) and waits until somebody, a timer or another hook, calls done(...).
---@param start fun(done: fun(...))
---@param timeout? number # seconds
---@return any ... # what done was given; nil, message and "timeout" when nobody called it
function relay.await(start, timeout) end

--- Calls fn once. Start timers in load: they end with their generation.
---@param seconds number
---@param fn fun() # may wait, 60 s at most
---@return fun() cancel
function relay.after(seconds, fn) end

--- Calls fn every so many seconds; a run that is due while the one before waits is left out.
---@param seconds number # 0.01 or more
---@param fn fun() # may wait, 60 s at most
---@return fun() cancel
function relay.every(seconds, fn) end

--- Percent-encodes all but A-Z a-z 0-9 - . _ ~.
---@param text string|number
---@return string
function relay.urlencode(text) end

---@class relay.Json
---@field null lightuserdata # a null in a list or alone; in an object it is an absent key
local json = {}

--- Raises for what JSON cannot say. An empty table is {}, see array. At most 32 deep, 20,000 values, 1 MiB.
---@param value any
---@return string
function json.encode(value) end

--- Integers beyond 2^53 come as text.
---@param text string
---@return any value # nil, message and code when it is no JSON
---@return string? message # "line 1 column 5: ..."
---@return "malformed"? code
function json.decode(text) end

--- Marks a list, so that it is written [] when it is empty.
---@generic T: table
---@param list? T
---@return T
function json.array(list) end

---@class relay.Crypto
local crypto = {}

---@param key string
---@param data string # at most 1 MiB, as all texts here
---@return string # 32 bytes; see hex and base64url
function crypto.hmac_sha256(key, data) end

---@param data string
---@return string # 32 bytes
function crypto.sha256(data) end

---@param data string
---@return string
function crypto.hex(data) end

---@param data string
---@return string # without padding
function crypto.base64url(data) end

--- Compares in a time that does not tell where they differ.
---@param a string
---@param b string
---@return boolean
function crypto.equal(a, b) end

---@param n integer # 1 to 1024
---@return string # n random bytes
function crypto.random(n) end

---@param n integer # 1 to 2^53
---@return integer # 1 to n, each as likely
function crypto.random_int(n) end

--- Verifies a JWT with exactly one key, whose type fixes the algorithm; exp and nbf without leeway.
---@param token any # what a player sent
---@param key { hs256: string }|{ eddsa: string } # eddsa: a public key as bytes, hex or base64url
---@return table? claims
---@return string? message
---@return "missing"|"malformed"|"signature"|"expired"|nil code
function crypto.jwt(token, key) end

---@class relay.Nets
local nets = {}

---@param ip string
---@return boolean
function nets:contains(ip) end

--- The value of the longest match, nil when there is none (or the text is no address).
---@param ip string
---@return any
function nets:get(ip) end

---@return integer
function nets:len() end

--- Networks: a list, a map from network to value, or text, one a line with an optional value behind it.
--- Parsed in C, which is not the hook's CPU time.
---@param list string[]|table<string, any>|string # raises when a table is wrong
---@return relay.Nets? nets # nil, message and code when a text is wrong
---@return string? message # "line 7: not a network: ..."
---@return "malformed"|"too-large"|nil code
function relay.cidr(list) end

--- The players that have all of the tags, the longest there first.
---@param tags? table<string, string|number>
---@param max? integer # no more than so many
---@return relay.Session[]
function relay.sessions(tags, max) end

---@param id string|relay.Session # or an oid
---@return relay.Session? session
---@return string? message
---@return "not-found"? code
function relay.session(id) end

---@param tags? table<string, string|number>
---@param max? integer # no more than so many
---@return relay.Relay[]
function relay.relays(tags, max) end

---@param id string|relay.Relay
---@return relay.Relay? relay
---@return string? message
---@return "not-found"? code
function relay.get(id) end

--- Ends a session: the player is sent `error session:REASON` and its relay ends.
---@param session string|relay.Session
---@param reason? string # the policy's name
---@return true? done
---@return string? message
---@return "not-found"? code
function relay.kick(session, reason) end

--- Ends a relay.
---@param id string|relay.Relay
---@param reason? string # the policy's name
---@return true? done
---@return string? message
---@return "not-found"? code
function relay.close(id, reason) end

---@class relay.Opening: relay.Spec # without hold
---@field peer string|relay.Address # "203.0.113.5:4000"
---@field port? integer # with a target: the open port that the peer sends to
---@field pair? string|relay.Relay # without: a relay that it becomes a pair with

--- A relay that shall be there: with a target a flow of the peer through an open port, else a relay for
--- its address. `create` is asked (reason `script`). One that is there already is taken as it is. Waits.
---@param spec relay.Opening
---@return relay.Relay? relay
---@return string? message
---@return string? code # rejected full no-ports blocked busy not-found own-address address-class low-port ...
function relay.open(spec) end

--- Sends `notice WORD` to a player.
---@param session string|relay.Session
---@param word string # 1 to 128 of visible ASCII, no spaces
---@return true? done
---@return string? message
---@return "not-found"? code
function relay.notify(session, word) end

--- Drains the server: who registers from now on cannot be joined, running games go on, every player is
--- sent `notice draining:SECONDS`. It ends when nobody is left, at the latest after so many seconds. Again:
--- another time.
---@param seconds number|false # 0 to 31622400; false: taken back
---@return true? done
---@return string? message
---@return "not-found"|"busy"|nil code # there is none to take back; it is stopping already
function relay.drain(seconds) end

---@class relay.Store
local store = {}

--- What the policy keeps by key, over reloads. Made at its first use.
---@param name string # 1 to 64 of A-Z a-z 0-9 . _ -
---@param options? { max?: integer, ttl?: number } # 10,000 entries; seconds from the first write: for ever
---@return relay.Store
function relay.store(name, options) end

---@param key string|number
---@return string|number|boolean|nil
function store:get(key) end

---@param key string|number
---@param value string|number|boolean|nil # nil deletes
---@return true? done
---@return string? message # "store full"
---@return "full"? code
function store:set(key, value) end

--- Only when the key is not there.
---@param key string|number
---@param value string|number|boolean
---@return boolean? done
---@return string? message
---@return "full"? code
function store:add(key, value) end

--- Adds to a number; a key that is not there counts as 0.
---@param key string|number
---@param by? number # 1
---@return number? sum
---@return string? message
---@return "full"? code
function store:incr(key, by) end

---@param key string|number
---@return boolean # was it there?
function store:del(key) end

---@return integer
function store:count() end

---@class relay.Limiter
local limiter = {}

--- Token buckets by key, over reloads: rate tokens a second, at most burst at once.
---@param name string # 1 to 64 of A-Z a-z 0-9 . _ -
---@param options { rate: number, burst?: number, max?: integer } # burst: a second's, at least 1; 10,000 keys
---@return relay.Limiter
function relay.limiter(name, options) end

---@param key string|number
---@param n? number # 1
---@return boolean? taken # nil: more than max keys are in use
---@return number|string|nil seconds # until it could be taken; a message when nil
---@return "full"? code
function limiter:take(key, n) end

--- A file below the config's folder (without a config: the working directory), at most 16 MiB. Waits.
---@param path string
---@return string? text
---@return string? message
---@return "not-found"|"outside"|"too-large"|"denied"|"failed"|"unavailable"|nil code
function relay.read(path) end

---@class relay.Request
---@field url string # http:// or https://
---@field method? string # GET, or POST when there is a body
---@field headers? table<string, string|number> # at most 32
---@field body? string # at most 1 MiB
---@field json? any # in place of body
---@field timeout? number # seconds for all of it: 5, at most 60
---@field max_bytes? integer # of the response's body: 1 MiB, at most 16 MiB

---@class relay.Response
---@field status integer
---@field headers table<string, string> # names in lower case
---@field body string

--- Asks over HTTP. Follows no redirects. Waits.
---@param request relay.Request
---@return relay.Response? response
---@return string? message
---@return "timeout"|"refused"|"resolve"|"tls"|"too-large"|"busy"|"failed"|"unavailable"|nil code
function relay.http(request) end

--- An address of a host, by the policies' lookup and then the built-in one. Waits.
---@param host string
---@param family? 4|6 # nil: either
---@return string? ip
---@return string? message
---@return string? code # not-found family timeout busy failed policy-error unavailable, or a policy's own
function relay.resolve(host, family) end

---@class relay.UdpOptions
---@field family? 4|6 # 4
---@field lookup? fun(host: string, family: 4|6, op: "bind"|"connect"|"send"): relay.Found, string?, string?

---@class relay.Udp
local udp = {}

--- A UDP endpoint; it is closed with its generation. nil when the policy has 32 of them.
---@param options? relay.UdpOptions
---@return relay.Udp? endpoint
---@return string? message
---@return "full"|"closed"|"failed"|"unavailable"|nil code
function relay.udp(options) end

--- Binds, by default to the wildcard and a port of the kernel's choice. Waits.
---@param host? string
---@param port? integer
---@return true? done
---@return string? message
---@return string? code
function udp:bind(host, port) end

--- From then on only that peer's datagrams come, and send() goes to it without a lookup. Waits.
---@param host? string # 127.0.0.1 or ::1; connect(port) will do
---@param port integer
---@return true? done
---@return string? message
---@return string? code
function udp:connect(host, port) end

--- Sends one datagram; binds first when it is not bound. Waits.
---@param data string
---@param host? string # 127.0.0.1 or ::1
---@param port? integer # none on a connected one
---@return true? done
---@return string? message
---@return string? code
function udp:send(data, host, port) end

--- Calls fn for each datagram that comes in, as a timer is called; nil takes it away. At most 64 calls
--- wait at once, then 256 datagrams or 256 KiB do, then they are dropped.
---@param fn? fun(data: string, addr: relay.Address)
---@return true? done
---@return string? message
---@return "closed"? code
function udp:on_message(fn) end

---@return relay.Address? address # where it is bound
---@return string? message
---@return "unbound"|"closed"|nil code
function udp:address() end

--- What came in, what of it was dropped for want of a handler or room, what waits for the handler.
---@return { received: integer, dropped: integer, waiting: integer }? stats
---@return string? message
---@return "closed"? code
function udp:stats() end

--- Whoever waits for it is told nil, "closed", "closed", and so is who uses it afterwards.
---@return true? done
---@return string? message
---@return "closed"? code
function udp:close() end

---@class relay.Metric
local metric = {}

--- On /metrics as moonrelay_policy_NAME{policy,label}, over reloads. Made at its first use; 32 a policy.
---@param name string # 1 to 48 of a-z 0-9 _
---@param kind "counter"|"gauge"
---@param help string
---@return relay.Metric
function relay.metric(name, kind, help) end

---@param n? number # 1; of a counter 0 or more
---@param label? string|number # 64 of them, then `other`
function metric:add(n, label) end

--- Of a gauge only.
---@param value number
---@param label? string|number
function metric:set(value, label) end

--- Refuses an address, a net, "ip:port" or all who have these tags, and ends who matches. nil when there are
--- 100,000 blocks.
---@param what string|table<string, string|number>
---@param seconds number # above 0; math.huge: for ever
---@param reason? string # the policy's name
---@return integer? ended # sessions, and relays without one
---@return string? message
---@return "full"? code
function relay.block(what, seconds, reason) end

---@param what string|table<string, string|number>
---@return integer # how many there were of exactly that
function relay.unblock(what) end

---@class relay.Block
---@field what? string # nil: a list
---@field nets? integer # of a list
---@field seconds? number # left; nil: for ever, or a list
---@field reason string
---@field by string # the policy's name, or "control"

---@return relay.Block[]
function relay.blocks() end

--- Replaces this policy's list of nets and ends who is in it. In `load` it counts from the swap on.
---@param list relay.Nets
---@param reason? string # the policy's name
---@return integer ended
function relay.blocklist(list, reason) end

return relay
