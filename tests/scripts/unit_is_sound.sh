#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What systemd says of the unit, as it is in the tree and as an installation writes it.
set -euo pipefail

root=${MR_SOURCE_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
unit=$root/scripts/moonrelay.service
command -v systemd-analyze >/dev/null || { echo "skipped: there is no systemd-analyze"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# Says what systemd finds wrong; the program need not be installed. Units of the machine that ours only
# names are none of our business.
verify() {
  sed "s|^ExecStart=[^ ]*|ExecStart=/bin/true|" "$1" >"$dir/moonrelay.service"
  systemd-analyze verify --man=no --recursive-errors=no "$dir/moonrelay.service" 2>&1
}

said=$(verify "$unit") || { echo "$said"; echo "not ok the_unit_is_taken_by_systemd"; exit 1; }
if [ -n "$said" ]; then
  echo "$said"
  echo "not ok the_unit_is_taken_without_a_warning"
  exit 1
fi
echo "ok the_unit_is_taken_without_a_warning"

# A verification that finds nothing finds nothing in a broken one either, unless it works.
sed 's/^ProtectSystem=.*/ProtectSystem=perhaps/' "$unit" >"$dir/broken"
broken=$(verify "$dir/broken") || true
case $broken in
  *"protect system value"*) echo "ok a_broken_unit_is_found" ;;
  *) echo "$broken"; echo "not ok a_broken_unit_is_found"; exit 1 ;;
esac

if grep -q '^MemoryDenyWriteExecute=yes' "$unit"; then
  echo "not ok luajit_may_map_its_memory"
  exit 1
fi
echo "ok luajit_may_map_its_memory"

build=${MR_BINARY_DIR:-}
if [ -n "$build" ] && [ -f "$build/cmake_install.cmake" ]; then
  DESTDIR=$dir/out cmake --install "$build" --prefix /opt/relay >/dev/null
  installed=$dir/out/opt/relay/lib/systemd/system/moonrelay.service
  grep -qx 'ExecStart=/opt/relay/bin/moonrelay serve' "$installed"
  [ -x "$dir/out/opt/relay/bin/moonrelay" ]
  echo "ok an_installation_starts_its_own_program"
fi
