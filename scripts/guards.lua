-- SPDX-License-Identifier: MIT
--
-- Takes away each guard that tests/guards.lua lists, one at a time, and demands that the test which is to hold
-- it fails: a test that passes without its guard holds nothing. All of it happens in a copy of the tree, which
-- keeps its build. Run by scripts/guards, in the root of the tree. Start reading at run().

-- For one test alone: they take seconds, and without the guard some wait for what never comes.
local TEST_SECONDS = 120

local function fail(...)
  io.stderr:write("scripts/guards: ", string.format(...), "\n")
  os.exit(2)
end

local function read(path)
  local f = io.open(path, "rb")
  if not f then return nil end
  local text = f:read "*a"
  f:close()
  return text
end

local function quote(text) return "'" .. text:gsub("'", [['\'']]) .. "'" end

--- Runs a command of the shell. Returns its status and all that it wrote.
local function shell(command)
  local out = io.popen("{ " .. command .. "\n} 2>&1 </dev/null; echo \"=$?\"")
  local text, status = out:read("*a"):match "^(.*)=(%d+)\n$"
  out:close()
  return tonumber(status), text
end

local function plain(text) return (text:gsub("%p", "%%%0")) end

local function count(text, part)
  local n, at = 0, 1
  while true do
    local first, last = text:find(part, at, true)
    if not first then return n end
    n, at = n + 1, last + 1
  end
end

-- ---- the list --------------------------------------------------------------------------------------

--- The file that holds a test: unit/<layer>/<name>, spec/<name> or e2e/<name>, as ctest calls them.
local function test_file(test)
  local layer, name = test:match "^unit/([%w_]+)/([%w_]+)$"
  if layer then return ("tests/unit/%s/test_%s.c"):format(layer, name) end
  local kind
  kind, name = test:match "^(%l%w+)/([%w_]+)$"
  if kind == "spec" or kind == "e2e" then return ("tests/%s/%s_spec.lua"):format(kind, name) end
end

