#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Runs every benchmark for a moment: shows that they still build, run and count right, and
# nothing about speed. Run it as `scripts/bench smoke`.
set -euo pipefail

bench=$MR_BINARY_DIR/bench

"$bench/bench_decision" 10 1000
"$bench/bench_hook" 2000
luajit "$MR_SOURCE_DIR/bench/policies.lua" --quick reload strangers latency
bash "$MR_SOURCE_DIR/bench/floods.sh" --quick forged registrar limit
"$bench/bench_expiry" 5000
"$bench/bench_startup" 2
"$bench/bench_relay" quick
"$bench/bench_lookup" 200 2
luajit "$MR_SOURCE_DIR/bench/lookup.lua" --quick
