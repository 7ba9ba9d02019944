#!/bin/sh
# Try an aarch64 wheel on this machine, under qemu: try_aarch64.sh dist/farcall-*-cp311-*aarch64.whl
#
# Needs qemu-aarch64, a package index, and a Debian mirror, from which it takes an aarch64 Python into
# build/aarch64. Nothing is installed on this system. Set SUITE to a Debian release whose Python the wheel is for.
set -eu
wheel=$(realpath "$1")
cd "$(dirname "$0")/.."
suite=${SUITE:-bookworm}
python=${PYTHON:-.venv/bin/python}
root=$PWD/build/aarch64/$suite
version=$(basename "$wheel" | sed -E 's/.*-cp3([0-9]+)-cp.*/3.\1/')
packages="python$version-minimal libpython$version-minimal libpython$version-stdlib
    libc6 libgcc-s1 libstdc++6 libexpat1 zlib1g libffi8 libbz2-1.0 liblzma5 libuuid1 libcrypt1"

if [ ! -e "$root/usr/bin/python$version" ]; then
    apt=$root/apt
    mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$root/debs"
    touch "$apt/status"
    mirror=$(apt-get indextargets --format '$(SITE)' | sort | uniq -c | sort -rn | awk 'NR == 1 { print $2 }')
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$apt/sources.list"
    fetch() {
        apt-get -qq -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
            -o Dir::State::Lists="$apt/lists" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt" \
            -o APT::Architecture=arm64 -o APT::Architectures=arm64 "$@"
    }
    fetch update
    # shellcheck disable=SC2086 # a list
    (cd "$root/debs" && fetch download $packages)
    for file in "$root"/debs/*.deb; do dpkg -x "$file" "$root"; done
    [ -e "$root/lib" ] || ln -s usr/lib "$root/lib" # since Debian 13, a package of its own has this link
fi

site=$root/site
rm -rf "$site"
"$python" -m pip install -q --no-compile --only-binary :all: --python-version "$version" --target "$site" \
    --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux2014_aarch64 \
    "$wheel" numpy
# A server starts sys.executable, which this system can run only by qemu. Python must keep its bytecode: without it,
# each process compiles its modules anew, which takes qemu longer than a server waits for its first process.
run=$root/python
printf '#!/bin/sh\nunset PYTHONDONTWRITEBYTECODE\nexec qemu-aarch64 -L "%s" "%s" "$@"\n' \
    "$root" "$root/usr/bin/python$version" >"$run"
chmod +x "$run"
PYTHONPATH=$site "$run" -c "import runpy, sys; sys.executable = '$run'; runpy.run_path('scripts/try_wheel.py')"