local function edits(entry)
  local all = { entry }
  for _, also in ipairs(entry.also or {}) do
    all[#all + 1] = { file = also.file or entry.file, find = also.find, put = also.put }
  end
  return all
end

--- What is wrong with an entry as it stands, or nil.
local function stale(entry)
  for _, field in ipairs { "about", "guard", "file", "find", "put", "test", "name" } do
    if type(entry[field]) ~= "string" then return "has no " .. field end
  end
  for _, edit in ipairs(edits(entry)) do
    local text = read(edit.file)
    if not text then return edit.file .. " is not there" end
    local n = count(text, edit.find)
    if n ~= 1 then return ("%s has this %d times, not once: %s"):format(edit.file, n, edit.find) end
    if edit.find == edit.put then return "puts what it finds" end
  end
  local path = test_file(entry.test)
  local text = path and read(path)
  if not text then return "there is no test " .. entry.test end
  local is_unit = entry.test:find "^unit/"
  -- A name that is made in a loop ends with what is different each time.
  local made = '"' .. (entry.name:match "^(.*: )" or "\0") .. '"'
  local there = is_unit and text:find("TEST%(" .. plain(entry.name) .. "%)")
    or not is_unit and (text:find('"' .. entry.name .. '"', 1, true) or text:find(made, 1, true))
  if not there then return ("%s has no test '%s'"):format(path, entry.name) end
end

local function is_wanted(entry, words)
  local text = table.concat({ entry.about, entry.guard, entry.file, entry.test, entry.name }, "\n"):lower()
  for _, word in ipairs(words) do
    if text:find(word:lower(), 1, true) then return true end
  end
  return #words == 0
end

-- ---- the copy --------------------------------------------------------------------------------------

local tree -- absolute path of the copy

--- Writes only what differs, so that nothing is built again for having been copied.
local function put_file(path, text)
  if read(tree .. "/" .. path) == text then return end
  local f = io.open(tree .. "/" .. path, "wb")
  if not f then
    shell("mkdir -p " .. quote((tree .. "/" .. path):match "^(.*)/"))
    f = assert(io.open(tree .. "/" .. path, "wb"))
  end
  f:write(text)
  f:close()
end

--- All files below a folder but for what was built there.
local function files_of(root)
  local _, listed = shell("cd " .. quote(root)
    .. " && find . '(' -path ./build -o -path ./.git ')' -prune -o -type f -printf '%P\\0'")
  return listed:gmatch "[^%z]+"
end

local function copy_tree()
  tree = os.getenv "PWD" .. "/build/guards"
  local is_source = {}
  for path in files_of "." do
    is_source[path] = true
    put_file(path, read(path))
  end
  shell(("chmod +x %s/scripts/* %s/.ci/*"):format(quote(tree), quote(tree)))
  for path in files_of(tree) do
    if not is_source[path] then os.remove(tree .. "/" .. path) end
  end
end

-- ---- building and running --------------------------------------------------------------------------

--- Without -Werror: what only the guard used is allowed to be left over.
local function build(test)
  local layer, name = test:match "^unit/([%w_]+)/([%w_]+)$"
  local targets = layer and ("unit_%s_%s"):format(layer, name) or "moonrelay mr_lua"
  if test:find "^e2e/" then
    local _, found = shell("ls " .. quote(tree) .. "/tests/e2e/ | sed -n 's/\\.c$//p'")
    for preload in found:gmatch "%S+" do targets = targets .. " e2e_" .. preload end
  end
  return shell(("CMAKE_ARGS=-DMR_WERROR=OFF %s/scripts/build dev --target %s"):format(quote(tree), targets))
end

--- The strings of a JSON array that stands behind `key` in ctest's answer, where neither is nested.
local function strings(json, key)
  local list = {}
  local array = json:match('"' .. key .. '"%s*:%s*(%b[])') or json:match('"' .. key .. '",%s*"value"%s*:%s*(%b[])')
  for text in (array or ""):gsub('\\"', "\1"):gmatch '"([^"]*)"' do
    list[#list + 1] = text:gsub("\1", '"'):gsub("\\(.)", "%1")
  end
  return list
end

--- Runs one test of a program or file as ctest would run all. Returns "passes", "fails" or what else happened,
--- and the output. It has the process group of timeout(1), which ends whatever is left of it.
local function run_test(entry)
  local dir = quote(tree .. "/build/dev")
  local _, json = shell(("ctest --test-dir %s --show-only=json-v1 -R '^%s$'"):format(dir, entry.test))
  local command = strings(json, "command")
  if #command == 0 then return "ctest knows no test " .. entry.test, json end
  -- busted starts itself again through a shell and quotes nothing, so there is no space in the pattern.
  local pattern = plain(entry.name):gsub("%s", ".") .. "$"
  command[#command + 1] = entry.test:find "^unit/" and entry.name or "--filter=" .. pattern
  local words = {}
  for _, set in ipairs(strings(json, "ENVIRONMENT")) do words[#words + 1] = quote(set) end
  for _, word in ipairs(command) do words[#words + 1] = quote(word) end
  local status, output = shell(("cd %s && env timeout -k 5 %d env %s"):format(quote(tree), TEST_SECONDS,
    table.concat(words, " ")))
  if status == 77 then return "is skipped here", output end
  local passed, failed = false, false
  for line in output:gmatch "[^\n]+" do
    local is_it = line:sub(-#entry.name) == entry.name
    passed = passed or is_it and line:find "^ok "
    -- What must hold after every test is seen after this one, the only one.
    failed = failed or line:find "^not ok " and (is_it or line:find " after_each$" or line:find " teardown$")
  end
  if status == 0 then return passed and "passes" or "does not run", output end
  -- By a signal, a sanitizer or the clock it ends without a word, and nothing else ran.
  local is_fatal = status == 124 or status >= 128 or output:find "Sanitizer" or output:find "runtime error:"
  return (failed or is_fatal) and "fails" or "fails by another name", output
end

local function last_lines(text, n)
  local lines = {}
  for line in text:gmatch "[^\n]+" do lines[#lines + 1] = "  | " .. line end
  return table.concat(lines, "\n", math.max(1, #lines - n + 1))
end

local function replaced(text, edit)
  local first, last = text:find(edit.find, 1, true)
  return text:sub(1, first - 1) .. edit.put .. text:sub(last + 1)
end

--- Returns "held", or what is wrong and what was written.
local function without_guard(entry)
  local original = {}
  for _, edit in ipairs(edits(entry)) do
    local now = read(tree .. "/" .. edit.file)
    original[edit.file] = original[edit.file] or now
    put_file(edit.file, replaced(now, edit))
  end
  local result, output
  local status, log = build(entry.test)
  if status ~= 0 then
    result, output = "does not build without the guard", log
  else
    result, output = run_test(entry)
    result = result == "fails" and "held" or "the test " .. result .. " without the guard"
  end
  for path, text in pairs(original) do put_file(path, text) end
  return result, output
end

local function run(entries)
  copy_tree()
  local held, baseline = 0, {}
  for i, entry in ipairs(entries) do
    local key = entry.test .. ":" .. entry.name
    io.write(("%d/%d %s\n  %s [%s]\n"):format(i, #entries, entry.about, entry.guard, key))
    io.flush()
    local output
    if not baseline[key] then
      local status, log = build(entry.test)
      if status ~= 0 then fail("the tree does not build:\n%s", last_lines(log, 40)) end
      baseline[key], output = run_test(entry)
    end
    local result = "the test " .. baseline[key] .. " with the guard"
    if baseline[key] == "passes" then result, output = without_guard(entry) end
    held = held + (result == "held" and 1 or 0)
    io.write("  ", result, "\n")
    if result ~= "held" then io.write(last_lines(output or "", 40), "\n") end
    io.flush()
  end
  io.write(("guards: %d of %d held by their tests\n"):format(held, #entries))
  return held == #entries
end

local function check(entries)
  local ok, seen = true, {}
  for i, entry in ipairs(entries) do
    local problem = stale(entry)
    local key = not problem and table.concat({ entry.file, entry.find, entry.put, entry.name }, "\0")
    if key and seen[key] then problem = "is listed twice" end
    if key then seen[key] = true end
    if problem then
      io.write(("guards: entry %d (%s): %s\n"):format(i, tostring(entry.about), problem))
      ok = false
    end
  end
  return ok
end

-- ---- the command -----------------------------------------------------------------------------------

local only, words = nil, {}
for _, word in ipairs(arg) do
  if word == "--list" or word == "--check" then
    only = word
  else
    words[#words + 1] = word
  end
end

local entries = {}
for _, entry in ipairs(dofile "tests/guards.lua") do
  if is_wanted(entry, words) then entries[#entries + 1] = entry end
end
if #entries == 0 then fail("no guard has %s", table.concat(words, " or ")) end
if only == "--list" then
  for _, entry in ipairs(entries) do
    local where = ("  %s in %s\n  %s:%s"):format(entry.guard, entry.file, entry.test, entry.name)
    io.write(entry.about, "\n", where, "\n")
  end
  os.exit(0)
end
if not check(entries) then os.exit(1) end
if only == "--check" then
  io.write(("guards: %d are where the list says\n"):format(#entries))
  os.exit(0)
end
os.exit(run(entries) and 0 or 1)
