-- What luacheck holds all Lua of the project to. Policies see the sandbox's globals only.
std = "luajit"
max_line_length = 110
codes = true
self = false
files["tests"] = { std = "+busted" }
files["lua/policies"] = { std = "luajit" }
files["tests/e2e"] = { std = "+busted", max_line_length = 120 } -- names are sentences
files["tests/guards.lua"] = { max_line_length = 200 } -- guards are lines of C
files["scripts/guards.lua"] = { max_line_length = 120 }
files["tests/spec"] = { std = "+busted", max_line_length = 120 }
files["bench/floods.lua"] = { max_line_length = 120 }
files["bench/policies.lua"] = { max_line_length = 120 }
files["bench/lib"] = { max_line_length = 120 }
-- The config file's own words.
files["**/moonrelay.lua"] = { read_globals = { "env", "file" } }
