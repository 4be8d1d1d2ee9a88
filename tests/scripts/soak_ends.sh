#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# A soak that is ended by force leaves nothing behind: its daemon ends with the program that plays against
# it, and that ends with whoever started it. Run by ctest.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

within_10_s() { # a condition
  for _ in $(seq 100); do
    if "$@"; then
      return 0
    fi
    sleep 0.1
  done
  return 1
}

is_ready() { grep -q 'ready command=' "$work/log" 2>/dev/null; }
is_gone() { ! kill -0 "$1" 2>/dev/null; }

child_of() {
  local file line
  for file in /proc/[0-9]*/stat; do
    { read -r line <"$file"; } 2>/dev/null || continue # it has ended meanwhile
    line=${line##*) } # state parent ...
    line=${line#* }
    if [ "${line%% *}" = "$1" ]; then
      file=${file#/proc/}
      echo "${file%/stat}"
      return
    fi
  done
}

# The starter's child is the player, whose child is the daemon.
ends_with() { # who of them is killed
  local starter player daemon rc=0
  rm -f "$work/log"
  # shellcheck disable=SC2016  # for the starter
  bash -c '"$@" & wait' starter "$MR_BINARY_DIR/bench/soak" --program "$MR_BINARY_DIR/moonrelay" \
    --folder "$work" --pairs 2 --joins 1 --junk 10 --ports 64 >"$work/output" 2>&1 &
  starter=$!
  within_10_s is_ready || rc=1
  player=$(child_of "$starter")
  daemon=$(child_of "${player:-none}")
  [ -n "$daemon" ] || { cat "$work/output"; kill -KILL "$starter" ${player:+"$player"}; return 1; }
  kill -KILL "${!1}"
  within_10_s is_gone "$player" || rc=1
  within_10_s is_gone "$daemon" || rc=1
  kill -KILL "$starter" "$player" "$daemon" 2>/dev/null || true
  wait "$starter" 2>/dev/null || true
  return "$rc"
}

for who in player starter; do
  if ends_with "$who"; then
    echo "ok a_soak_whose_${who}_is_killed_leaves_no_daemon"
  else
    echo "not ok a_soak_whose_${who}_is_killed_leaves_no_daemon"
    failed=1
  fi
done
exit "$failed"
