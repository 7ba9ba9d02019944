#!/bin/sh
# The native core under AddressSanitizer and UndefinedBehaviorSanitizer: build it so, and run the tests of ffi, of the
# channels, and of calls by Signatures.
#
#   PYTHON  the interpreter (.venv/bin/python); the C compiler must bring libasan (gcc does)
#   More arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
place=build/sanitize
compiler=${CC:-gcc}

# The sources by links, with another extension among them.
rm -rf $place && mkdir -p $place/farcall
for file in src/farcall/*; do
    case $file in *_core*.so) ;; *) ln -s "$PWD/$file" $place/farcall/ ;; esac
done
ln -s "$PWD/include" $place/farcall/include
CC=$compiler FARCALL_SANITIZE=address,undefined FARCALL_DEST=$place/farcall PYTHON=$python sh scripts/native.sh

# Python itself and its caches are never freed, so leaks are measured by the tests, not by the sanitizer. Memory
# in use is no measure here either: freed memory is held back to catch late uses. Nor is what this build links with.
[ $# -gt 0 ] || set -- tests/ffi tests/channels/test_contract.py tests/channels/test_shared.py \
    tests/abi/test_f*.py tests/abi/test_d[ei]*.py tests/abi/test_lists.py tests/abi/test_memory.py \
    --deselect tests/ffi/test_leaks.py::test_arguments_and_results \
    --deselect tests/ffi/test_leaks.py::test_tracebacks_are_released \
    --deselect tests/ffi/test_complaints.py::TestOneAbi::test_344_no_library_is_linked_that_is_not_needed
# torch needs more room for thread-local variables than the sanitizer leaves.
# It throws C++ exceptions, which the sanitizer can only follow when it sees libstdc++ at the start.
GLIBC_TUNABLES=glibc.rtld.optional_static_tls=16384 \
    LD_PRELOAD="$($compiler -print-file-name=libasan.so) $($compiler -print-file-name=libstdc++.so.6)" \
    ASAN_OPTIONS=detect_leaks=0:handle_segv=1:allow_user_segv_handler=1 \
    UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc PYTHONPATH=$place \
    "$python" -c '
import sys
# An editable installation comes before PYTHONPATH, and would bring the other extension.
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]
import farcall._core
assert "sanitize" in farcall._core.__file__, farcall._core.__file__
import pytest
sys.exit(pytest.main(["-p", "no:cacheprovider", *sys.argv[1:]]))
' "$@"
