"""The writer of embedded modules, against the runtime's reader."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from farcall import _core, ffi
from farcall.errors import UsageError
from farcall.library._blob import Blob
from farcall.library._module_bin import module_bin


@pytest.fixture
def echo() -> Iterator[str]:
    """A kind of module whose function `data` gives the data of its blob."""

    def load(data: bytes) -> ffi.Module:
        blob = Blob.parse(data)
        return ffi.new_module("echo", {"data": lambda: blob.data})

    ffi.register_loader("echo", load, override=True)  # other tests of this process may have left theirs
    yield "echo"
    ffi.remove_global_func("ffi.Module.load_from_bytes.echo")


def test_the_reader_makes_the_tree_that_was_written(echo: str) -> None:
    """A diamond: the library imports two modules, and both import the last one, which is made once."""
    blobs = [Blob(echo, 1, bytes([65 + i]) * i) for i in range(3)]
    root = _core._module_from_bin(module_bin([None, *blobs], [[2, 1], [3], [3], []]))
    assert root.kind == "library"
    assert [module.data() for module in root.imports] == [b"B", b""]
    assert [len(module.imports) for module in root.imports] == [1, 1]
    assert root.imports[0].imports == root.imports[1].imports
    assert root.imports[0].imports[0].data() == b"CC"


def test_bytes_without_a_frame_go_to_their_loader_as_they_are() -> None:
    ffi.register_loader("plain", lambda data: ffi.new_module("plain", {"data": lambda: data}))
    root = _core._module_from_bin(module_bin([("plain", b"as it is")], [[]]))
    assert (root.kind, root.data()) == ("plain", b"as it is")
    ffi.remove_global_func("ffi.Module.load_from_bytes.plain")


def test_the_data_of_each_blob_is_aligned() -> None:
    blobs = [Blob("k" * n, 1, b"%d-here" % n) for n in range(1, 40)]
    written = module_bin([None, *blobs], [list(range(1, 40)), *[[]] * 39])
    assert {written.index(blob.data) % 64 for blob in blobs} == {0}


@pytest.mark.parametrize(
    ("modules", "imports", "text"),
    [
        ([], [], "at least one module"),
        ([None], [], "got 0 for 1"),
        ([None, None], [[], []], "more than one"),
        ([None], [[1]], "module 1 is imported, expected an index below 1"),
    ],
)
def test_what_is_no_tree_is_refused(modules: list[None], imports: list[list[int]], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        module_bin(modules, imports)
