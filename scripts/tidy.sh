#!/bin/sh
# Run clang-tidy (.clang-tidy) on native/, with the compile commands of cmake.
#
#   PYTHON  the interpreter of the environment that contains clang-tidy (.venv/bin/python)
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
bin=$(dirname "$python")
tool() { if [ -x "$bin/$1" ]; then echo "$bin/$1"; else command -v "$1"; fi; }

mkdir -p build
"$(tool cmake)" -S . -B build/tidy -G Ninja -DCMAKE_MAKE_PROGRAM="$(tool ninja)" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DPython_EXECUTABLE="$PWD/$python" >build/tidy.log 2>&1 \
    || { cat build/tidy.log >&2; exit 1; }
"$python" "$bin/run-clang-tidy.py" -clang-tidy-binary "$PWD/$bin/clang-tidy" -p build/tidy -quiet "$PWD/native/" \
    >build/tidy.log 2>&1 || { grep -v '^\[' build/tidy.log >&2; exit 1; }
