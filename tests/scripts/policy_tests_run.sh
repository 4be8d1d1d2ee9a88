#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# A policy's spec runs wherever moonrelay is: from a build, by scripts/lua-env, from an installation
# that was moved, and the module lies where Debian's LuaJIT looks. Run by ctest.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

expect() { # name, then a command that must succeed
  local name=$1 output
  shift
  if output=$("$@" 2>&1); then
    echo "ok $name"
  else
    printf 'not ok %s:\n%s\n' "$name" "$output"
    failed=1
  fi
}

mkdir -p "$work/specs/below"
cat >"$work/specs/below/my_spec.lua" <<'END'
local testing = require "relay.testing"
it("loads a policy from the working directory", function()
  local t = testing.new {}
  assert(t:load { policies = { "./my.lua" } })
  assert.equal("closed", t:join({}).reason)
end)
END
echo 'return { register = function() return false, "closed" end }' >"$work/specs/my.lua"
cat >"$work/wrong_spec.lua" <<'END'
it("is wrong", function() assert.equal(1, 2) end)
END

in_specs() { (cd "$work/specs" && "$@"); }
fails_with() { # status, word of stderr, command
  local rc=0 status=$1 word=$2
  shift 2
  "$@" >"$work/out" 2>&1 || rc=$?
  [ "$rc" -eq "$status" ] && grep -q "$word" "$work/out"
}

expect a_build_tests_what_is_below_the_working_directory in_specs "$MR_BINARY_DIR/moonrelay" test
expect a_build_tests_named_files in_specs "$MR_BINARY_DIR/moonrelay" test below/my_spec.lua
expect arguments_reach_busted_as_they_are in_specs "$MR_BINARY_DIR/moonrelay" test --filter="a policy from the"
expect a_failure_is_busteds_status fails_with 1 "is wrong" "$MR_BINARY_DIR/moonrelay" test "$work/wrong_spec.lua"

# The guide's first policy and the spec for it, as they stand there.
mkdir "$work/guide"
block() { # first line's beginning: the code block that begins so
  awk -v begin="$1" '/^```/ { inside = 0; next }
    index($0, begin) == 1 { inside = 1 } inside { print }' "$MR_SOURCE_DIR/lua/README.md"
}
guide() {
  cd "$work/guide"
  awk '/^```lua/ { n++; next } /^```/ { if (n == 1) exit; next } n == 1 { print }' \
    "$MR_SOURCE_DIR/lua/README.md" >game.lua
  block "-- game_spec.lua" >game_spec.lua
  [ -s game.lua ] && [ -s game_spec.lua ]
  "$MR_BINARY_DIR/moonrelay" test
}
expect the_guides_spec_of_the_guides_policy_passes guide

# A program that does nothing stands for the one that is there.
mkdir "$work/none" "$work/half"
ln -s /bin/true "$work/half/luajit"
without() {
  local rc=0
  (PATH=$1 exec "$MR_BINARY_DIR/moonrelay" test) >"$work/out" 2>&1 || rc=$?
  [ "$rc" -eq 1 ] && grep -qF "$2" "$work/out"
}
expect without_luajit_the_package_is_named without "$work/none" "test needs luajit"
expect without_busted_the_package_is_named without "$work/half" "(Debian: lua-busted)"

by_lua_env() {
  cd "$work/specs"
  eval "$("$MR_SOURCE_DIR/scripts/lua-env" "${MR_BINARY_DIR##*/}")"
  busted --lua=luajit below/my_spec.lua
}
if [ "$MR_BINARY_DIR" = "$MR_SOURCE_DIR/build/${MR_BINARY_DIR##*/}" ]; then
  expect lua_env_lets_busted_find_the_module by_lua_env
fi
expect lua_env_refuses_a_preset_it_does_not_know fails_with 2 nonsense "$MR_SOURCE_DIR/scripts/lua-env" nonsense

cmake --install "$MR_BINARY_DIR" --prefix "$work/local" >/dev/null
cmake --install "$MR_BINARY_DIR" --prefix "$work/usr" >/dev/null
mv "$work/local" "$work/moved"
expect the_module_is_where_luajit_looks_below_usr_local test -e "$work/moved/lib/lua/5.1/moonrelay_core.so"
looked_for_below_usr() {
  local file
  file=$(find "$work/usr" -name moonrelay_core.so)
  luajit -e 'io.write((package.cpath:gsub("%?", "moonrelay_core")))' | grep -qF "/usr${file#"$work/usr"}"
}
expect the_module_is_where_luajit_looks_below_usr looked_for_below_usr
expect an_installation_tests_after_it_was_moved in_specs "$work/moved/bin/moonrelay" test
without_the_daemon() {
  local out
  out=$(LD_PRELOAD=$(cat "$MR_BINARY_DIR/preload") ASAN_OPTIONS=detect_leaks=0 \
    LUA_PATH="$work/moved/share/lua/5.1/?.lua" LUA_CPATH="$work/moved/lib/lua/5.1/?.so" luajit -e '
      local moonrelay = require "moonrelay"
      moonrelay.resolve("127.0.0.1", 4, print)
      moonrelay.run()')
  [ "$out" = 127.0.0.1 ]
}
expect an_installation_serves_programs_without_the_daemon without_the_daemon

exit "$failed"
