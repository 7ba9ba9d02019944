#!/bin/sh
# The developer build: compile native/ and put the extension beside the Python sources (src/farcall).
#
#   CC                the C compiler; when none is found, that of the ziglang package
#   PYTHON            the interpreter to build for (.venv/bin/python)
#   FARCALL_SANITIZE  sanitizers, such as address,undefined
#   FARCALL_DEST      where the extension goes (src/farcall)
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
case $python in */*) python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python") ;; esac
bin=$(dirname "$python")
dest=${FARCALL_DEST:-src/farcall}

if [ -z "${CC:-}" ] && ! command -v cc >/dev/null && ! command -v gcc >/dev/null && ! command -v clang >/dev/null; then
    FARCALL_ZIG=$("$python" -c 'import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))')
    CMAKE_TOOLCHAIN_FILE=$PWD/scripts/zig.cmake
    export FARCALL_ZIG CMAKE_TOOLCHAIN_FILE
fi
tool() { if [ -x "$bin/$1" ]; then echo "$bin/$1"; else command -v "$1"; fi; }

# One build folder per compiler and variant, so that they do not share objects.
variant=$(printf '%s' "${CC:-default}-${CMAKE_TOOLCHAIN_FILE:-}-${FARCALL_SANITIZE:-plain}-$python" | cksum | cut -d ' ' -f 1)
build=build/native-$variant
mkdir -p build
"$(tool cmake)" -S . -B "$build" -G Ninja -DCMAKE_MAKE_PROGRAM="$(tool ninja)" \
    -DCMAKE_BUILD_TYPE=Release -DFARCALL_STRICT=ON -DFARCALL_SANITIZE="${FARCALL_SANITIZE:-}" \
    -DPython_EXECUTABLE="$python" >"$build.log" 2>&1 || { cat "$build.log" >&2; exit 1; }
"$(tool cmake)" --build "$build"
for file in "$build"/_core*.so "$build"/libfarcall_cxx.so; do
    [ -e "$file" ] || continue # libfarcall_cxx.so needs a C++ compiler
    # Copies to a new name and renames: a process that has the old file mapped keeps it intact.
    cp "$file" "$dest/.$(basename "$file").new"
    mv -f "$dest/.$(basename "$file").new" "$dest/$(basename "$file")"
done
