#!/bin/sh
# Installs what is missing of the named things (redis-server, valkey-server, gcc, curl,
# libreoffice, chromium, haproxy, openssh-server, php, java, python-requests, docker, mmdebstrap,
# openssl) from the system's packages, says so, and skips what is there.
# Nothing else on the machine is touched: a service that the package brings
# along is of no use here, since this project's Redis has ports and folders of
# its own.
set -eu

present() {
    case $1 in
    redis-server | valkey-server | curl | haproxy | java | mmdebstrap | openssl) command -v "$1" >/dev/null ;;
    openssh-server) PATH=$PATH:/usr/sbin command -v sshd >/dev/null ;;
    docker) command -v docker >/dev/null && command -v dockerd >/dev/null && command -v docker-init >/dev/null ;;
    php) php -r 'exit(function_exists("curl_init") ? 0 : 1);' >/dev/null 2>&1 ;;
    # Another Python may come first on PATH than the one that the package is for.
    python-requests) python3 -c 'import requests' 2>/dev/null || /usr/bin/python3 -c 'import requests' 2>/dev/null ;;
    libreoffice) command -v soffice >/dev/null ;;
    # CHROMIUM names one that is nowhere on PATH.
    chromium)
        for browser in ${CHROMIUM:-chromium chromium-browser google-chrome google-chrome-stable}; do
            if command -v "$browser" >/dev/null; then return 0; fi
        done
        return 1 ;;
    # The race detector links against C; the header shows that libc is there.
    gcc) echo '#include <stdlib.h>' | gcc -E - >/dev/null 2>&1 ;;
    *) echo "deps: $1 is not known here" >&2; exit 2 ;;
    esac
}

packages() {
    case $1 in
    redis-server | curl | haproxy | openssh-server | mmdebstrap | openssl) echo "$1" ;;
    # The package valkey-server has nothing more than a link and a service that starts.
    valkey-server) echo valkey-tools ;;
    docker) echo docker.io ;;
    php) echo php-cli php-curl ;;
    java) echo default-jdk-headless ;;
    python-requests) echo python3-requests ;;
    gcc) echo gcc libc6-dev ;;
    # Its spreadsheet without a window: 90 MB to fetch. Tests open reports in it.
    libreoffice) echo libreoffice-calc-nogui ;;
    # 100 MB to fetch. Tests look at the panel in it. It brings a font along.
    chromium) echo chromium ;;
    esac
}

command -v go >/dev/null || { echo "deps: Go is missing; see https://go.dev/doc/install" >&2; exit 1; }

missing=
for name; do
    present "$name" || missing="$missing $(packages "$name")"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "deps: missing:$missing. There is no apt-get here; install them with the system's own package manager." >&2
    exit 1
fi
sudo=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "deps: missing:$missing. Run as root, or install sudo." >&2; exit 1; }
    sudo=sudo
fi

echo "deps: installing$missing"
install() { $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null; }
# Debian 12 has Valkey in its backports only. From there apt takes nothing that it
# is not asked for and has elsewhere: their priority is 100.
backports() {
    case $missing in *valkey*) ;; *) return 1 ;; esac
    . /etc/os-release
    apt-get indextargets --format "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \$(REPO_URI) $VERSION_CODENAME-backports main" \
        "Codename: $VERSION_CODENAME" 'Origin: Debian' 'Component: main' 'Created-By: Packages' |
        $sudo tee /etc/apt/sources.list.d/vendorapi-backports.list >/dev/null
}
# The lists are fetched only when the packages cannot be had without.
install 2>/dev/null || { $sudo apt-get update -qq && install 2>/dev/null; } ||
    { backports && $sudo apt-get update -qq; install; }
case $missing in *valkey-tools*) $sudo ln -sf "$(command -v valkey-check-rdb)" /usr/local/bin/valkey-server ;; esac

for name; do
    present "$name" || { echo "deps: $name is still missing after installing$missing" >&2; exit 1; }
done
