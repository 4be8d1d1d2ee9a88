-- SPDX-License-Identifier: MIT
--
-- moonrelay for plain LuaJIT programs: UDP endpoints whose bind, connect and send take names or addresses,
-- and the lookup under them. No daemon, no policies: those have `require "relay"`. lua/README.md, "Without
-- the daemon", is the guide; what is called here is C (src/module/program.h). One program a lua_State.
--
-- A callback comes later than the call that it was given to, from run() or step(), and once; as cb(true) or
-- with an address, or as cb(nil, message, code). What it raises, run() or step() raises, with a traceback;
-- they may be called again then. Misuse raises at once.

local core = require "moonrelay_core"

---@alias moonrelay.Code
---| "not-found" # there is no such name
---| "family" # an address of the other family; the message names both
---| "timeout" # no answer within 5 s
---| "busy" # 256 names are waited for already, or 16,384 sends
---| "failed" # what a lookup raised or answered; the system
---| "address-in-use"
---| "denied" # the system does not allow it
---| "not-available" # no address of this machine
---| "unreachable"
---| "refused" # nobody listens at the connected peer; a lookup's error without a word of its own
---| "too-large"
---| "bound" # it is bound or connected already
---| "unbound"
---| "no-port" # a port from 1 to 65535 is needed
---| "closed"
---| "memory"
---| string # a lookup's own word

---@alias moonrelay.Done fun(ok: true?, message: string?, code: moonrelay.Code?)
---@alias moonrelay.Found fun(address: string?, message: string?, code: moonrelay.Code?)

---@alias moonrelay.Op "bind"|"connect"|"send"|"resolve"

--- Answers by what it returns (an address; nil and a message) or, having returned nothing, by done. It is
--- asked about every host, addresses and wildcards too.
---@alias moonrelay.Family 4|6|nil # nil: either
---@alias moonrelay.Lookup fun(host: string, family: 4|6|nil, op: moonrelay.Op, done: moonrelay.Found)
---@alias moonrelay.Resolver fun(host: string, family: moonrelay.Family, done: moonrelay.Found)

---@class moonrelay.Address
---@field ip string
---@field port integer
---@field family 4|6
---@field net string # the address for IPv4, its /64 for IPv6
---@field text string # "1.2.3.4:5", "[::1]:5"

---@class moonrelay.Counts
---@field literals integer # hosts that were addresses of their family: nobody was asked
---@field resolver integer # what the resolver was asked
---@field custom integer # what functions of Lua were asked
---@field ignored integer # second answers, and late ones

--- A UDP socket of one family. Lives without being referred to as long as something is due.
---@class moonrelay.Udp
---@field bind fun(self, host: string?, port: integer?, done: moonrelay.Done) # no host: the wildcard
---@field connect fun(self, host: string?, port: integer, done: moonrelay.Done) # or (port, done)
---@field send fun(self, data: string, host: string?, port: integer?, done: moonrelay.Done?)
---@field on_message fun(self, handler: fun(data: string, from: moonrelay.Address)?) # nil: no more
---@field address fun(self): moonrelay.Address?, string?, moonrelay.Code? # where it is bound
---@field close fun(self, done: moonrelay.Done?) # of all callbacks only this one comes then

---@class moonrelay.UdpOptions
---@field family? 4|6 # 4
---@field lookup? moonrelay.Lookup # its own; without one that of set_lookup(), or the default

local moonrelay = {}

---@type string
moonrelay.version = core.version

--- A new endpoint; it has no socket until it binds, connects or sends.
---@type fun(options: moonrelay.UdpOptions?): moonrelay.Udp
moonrelay.udp = core.udp

--- Calls back whatever is due and waits for the rest: returns when nothing is due any more, and no endpoint
--- that is bound has a handler for messages.
---@type fun()
moonrelay.run = core.run

--- For other loops: calls back what is due now, without waiting. Whether run() would go on.
---@type fun(): boolean
moonrelay.step = core.step

--- A file descriptor that is readable when step() has something to do.
---@type fun(): integer
moonrelay.fd = core.fd

--- The seconds after which step() has something to do anyway; nil: never.
---@type fun(): number?
moonrelay.timeout = core.timeout

--- An address of the host; family 4, 6 or nil: either; it may be left out.
---@type fun(host: string, family: moonrelay.Family, done: moonrelay.Found)
moonrelay.resolve = core.resolve

--- The same by the built-in lookup, never by a function of set_lookup(): an address is itself, the resolver
--- knows the rest.
---@type fun(host: string, family: moonrelay.Family, done: moonrelay.Found)
moonrelay.lookup = core.lookup

--- Whom all endpoints without a lookup of their own ask from now on, and resolve(); nil: the built-in one.
---@type fun(lookup: moonrelay.Lookup?)
moonrelay.set_lookup = core.set_lookup

--- Whom the built-in lookup asks about what is no address of the family from now on; nil: the system.
---@type fun(resolver: moonrelay.Resolver?)
moonrelay.set_resolver = core.set_resolver

--- What lookups came to so far.
---@type fun(): moonrelay.Counts
moonrelay.counts = core.counts

return moonrelay
