#!/bin/sh
# Runs promtool with the given arguments: the one on the PATH, or else that of
# Debian's package prometheus, which is fetched (20 MB) and unpacked into
# ~/.cache/vendorapi without being installed, so that no server is started.
#
# Not `go run`: the module of Prometheus 3 replaces others, which go run refuses,
# and building promtool takes hundreds of modules.
set -eu

if ! command -v promtool >/dev/null; then
    dir=${XDG_CACHE_HOME:-$HOME/.cache}/vendorapi/promtool
    if [ ! -x "$dir/usr/bin/promtool" ]; then
        command -v apt-get >/dev/null || { echo "promtool: not on the PATH, and there is no apt-get to fetch it with" >&2; exit 1; }
        echo "promtool: fetching Debian's package prometheus into $dir" >&2
        mkdir -p "$dir"
        (cd "$dir" && apt-get download -qq prometheus >/dev/null && dpkg -x prometheus_*.deb . && rm prometheus_*.deb)
    fi
    PATH=$PATH:$dir/usr/bin
fi
exec promtool "$@"
