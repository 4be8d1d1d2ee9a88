#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Installs the build, moves the installation, and builds and runs consumer.c and uv_consumer.c against
# it, shared and static. $1 is the way it is found: cmake or pkgconfig. Run by ctest, which sets the
# environment.
set -euo pipefail

way=$1
here=$MR_SOURCE_DIR/tests/consumer
work=$MR_BINARY_DIR/consumer-$way
rm -rf "$work"
mkdir -p "$work"
cmake --install "$MR_BINARY_DIR" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/moved"

# The objects of a sanitized library need its runtime.
flags=
if [ -n "$MR_SANITIZE" ]; then
  flags=-fsanitize=$MR_SANITIZE
fi

case "$way" in
  cmake)
    cmake -S "$here" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/moved" \
      -DCMAKE_C_FLAGS="$flags" >/dev/null
    cmake --build "$work/build" >/dev/null
    programs=("$work"/build/{consumer,consumer_static,uv_consumer,uv_consumer_static})
    ;;
  pkgconfig)
    pc=$(find "$work/moved" -name moonrelay.pc)
    export PKG_CONFIG_PATH=${pc%/*}
    libdir=$(pkg-config --variable=libdir moonrelay)
    for package in moonrelay moonrelay-uv; do
      [ "$(pkg-config --modversion "$package")" = "$MR_VERSION" ]
    done
    # shellcheck disable=SC2206  # lists of flags
    flags=($flags)
    read -ra shared < <(pkg-config --cflags --libs moonrelay)
    read -ra cflags < <(pkg-config --cflags moonrelay)
    read -ra uv_shared < <(pkg-config --cflags --libs moonrelay-uv)
    read -ra uv_cflags < <(pkg-config --cflags moonrelay-uv)
    read -ra uv < <(pkg-config --libs libuv)
    "$CC" "${flags[@]}" -o "$work/shared" "$here/consumer.c" "${shared[@]}" -Wl,-rpath,"$libdir"
    "$CC" "${flags[@]}" -o "$work/static" "$here/consumer.c" "${cflags[@]}" \
      "$libdir/libmoonrelay.a" -pthread
    "$CC" "${flags[@]}" -o "$work/uv_shared" "$here/uv_consumer.c" "${uv_shared[@]}" \
      -Wl,-rpath,"$libdir"
    "$CC" "${flags[@]}" -o "$work/uv_static" "$here/uv_consumer.c" "${uv_cflags[@]}" \
      "$libdir/libmoonrelay_uv.a" "$libdir/libmoonrelay.a" "${uv[@]}" -pthread
    programs=("$work"/{shared,static,uv_shared,uv_static})
    # The page's example is a program as it stands there.
    awk '/^```c$/ {text = ""; inside = 1; next}
      /^```$/ {if (inside && text ~ /moonrelay_uv\.h/) printf "%s", text; inside = 0}
      inside {text = text $0 "\n"}' "$MR_SOURCE_DIR/src/README.md" >"$work/page.c"
    # It names nothing of libmoonrelay, so the uv library has to find that by itself.
    "$CC" "${flags[@]}" -Wall -Wextra -Werror -Wl,--as-needed -o "$work/page" "$work/page.c" \
      "${uv_shared[@]}" -Wl,-rpath,"$libdir"
    [ "$("$work/page")" = sent ]
    "$CC" "${flags[@]}" -o "$work/plugin_host" "$here/plugin_host.c" -ldl
    [ "$("$work/plugin_host" "$libdir/libmoonrelay_uv.so")" = stays ]
    ;;
esac
for program in "${programs[@]}"; do
  said=$("$program")
  echo "${program##*/} $said"
  [ "$said" = "$MR_VERSION" ]
done
