--[==[ ]] ]==] return { settings = { ["a"] = 1, b = [[
x]] ; c = "\"" } }