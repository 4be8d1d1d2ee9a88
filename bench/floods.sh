#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The floods of bench/floods.lua, with as many descriptors as are allowed and in a network of its own where that is
# allowed, too: forged sources need it. Run it as `scripts/bench floods [--quick] [FLOOD...]`.
set -euo pipefail

ulimit -n "$(ulimit -Hn)"
network=()
if unshare --net --map-root-user true 2>/dev/null; then
  network=(unshare --net --map-root-user -- sh -c 'ip link set lo up && exec "$@"' sh)
fi
exec "${network[@]}" luajit "$MR_SOURCE_DIR/bench/floods.lua" "$@"
