#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Installs the build, moves the installation, and builds and runs consumer.c against it, shared and
# static. $1 is the way it is found: cmake or pkgconfig. Run by ctest, which sets the environment.
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
    shared=$("$work/build/consumer")
    static=$("$work/build/consumer_static")
    ;;
  pkgconfig)
    pc=$(find "$work/moved" -name moonrelay.pc)
    export PKG_CONFIG_PATH=${pc%/*}
    libdir=$(pkg-config --variable=libdir moonrelay)
    # shellcheck disable=SC2046,SC2086  # lists of flags
    $CC $flags -o "$work/shared" "$here/consumer.c" $(pkg-config --cflags --libs moonrelay) \
      -Wl,-rpath,"$libdir"
    # shellcheck disable=SC2046,SC2086
    $CC $flags -o "$work/static" "$here/consumer.c" $(pkg-config --cflags moonrelay) \
      "$libdir/libmoonrelay.a" -pthread
    shared=$("$work/shared")
    static=$("$work/static")
    [ "$(pkg-config --modversion moonrelay)" = "$MR_VERSION" ]
    ;;
esac
echo "shared $shared, static $static"
[ "$shared" = "$MR_VERSION" ]
[ "$static" = "$MR_VERSION" ]
