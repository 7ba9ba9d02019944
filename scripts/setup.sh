#!/bin/sh
# Make .venv and install farcall in it, editable, with the native core built.
#
#   setup.sh run     everything to build and run artifacts
#   setup.sh test    the same, plus linters, Sphinx, and the packages that the tests compare farcall with
#
# Needs Python 3.11 or later and a package index. Without a C compiler, the build uses that of the ziglang
# package. Installs missing Debian packages when run as root, else prints their names.
set -eu
cd "$(dirname "$0")/.."
what=${1:-run}
python=${PYTHON:-python3}
bin=.venv/bin

say() { echo "setup: $*" >&2; }
begin=$(date +%s)

debian() { # debian PACKAGE...: install them, or print the command
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing Debian packages: $*"
        { apt-get install -y -qq "$@" || { apt-get update -qq && apt-get install -y -qq "$@"; }; } >/dev/null
    else
        say "missing; install with: sudo apt-get install $*"
        return 1
    fi
}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
    say "farcall needs Python 3.11 or later; '$python' is not. Name one: make PYTHON=python3.12 $what"
    exit 1
}
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')

if [ ! -x $bin/python ]; then
    "$python" -c 'import ensurepip, venv' 2>/dev/null || debian "python$version-venv"
    say "making .venv with $("$python" --version)"
    "$python" -m venv .venv
fi
header=$($bin/python -c 'import sysconfig; print(sysconfig.get_path("include") + "/Python.h")')
[ -f "$header" ] || debian "python$version-dev"

pip() { $bin/python -m pip --disable-pip-version-check "$@"; }
say "updating pip"
pip install -q --upgrade 'pip>=25.1'
extras=compile
if [ -z "${CC:-}" ] && ! command -v cc >/dev/null && ! command -v gcc >/dev/null && ! command -v clang >/dev/null; then
    say "no C compiler here: using that of the ziglang package"
    extras=compile,zig
fi

if [ "$what" = test ]; then
    say "building the native core, and installing the tools and the packages that the tests compare with (minutes)"
    pip install -q --group test --group lint --group docs -e '.[all]'
    for tool in qemu-s390x:qemu-user chromium:chromium sshd:openssh-server adb:adb; do
        command -v "${tool%%:*}" >/dev/null || debian "${tool##*:}" || say "tests that need ${tool%%:*} will be skipped"
    done
    touch .venv/.test
else
    # For the demo's device: an emulator, and the compiler for it.
    if command -v qemu-aarch64 >/dev/null || debian qemu-user; then
        extras=compile,zig
    else
        say "the demo leaves its emulated device out"
    fi
    say "installing farcall[$extras] and building the native core (about a minute)"
    pip install -q -e ".[$extras]"
fi
touch .venv/.run
say "ready after $(($(date +%s) - begin)) s"
