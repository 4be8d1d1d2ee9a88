#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The decision alone: the table of bench_decision, then instructions per decision by callgrind,
# which repeat where times do not. Arguments: numbers of relays (default: 10 to a million).
set -euo pipefail

program=${MR_BINARY_DIR:?run this by scripts/bench}/bench/bench_decision
"$program" "$@"

command -v valgrind >/dev/null || { echo "valgrind is missing: no instruction counts" >&2; exit 0; }
decisions=640000
printf '\nInstructions per decision (callgrind, 1,000 relays), batches of 64 unless said:\n\n'
for kind in link one lifetimes policy open; do
  total=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no \
    --toggle-collect=mr__plane_batch --toggle-collect=mr__plane_finish \
    "$program" --steady "$decisions" 1000 "$kind" 2>&1 | sed -n 's/.*Collected : //p')
  printf '| %-9s | %4d |\n' "$kind" "$((total / decisions))"
done
