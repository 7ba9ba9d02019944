"""Random interfaces: what goes through a stub in C or Python and a skel in C comes back as it was."""

from __future__ import annotations

import ctypes
import random
from dataclasses import dataclass
from typing import Any

import pytest

from farcall.idl import compile as compile_idl
from farcall.idl._compile import parse_file
from farcall.idl._declarations import Method
from farcall.idl._library import Argument, arguments
from farcall.idl._types import Sequence, Text, is_fixed
from farcall.idl._values import Call

from .building import shared_library
from .c_calls import Arguments, encoded, plain
from .interfaces import Echo, Echoes, Random, echoes

GLUE = """
#include <farcall/fastrpc.h>
typedef int32_t Hook(fc_remote_handle h, uint32_t scalars, fc_remote_arg* args);
Hook* hook;
int32_t fc_remote_open(const char* uri, fc_remote_handle* handle) { (void)uri; *handle = 7; return 0; }
int32_t fc_remote_invoke(fc_remote_handle h, uint32_t word, fc_remote_arg* a) { return hook(h, word, a); }
int32_t fc_remote_close(fc_remote_handle handle) { (void)handle; return 0; }
"""
HOOK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint64, ctypes.c_uint32, ctypes.POINTER(Argument))
SEEDS = range(8)


@dataclass
class Built:
    """All interfaces, compiled into one library of stubs and one of skels."""

    interfaces: list[tuple[Echoes, list[Method], bool]]
    stubs: ctypes.CDLL
    skels: ctypes.CDLL

    def skel(self, interface: Echoes, handle: bool) -> Any:
        """The skel's entry, as one that takes a handle."""
        entry = getattr(self.skels, f"{interface.name}_skel_{'handle_' if handle else ''}invoke")
        if handle:
            return lambda h, word, args: entry(ctypes.c_uint64(h), ctypes.c_uint32(word), args)
        return lambda h, word, args: entry(ctypes.c_uint32(word), args)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("idl")
    interfaces, implementations = [], []
    for seed in SEEDS:
        handle = seed % 2 == 0
        # One of the interfaces has more methods than the word has numbers.
        one = echoes(f"echo{seed}", seed, methods=36 if seed == 0 else 5, handle=handle)
        # Types have names of their own in each interface, since one library holds all.
        one.text = one.text.replace("struct_", f"struct{seed}_").replace("rows_", f"rows{seed}_")
        one.code = one.code.replace("struct_", f"struct{seed}_").replace("rows_", f"rows{seed}_")
        file = folder / f"{one.name}.idl"
        file.write_text(one.text)
        compile_idl(file, folder)
        implementation = folder / f"{one.name}.c"
        implementation.write_text(one.code)
        implementations.append(implementation)
        interfaces.append((one, parse_file(file)[0].interfaces[0].methods, handle))
    (folder / "glue.c").write_text(GLUE)
    names = [one.name for one, _, _ in interfaces]
    stubs = shared_library(
        folder / "stubs.so", folder / "glue.c", *(folder / f"{name}_stub.c" for name in names)
    )
    skels = shared_library(
        folder / "skels.so", *implementations, *(folder / f"{name}_skel.c" for name in names)
    )
    return Built(interfaces, ctypes.CDLL(str(stubs)), ctypes.CDLL(str(skels)))


@dataclass
class Trip:
    """The values of one call."""

    values: list[Any]
    one: int
    some: list[int]

    @classmethod
    def of(cls, echo: Echo, source: Random) -> Trip:
        kind = echo.flipped
        some = [source.value(kind) for _ in range(3)] if kind else []
        return cls([source.value(k) for k in echo.kinds], source.value(kind) if kind else 0, some)  # type: ignore[arg-type]

    def expected(self, echo: Echo) -> list[Any]:
        found = list(self.values)
        if echo.flipped:
            mask = (1 << 8 * echo.flipped.size) - 1 if echo.flipped.code.isupper() else -1
            found += [self.one ^ mask, [n ^ mask for n in self.some]]
        return found


def room(kind: Any, value: Any) -> Any:
    """The room for a result that is like ``value``."""
    match kind:
        case Text(unit):
            return len(encoded(unit, value)) // unit
        case Sequence(Text(), _):
            return [len(encoded(1, one)) for one in value]
        case Sequence(element, _) if not is_fixed(element):
            return [len(one) for one in value]
        case _:
            return len(value)


