-- SPDX-License-Identifier: MIT
--
-- Names become addresses by a table or a file, and what others become is remembered, so that a
-- thousand flows to one server ask the resolver once. Put it before the policies that look up
-- otherwise.
--
--     { "hosts", hosts = { ["db.fleet"] = "10.0.0.5", ["game.fleet"] = { "10.4.4.4", "10.4.4.5" } } }
--     { "hosts", file = "hosts.txt", others = false }
--     "hosts"
--
--   hosts              name = address, or a list of them that are given in turn
--   file               below the config file's folder, as /etc/hosts: an address and its names a line,
--                      # comments; a name may be on several lines
--   others = true      whether names that are in neither may be asked of the resolver
--   ttl = 60           seconds that an answer of the resolver is remembered, 1 to 86400
--   negative_ttl = 5   the same of a name that does not exist
--   max = 1000         how many names of each kind are remembered; more are asked again and again
--
-- Letters' case and a dot at the end do not matter. An address is passed on as it is. A name without an
-- address of the family fails with `not-found`; what the resolver fails with otherwise (timeout, busy) is
-- not remembered. The memory outlives a reload; the table and the file are read anew. What is in the
-- table or remembered costs a few us and nobody waits.

local relay = require "relay"
local options = require "relay.options"
local o, fixed, turn, found, missing

-- Keeps an address of a name by its family, and by 0 for who wants either.
local function add(name, ip, place)
  local family = relay.isip(tostring(ip))
  if not family then error(("%s: '%s' is no address"):format(place, tostring(ip)), 0) end
  name = tostring(name):lower():gsub("%.$", "")
  fixed[name] = fixed[name] or { [0] = {}, [4] = {}, [6] = {} }
  for _, key in ipairs { 0, family } do table.insert(fixed[name][key], ip) end
end

local function read(path)
  local text, err = relay.read(path)
  if not text then error(("file %s: %s"):format(path, err), 0) end
  local n = 0
  for line in (text .. "\n"):gmatch("([^\n]*)\n") do
    n = n + 1
    local ip, names = line:gsub("#.*", ""):match("^%s*(%S+)(.*)")
    for name in (names or ""):gmatch("%S+") do add(name, ip, ("file %s line %d"):format(path, n)) end
  end
end

local hosts = { api = 1 }

---@param cfg { hosts?: table<string, string|string[]>, file?: string, others?: boolean, ttl?: number }
function hosts.load(cfg)
  o = options(cfg, {
    hosts = { "table", default = {}, each = "string or table" },
    file = { "string" },
    others = { "boolean", default = true },
    ttl = { "number", default = 60, min = 1, max = 86400 },
    negative_ttl = { "number", default = 5, min = 1, max = 86400 },
    max = { "number", default = 1000, min = 1, max = 100000, whole = true },
  })
  fixed, turn = {}, {}
  for name, list in pairs(o.hosts) do
    if type(list) ~= "table" then list = { list } end
    for _, ip in ipairs(list) do add(name, ip, "hosts." .. tostring(name)) end
  end
  if o.file then read(o.file) end
  found = relay.store("found", { max = o.max, ttl = o.ttl })
  missing = relay.store("missing", { max = o.max, ttl = o.negative_ttl })
end

---@param host string
---@param family 4|6|nil
function hosts.lookup(host, family)
  if relay.isip(host) then return nil end
  local name = host:lower():gsub("%.$", "")
  local key = (family or 0) .. name
  if fixed[name] then
    local list = fixed[name][family or 0]
    turn[key] = (turn[key] or 0) % math.max(#list, 1) + 1
    if list[turn[key]] then return list[turn[key]] end
    return nil, ("%s has no IPv%s address"):format(host, family), "not-found"
  end
  if not o.others then return nil, host .. " is not among the hosts", "not-found" end
  local ip, err = found:get(key), missing:get(key)
  if ip then return ip end
  if err then return nil, err, "not-found" end
  local address, message, code = relay.resolve(host, family)
  if address then found:add(key, address) end
  if code == "not-found" then missing:add(key, message) end
  return address, message, code
end

return hosts
