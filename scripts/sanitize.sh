#!/bin/sh
# Build the native core with AddressSanitizer and UndefinedBehaviorSanitizer, and run the tests of ffi, of the channels,
# and of calls by Signatures. Without arguments, the small server is built so, too, and its tests and abuse are run;
# then the kernels that the backend `c` writes are, for its tests of windows, attention and sequences, and for random
# graphs.
#
#   PYTHON  the interpreter (.venv/bin/python); the C compiler must include libasan (gcc does)
#   More arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
place=build/sanitize
compiler=${CC:-gcc}

# Links to the sources, beside which the sanitized extension is put.
rm -rf $place && mkdir -p $place/farcall
for file in src/farcall/*; do
    case $file in *_core*.so) ;; *) ln -s "$PWD/$file" $place/farcall/ ;; esac
done
ln -s "$PWD/include" $place/farcall/include
CC=$compiler FARCALL_SANITIZE=address,undefined FARCALL_DEST=$place/farcall PYTHON=$python sh scripts/native.sh

if [ $# -eq 0 ]; then
    $python -c '
import pathlib, sys
from tests.native.small_server import sanitized_server
sanitized_server(pathlib.Path(sys.argv[1]))' $place/farcall-server
    ASAN_OPTIONS=allocator_may_return_null=1 SANITIZED_SERVER=$PWD/$place/farcall-server $python -m pytest -q \
        -p no:cacheprovider tests/native/test_small_server.py tests/native/test_small_server_host.py \
        tests/native/test_small_server_hops.py tests/rpc/test_device_hops.py tests/abuse/test_probes.py \
        -k "x86_64 or small_server_host or small_server_hops or small- or small] or small_server_stands"
fi

# Python never frees some of its own memory, so the tests find leaks, not the sanitizer.
# torch needs more space for thread-local variables than the sanitizer leaves. It also throws C++ exceptions, which the
# sanitizer can only intercept if libstdc++ is loaded at the start.
sanitized_tests() {
    GLIBC_TUNABLES=glibc.rtld.optional_static_tls=16384 \
        LD_PRELOAD="$($compiler -print-file-name=libasan.so) $($compiler -print-file-name=libstdc++.so.6)" \
        ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=0:handle_segv=1:allow_user_segv_handler=1 \
        UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc PYTHONPATH=$place \
        "$python" -c '
import sys
# An editable installation has precedence over PYTHONPATH, and would import the unsanitized extension.
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]
import farcall._core
assert "sanitize" in farcall._core.__file__, farcall._core.__file__
import pytest
sys.exit(pytest.main(["-p", "no:cacheprovider", *sys.argv[1:]]))
' "$@"
}

if [ $# -gt 0 ]; then
    sanitized_tests "$@"
    exit
fi

# Deselected are the tests that measure memory in use (the sanitizer delays freeing, to catch late uses) and the one that
# lists linked libraries.
sanitized_tests tests/ffi tests/channels/test_contract.py tests/channels/test_shared.py \
    tests/channels/test_mailbox.py \
    tests/abi/test_f*.py tests/abi/test_d[ei]*.py tests/abi/test_lists.py tests/abi/test_memory.py \
    --ignore tests/ffi/test_blocks.py \
    --deselect tests/ffi/test_leaks.py::test_arguments_and_results \
    --deselect tests/ffi/test_leaks.py::test_tracebacks_are_released \
    --deselect tests/ffi/test_complaints.py::TestOneAbi::test_344_no_library_is_linked_that_is_not_needed

# An artifact is compiled by this. Objects that farcall brings, or has kept, were not.
cat >$place/cc <<EOF
#!/bin/sh
exec $compiler "\$@" -fsanitize=address,undefined -fno-sanitize-recover=all
EOF
chmod +x $place/cc
CC=$PWD/$place/cc sanitized_tests -m "not slow" tests/backends/test_attention.py tests/backends/test_dilated.py \
    tests/backends/test_joined.py tests/backends/test_recurrent.py tests/backends/test_winograd.py \
    tests/random_graphs/test_random_graphs.py \
    "tests/backends/test_threads.py::test_sequences_do_not_depend_on_the_number_of_threads"