def python_values(echo: Echo, trip: Trip) -> list[Any]:
    found: list[Any] = []
    for kind, value in zip(echo.kinds, trip.values, strict=True):
        found.append(value)
        if not is_fixed(kind):
            found.append(room(kind, value))
    return [*found, trip.one, trip.some] if echo.flipped else found


def through_c(built: Built, interface: Echoes, echo: Echo, trip: Trip, handle: bool) -> tuple[list[Any], Any]:
    """The results by the stub in C, and the call that it made: its word and in buffers."""
    given, readers, seen = Arguments(), [], []
    if handle:
        given.values.append(ctypes.c_uint64(7))
    for kind, value in zip(echo.kinds, trip.values, strict=True):
        given.add_in(kind, value)
        readers.append(given.add_out(kind, None if is_fixed(kind) else room(kind, value)))
    if echo.flipped:
        readers += [
            given.add_inrout(echo.flipped, trip.one),
            given.add_inrout(Sequence(echo.flipped), trip.some),
        ]
    skel = built.skel(interface, handle)

    def hook(h: int, word: int, args: Any) -> int:
        buffers = [args[i].buffer for i in range(word >> 16 & 255)]
        seen.append((word, [ctypes.string_at(one.data, one.size) if one.size else b"" for one in buffers]))
        return int(skel(h, word, args))

    kept = HOOK(hook)
    ctypes.c_void_p.in_dll(built.stubs, "hook").value = ctypes.cast(kept, ctypes.c_void_p).value
    status = getattr(built.stubs, f"{interface.name}_{echo.name}")(*given.values)
    assert status == 0
    return [plain(read()) for read in readers], seen[0]


@pytest.mark.parametrize("number", SEEDS)
def test_values_come_back_and_both_stubs_pack_alike(built: Built, number: int) -> None:
    interface, methods, handle = built.interfaces[number]
    for seed in range(20):
        source = Random(random.Random(1000 * number + seed))  # noqa: S311
        for echo, method in zip(interface.methods, methods, strict=True):
            trip = Trip.of(echo, source)
            expected = [plain(value) for value in trip.expected(echo)]
            results, (word, buffers) = through_c(built, interface, echo, trip, handle)
            assert results == expected, (seed, echo)

            call = Call(method, python_values(echo, trip))
            assert call.scalars == word
            assert [bytes(one) for one in call.ins] == buffers, (seed, echo)
            assert built.skel(interface, handle)(7, call.scalars, arguments(call)) == 0
            found = call.results()
            assert plain(found if len(expected) > 1 else [found] if expected else []) in (
                expected,
                tuple(expected),
            )


def test_a_skel_refuses_every_call_that_lacks_a_byte_or_a_buffer(built: Built) -> None:
    interface, methods, handle = built.interfaces[0]
    source = Random(random.Random(5))  # noqa: S311
    skel = built.skel(interface, handle)
    for echo, method in zip(interface.methods, methods, strict=True):
        call = Call(method, python_values(echo, Trip.of(echo, source)))
        count = len(call.ins) + len(call.outs)
        for index in range(count):
            shorter = arguments(call)
            if shorter[index].buffer.size:
                shorter[index].buffer.size -= 1
                assert skel(7, call.scalars, shorter) == 14, (echo, index)
        for step in (1 << 16, 1 << 8, 1 << 4, 1):  # one in buffer, out buffer, in handle, out handle more
            more = (Argument * (count + 1))(*arguments(call)[:count])
            assert skel(7, call.scalars + step, more) == 14, (echo, step)
        assert skel(7, call.scalars | 1 << 31, arguments(call)) == 14
    assert skel(7, 30 << 24, (Argument * 1)()) in (14, 20)


def test_an_unknown_method_is_unsupported(built: Built) -> None:
    interface, _, handle = built.interfaces[0]
    skel = built.skel(interface, handle)
    number = ctypes.c_uint32(1000)
    args = (Argument * 1)()
    args[0].buffer.data, args[0].buffer.size = ctypes.addressof(number), 4
    assert skel(7, 31 << 24 | 1 << 16, args) == 20
    number.value = 3  # small numbers are in the word
    assert skel(7, 31 << 24 | 1 << 16, args) == 14
    assert skel(7, 31 << 24, args) == 14
