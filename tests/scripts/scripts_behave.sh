#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What every script promises: --help from any folder, a refusal of what it does not know, and of
# scripts/deps that it is quick and installs nothing when all is there. Run by ctest.
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

helps() {
  local text
  text=$(cd / && "$1" --help </dev/null)
  [[ $text == "Usage: "* ]]
}

refuses() {
  local rc=0
  "$@" </dev/null >/dev/null 2>&1 || rc=$?
  [ "$rc" -eq 2 ]
}

for script in "$MR_SOURCE_DIR"/scripts/*; do
  if [ -x "$script" ] && [ -f "$script" ]; then
    expect "${script##*/}_tells_its_usage_from_any_folder" helps "$script"
  fi
done
for name in deps format check fuzz guards long bench soak; do
  expect "${name}_refuses_an_argument_it_does_not_know" refuses "$MR_SOURCE_DIR/scripts/$name" --nonsense
done

expect build_refuses_a_preset_it_does_not_know refuses "$MR_SOURCE_DIR/scripts/build" nonsense

# A Debian of our own making: dpkg-query knows what is in $work/installed, apt-get writes down what
# it was asked for, id says who we are.
mkdir "$work/bin"
cat >"$work/bin/dpkg-query" <<END
#!/bin/sh
sed 's/^/installed /' "$work/installed"
END
cat >"$work/bin/apt-get" <<END
#!/bin/sh
echo "\$@" >>"$work/apt"
END
cat >"$work/bin/id" <<END
#!/bin/sh
cat "$work/uid"
END
chmod +x "$work"/bin/*
deps() {
  PATH=$work/bin:$PATH "$MR_SOURCE_DIR/scripts/deps" "$@" </dev/null
}

installs_nothing_when_all_is_there() {
  rm -f "$work/apt"
  "$MR_SOURCE_DIR/scripts/deps" dev --list >"$work/installed"
  echo 0 >"$work/uid"
  [ -z "$(deps dev)" ] && [ ! -e "$work/apt" ]
}

installs_only_what_is_missing() {
  rm -f "$work/apt"
  "$MR_SOURCE_DIR/scripts/deps" run --list | grep -v '^cmake$' >"$work/installed"
  echo 0 >"$work/uid"
  deps run && grep -qx update "$work/apt" &&
    grep -qx 'install -y --no-install-recommends cmake' "$work/apt"
}

names_the_command_to_who_is_not_root() {
  rm -f "$work/apt"
  "$MR_SOURCE_DIR/scripts/deps" run --list | grep -v '^cmake$' >"$work/installed"
  echo 1000 >"$work/uid"
  ! deps run 2>"$work/err" && [ ! -e "$work/apt" ] &&
    grep -qF 'sudo apt-get update && sudo apt-get install -y --no-install-recommends cmake' "$work/err"
}

gives_a_server_no_test_tools() {
  ! "$MR_SOURCE_DIR/scripts/deps" run --list | grep -E 'busted|luv|clang|valgrind|check'
}

for name in installs_nothing_when_all_is_there installs_only_what_is_missing \
  names_the_command_to_who_is_not_root gives_a_server_no_test_tools; do
  expect "deps_$name" "$name"
done

# A server has what `deps run` brings: everything of this machine but the tools of tests.
a_server_without_test_tools_can_configure() {
  local folder
  mkdir -p "$work/server"
  IFS=:
  for folder in $PATH; do
    [ ! -d "$folder" ] || find -L "$folder" -maxdepth 1 -type f -perm -u+x ! -name 'busted*' ! -name 'luajit*' \
      ! -name 'luacheck*' ! -name 'clang*' ! -name 'valgrind*' ! -name git \
      -exec ln -sf -t "$work/server" {} +
  done
  unset IFS
  env PATH="$work/server" cmake -S "$MR_SOURCE_DIR" -B "$work/build" -G Ninja -DCMAKE_C_COMPILER=gcc \
    -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF && [ -e "$work/build/build.ninja" ]
}
expect a_server_without_test_tools_can_configure a_server_without_test_tools_can_configure
exit "$failed"
