#!/bin/sh
# Writes the root of a stand-in for the image golang to standard output, as an archive:
# the machine's Go, the modules that this module needs from the machine's cache of them
# (/modules, to be used with GOPROXY), a shell and the authorities of certificates.
#   golang.sh ARCHIVE-OF-PACKAGES EMPTY-FOLDER
set -eu
tar -x -f "$1" -C "$2" --transform 's,usr/bin/,bin/,' ./usr/bin/busybox ./etc/ssl/certs/ca-certificates.crt
for name in sh mkdir; do ln -s busybox "$2/bin/$name"; done
mkdir -p "$2/usr/local" "$2/modules" "$2/tmp"
ln -s "$(go env GOROOT)" "$2/usr/local/go"
zips=$(go mod download -json | sed -n 's/.*"Zip": "\(.*\)".*/\1/p')
cd "$(go env GOMODCACHE)/cache/download"
{ find . -type f -name '*.mod' -o -type f -name '*.info'; printf '%s\n' "$zips" | sed "s,^$PWD/,,"; } | xargs -d '\n' cp --parents -t "$2/modules"
exec tar -c -h --exclude ./usr/local/go/test --exclude testdata -C "$2" .
