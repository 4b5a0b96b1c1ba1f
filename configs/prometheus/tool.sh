#!/bin/sh
# Runs a tool of Prometheus (promtool, prometheus, amtool, prometheus-node-exporter) with the
# given arguments: the one on the PATH, or else that of Debian's packages, which are fetched
# (34 MB) and unpacked into ~/.cache/vendorapi without being installed, so that no server is
# started.
#
# Not `go run`: the module of Prometheus 3 replaces others, which go run refuses, and
# building promtool takes hundreds of modules.
set -eu
tool=$1; shift

if ! command -v "$tool" >/dev/null; then
    dir=${XDG_CACHE_HOME:-$HOME/.cache}/vendorapi/prometheus
    if [ ! -x "$dir/usr/bin/$tool" ]; then
        command -v apt-get >/dev/null || { echo "$tool: not on the PATH, and there is no apt-get to fetch it with" >&2; exit 1; }
        echo "$tool: fetching Debian's packages of Prometheus into $dir" >&2
        fresh=$dir.$$ # another may fetch them, too
        mkdir -p "$fresh"
        (cd "$fresh" && apt-get download -qq prometheus prometheus-alertmanager prometheus-node-exporter >/dev/null &&
            for package in *.deb; do dpkg -x "$package" . && rm "$package"; done)
        mv -T "$fresh" "$dir" 2>/dev/null || rm -rf "$fresh"
    fi
    PATH=$PATH:$dir/usr/bin
fi
exec "$tool" "$@"
