#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Plants a violation of each rule in a copy of the tree and sees that the check names it, so that a
# check which checks nothing is noticed. Run by ctest.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# Without core's sources, which a check of purity compiles each time.
fresh() {
  rm -rf "$work/tree"
  mkdir "$work/tree"
  cp -r "$MR_SOURCE_DIR/src" "$work/tree/src"
  rm -f "$work"/tree/src/core/*.c
}

# caught NAME PATTERN COMMAND...: COMMAND fails and prints PATTERN.
caught() {
  local name=$1 pattern=$2 output
  shift 2
  if output=$("$@" 2>&1); then
    echo "not ok $name: the check passed"
    failed=1
  elif ! grep -qF -- "$pattern" <<<"$output"; then
    printf 'not ok %s: no "%s" in:\n%s\n' "$name" "$pattern" "$output"
    failed=1
  else
    echo "ok $name"
  fi
}

passes() {
  local name=$1 output
  shift
  if output=$("$@" 2>&1); then
    echo "ok $name"
  else
    printf 'not ok %s:\n%s\n' "$name" "$output"
    failed=1
  fi
}

layers=$MR_SOURCE_DIR/scripts/check-layers
symbols=$MR_SOURCE_DIR/scripts/check-symbols
style=$MR_SOURCE_DIR/scripts/check-style

plant() { # file text
  mkdir -p "$(dirname "$work/tree/src/$1")"
  printf '%b' "$2" >"$work/tree/src/$1"
}

passes the_tree_as_it_is_holds_its_layers "$layers" "$MR_SOURCE_DIR"

fresh
plant core/planted.c '#include "io/socket.h"\n'
caught core_that_includes_io_is_caught 'core may not include "io/socket.h"' "$layers" "$work/tree"

fresh
plant control/planted.c '#include "script/embedded.h"\n'
caught control_that_includes_script_is_caught 'control may not include "script/' "$layers" "$work/tree"

fresh
plant service/planted.c '#include "engine/worker.h"\n'
caught service_that_looks_into_the_engine_is_caught 'service may not include "engine/' \
  "$layers" "$work/tree"

fresh
plant service/planted.c '#include <uv.h>\n'
caught service_that_includes_libuv_is_caught 'service may not include <uv.h>' "$layers" "$work/tree"

fresh
plant engine/planted.c '#include <lua.h>\n'
caught an_engine_that_includes_lua_is_caught 'engine may not include <lua.h>' "$layers" "$work/tree"

fresh
plant core/planted.c '#include "address.h"\n'
caught an_include_that_is_not_from_src_is_caught 'written from src/' "$layers" "$work/tree"

fresh
plant core/planted.c '#include <sys/socket.h>\n'
caught core_that_includes_a_system_header_is_caught 'core may not include <sys/socket.h>' \
  "$layers" "$work/tree"

fresh
plant core/planted.c 'void *malloc(unsigned long);\nvoid *mr__planted(void);\nvoid *mr__planted(void)\n{\n    return malloc(3);\n}\n'
caught core_that_allocates_is_caught 'planted.c: calls malloc' "$layers" "$work/tree"

fresh
plant core/planted.c 'int getpid(void);\nint mr__planted(void);\nint mr__planted(void)\n{\n    return getpid();\n}\n'
caught core_that_makes_a_system_call_is_caught 'planted.c: calls getpid' "$layers" "$work/tree"

fresh
plant core/planted.c 'void *mr__alloc(unsigned long, unsigned long);\nvoid *mr__planted(void);\nvoid *mr__planted(void)\n{\n    return mr__alloc(3, 1);\n}\n'
caught core_that_allocates_through_the_seam_is_caught 'planted.c: calls mr__alloc' \
  "$layers" "$work/tree"

objects=$work/build/CMakeFiles/mr_core.dir/src/core
mkdir -p "$objects"
printf 'int mr__planted(void);\nint mr__planted(void)\n{\n    return 0;\n}\n' >"$work/planted.c"
"${CC:-gcc}" -c "$work/planted.c" -o "$objects/planted.c.o"
passes a_prefixed_symbol_passes "$symbols" "$work/build"

printf 'int planted;\n' >"$work/planted.c"
"${CC:-gcc}" -c "$work/planted.c" -o "$objects/planted.c.o"
caught a_global_without_prefix_is_caught 'planted has no prefix' "$symbols" "$work/build"

printf 'int mr__planted(void);\nint mr__planted(void)\n{\n    return 0;\n}\n' >"$work/planted.c"
"${CC:-gcc}" -c "$work/planted.c" -fPIC -o "$objects/planted.c.o"
"${CC:-gcc}" -shared "$objects/planted.c.o" -o "$work/build/libmoonrelay.so"
caught a_shared_library_that_shows_an_internal_name_is_caught 'libmoonrelay.so shows mr__planted' \
  "$symbols" "$work/build"

printf '__attribute__((visibility("hidden"))) int mr_planted = 1;\n' >"$work/planted.c"
"${CC:-gcc}" -c "$work/planted.c" -fPIC -o "$objects/planted.c.o"
"${CC:-gcc}" -shared "$objects/planted.c.o" -o "$work/build/libmoonrelay.so"
caught a_public_name_that_is_hidden_is_caught 'mr_planted looks public' "$symbols" "$work/build"

uv_objects=$work/build/CMakeFiles/mr_control.dir
mkdir -p "$uv_objects"
rm -f "$objects"/*.o "$work/build/libmoonrelay.so"
printf 'int mr_addr_equal(void);\nint mr_addr_equal(void)\n{\n    return 0;\n}\n' >"$work/planted.c"
"${CC:-gcc}" -shared -fPIC "$work/planted.c" -o "$work/build/libmoonrelay_uv.so"
"${CC:-gcc}" -c "$work/planted.c" -fPIC -o "$objects/planted.c.o"
caught a_uv_library_that_shows_a_name_of_the_engines_is_caught 'libmoonrelay_uv.so shows mr_addr_equal' \
  "$symbols" "$work/build"

printf '__attribute__((visibility("hidden"))) int mr_udp_planted = 1;\n' >"$work/planted.c"
"${CC:-gcc}" -c "$work/planted.c" -fPIC -o "$uv_objects/planted.c.o"
"${CC:-gcc}" -shared "$uv_objects/planted.c.o" -o "$work/build/libmoonrelay_uv.so"
caught a_public_name_that_the_uv_library_hides_is_caught 'mr_udp_planted looks public' \
  "$symbols" "$work/build"

rm "$uv_objects/planted.c.o"
"${CC:-gcc}" -shared "$objects/planted.c.o" -Wl,--no-as-needed -ljansson -o "$work/build/libmoonrelay_uv.so"
caught a_uv_library_that_needs_json_is_caught 'libmoonrelay_uv.so needs libjansson' \
  "$symbols" "$work/build"

caught an_empty_build_is_no_pass 'no objects' "$symbols" "$work/nothing"

fresh
mkdir -p "$work/tree/"{lua,tests,bench,scripts}
plant core/planted.c 'int x;\n'
caught a_file_without_its_licence_is_caught 'planted.c: does not open with the SPDX line' \
  "$style" "$work/tree"

fresh
plant core/planted.c "/* SPDX-License-Identifier: MIT */\nvoid f(void)\n{\n$(printf '    ;\\n%.0s' {1..70})}\n"
caught a_function_over_seventy_lines_is_caught '73 lines, at most 70' "$style" "$work/tree"

fresh
touch "$work/tree/left.out"
caught a_file_that_was_left_at_the_top_is_caught 'left.out: does not belong at the top' "$style" "$work/tree"

# The list itself names a guard and a test here; the runner looks only in the tree that it lies in.
guards() {
  rm -rf "$work/tree"
  mkdir -p "$work/tree/"{scripts,src,tests/unit/core}
  cp "$MR_SOURCE_DIR"/scripts/guards* "$work/tree/scripts"
  printf 'keep(1);\n%b' "$1" >"$work/tree/src/planted.c"
  printf 'TEST(%s)\n' "$2" >"$work/tree/tests/unit/core/test_planted.c"
  cat >"$work/tree/tests/guards.lua" <<'END'
return { { about = "a", guard = "b", file = "src/planted.c", find = "keep(1);", put = "", test = "unit/core/planted",
  name = "it_is_kept" } }
END
}
guards "" it_is_kept
passes a_guard_that_is_there_passes "$work/tree/scripts/guards" --check
guards 'keep(1);\n' it_is_kept
caught a_guard_that_is_in_two_places_is_caught 'src/planted.c has this 2 times' "$work/tree/scripts/guards" --check
guards "" it_was_renamed
caught a_guard_whose_test_is_gone_is_caught "has no test 'it_is_kept'" "$work/tree/scripts/guards" --check

# The runner itself, with a build of nothing and a ctest that knows one test.
mkdir "$work/bin"
cat >"$work/bin/ctest" <<END
#!/bin/sh
echo '{ "tests" : [ { "command" : [ "sh", "test.sh" ], "properties" : [ ] } ] }'
END
chmod +x "$work/bin/ctest"
runs() { # the program of the test
  guards "" it_is_kept
  printf '#!/bin/sh\n' >"$work/tree/scripts/build"
  chmod +x "$work/tree/scripts/build"
  printf '%s\n' "$1" >"$work/tree/test.sh"
  mkdir "$work/tree/.ci" && touch "$work/tree/.ci/run"
}
try='grep -q "keep(1)" src/planted.c || { echo "not ok it_is_kept"; exit 1; }; echo "ok it_is_kept"'
runs "$try"
passes a_guard_whose_test_fails_without_it_is_held env PATH="$work/bin:$PATH" "$work/tree/scripts/guards"
runs 'echo "ok it_is_kept"'
caught a_guard_that_no_test_misses_is_caught 'the test passes without the guard' \
  env PATH="$work/bin:$PATH" "$work/tree/scripts/guards"
runs "${try/not ok it/not ok another}"
caught a_guard_that_another_test_misses_is_caught 'fails by another name' \
  env PATH="$work/bin:$PATH" "$work/tree/scripts/guards"
runs 'echo "not ok it_is_kept"; exit 1'
caught a_test_that_fails_with_its_guard_is_caught 'the test fails with the guard' \
  env PATH="$work/bin:$PATH" "$work/tree/scripts/guards"

exit "$failed"
