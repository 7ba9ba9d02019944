"""Words and buffers that are known: those of TVM's interface, and of the rules that public headers show."""

from __future__ import annotations

import struct

import pytest

from farcall.errors import ArgumentError
from farcall.idl._compile import parse_text
from farcall.idl._declarations import Interface, Method
from farcall.idl._packing import layout_of
from farcall.idl._source import Source
from farcall.idl._values import Call

HEAD = '#include "AEEStdDef.idl"\n#include "remote.idl"\n'
HEXAGON_RPC = """
typedef sequence<octet> buffer;
interface hexagon_rpc : remote_handle64 {
  AEEResult send(in buffer data);
  AEEResult receive(rout sequence<octet> buf, rout int64 written);
  AEEResult init(in uint32 buff_size_bytes);
};
"""


def interface_of(text: str) -> Interface:
    return parse_text(Source("x.idl", HEAD + text)).interfaces[-1]


def method_of(parameters: str, before: str = "") -> Method:
    return interface_of(f"{before} interface i {{ long m({parameters}); }};").methods[0]


def test_words_and_buffers_of_hexagon_rpc() -> None:
    send, receive, init = interface_of(HEXAGON_RPC).methods
    call = Call(init, [0x11223344])
    assert (call.scalars, call.ins, call.outs) == (0x04010000, [b"\x44\x33\x22\x11"], [])
    call = Call(send, [b"abc"])
    assert (call.scalars, call.ins, call.outs) == (0x02020000, [b"\x03\0\0\0", b"abc"], [])
    call = Call(receive, [5])
    assert (call.scalars, call.ins) == (0x03010200, [b"\x05\0\0\0"])
    assert [len(out) for out in call.outs] == [8, 5]
    call.outs[0][:], call.outs[1][:] = struct.pack("<q", 2), b"xyzzz"
    assert call.results() == (b"xyzzz", 2)


def test_fields_have_their_natural_alignment() -> None:
    method = method_of("in uint32 a, in uint32 b, in uint32 c, in uint64 d")
    prim = layout_of(method).prim_in
    assert [slot.offset for slot in prim.slots] == [0, 4, 8, 16]
    assert prim.size == 24
    assert Call(method, [1, 2, 3, 4]).ins == [struct.pack("<IIIxxxxQ", 1, 2, 3, 4)]


def test_the_size_is_rounded_to_the_strictest_alignment() -> None:
    assert layout_of(method_of("in uint64 a, in octet b")).prim_in.size == 16
    assert layout_of(method_of("in octet a, in short b, in octet c")).prim_in.size == 6


def test_a_method_of_nothing_has_no_buffers() -> None:
    call = Call(method_of(""), [])
    assert (call.scalars, call.ins, call.outs, call.results()) == (0, [], [], None)


def test_handles_move_the_first_method_to_two_and_inheritance_appends() -> None:
    text = """
    interface base : remote_handle64 { long a(); long b(); };
    interface derived : base { long c(); };
    """
    assert [(m.name, m.id) for m in interface_of(text).methods] == [("a", 2), ("b", 3), ("c", 4)]
    assert [(m.name, m.id) for m in interface_of("interface i { long a(); long b(); };").methods] == [
        ("a", 0),
        ("b", 1),
    ]


def test_a_number_from_31_on_is_in_the_first_buffer() -> None:
    text = "interface i {" + "".join(f"long m{n}(in octet x);" for n in range(33)) + "};"
    methods = interface_of(text).methods
    assert Call(methods[30], [7]).ins == [b"\x07"]
    assert Call(methods[30], [7]).scalars == 30 << 24 | 1 << 16
    assert Call(methods[31], [7]).scalars == 31 << 24 | 1 << 16
    assert Call(methods[31], [7]).ins == [b"\x1f\0\0\0\x07\0\0\0"]
    assert Call(methods[32], [7]).ins == [b"\x20\0\0\0\x07\0\0\0"]


def test_a_string_counts_its_nul_and_one_that_comes_back_its_room() -> None:
    call = Call(method_of("in string a, rout string b"), ["hi", 9])
    assert call.scalars == 2 << 16 | 1 << 8
    assert call.ins == [struct.pack("<II", 3, 9), b"hi\0"]
    assert len(call.outs[0]) == 9
    call.outs[0][:] = b"yes\0abcde"
    assert call.results() == "yes"


def test_inrout_goes_both_ways() -> None:
    call = Call(method_of("inrout long a, inrout sequence<short> b"), [5, [1, 2]])
    assert call.scalars == 2 << 16 | 2 << 8
    assert call.ins == [struct.pack("<iI", 5, 2), struct.pack("<hh", 1, 2)]
    assert [len(out) for out in call.outs] == [4, 4]


def test_a_sequence_of_sequences_has_its_lengths_in_a_buffer() -> None:
    before = "typedef sequence<octet> row;"
    call = Call(method_of("in sequence<row> a", before), [[b"ab", b"", b"c"]])
    assert call.scalars == 5 << 16
    assert call.ins == [b"\x03\0\0\0", struct.pack("<III", 2, 0, 1), b"ab", b"", b"c"]
    call = Call(method_of("rout sequence<row> a", before), [[4, 2]])
    assert call.scalars == 2 << 16 | 2 << 8
    assert call.ins == [b"\x02\0\0\0", struct.pack("<II", 4, 2)]
    assert call.results() == [b"\0\0\0\0", b"\0\0"]


def test_a_dmahandle_is_a_handle_and_a_size() -> None:
    call = Call(method_of("in dmahandle h, in long x"), [(3, 64, 4096), 1])
    assert call.scalars == 1 << 16 | 1 << 4
    assert (call.ins, call.handles) == ([struct.pack("<Ii", 4096, 1)], [(3, 64)])


def test_the_fields_of_a_struct_with_sequences_are_packed_one_by_one() -> None:
    before = "struct s { long a; sequence<octet> b; string c; };"
    call = Call(method_of("in s x", before), [(7, b"zz", "q")])
    assert call.scalars == 3 << 16
    assert call.ins == [struct.pack("<iII", 7, 2, 2), b"zz", b"q\0"]
    call = Call(method_of("rout s x", before), [(3, 4)])
    call.outs[0][:], call.outs[1][:], call.outs[2][:] = struct.pack("<i", 9), b"abc", b"de\0f"
    assert call.results() == (9, b"abc", "de")


@pytest.mark.parametrize(
    ("parameters", "values", "message"),
    [
        ("in octet x", [256], "`x` of `m`: ubyte format requires 0 <= number <= 255; got 256"),
        ("in long x[3]", [[1, 2]], "`x` of `m`: expected 3 elements, got 2"),
        ("in string x", ["a\0b"], "`x` of `m`: expected a text without NUL"),
        ("rout string x", [-1], "`x` of `m`: expected the room for the result"),
        ("in sequence<long> x", [b"abc"], "3 bytes are no whole number of elements of 4 bytes"),
        ("in long x", [1, 2], "expected 1 values, got 2"),
        ("in sequence<string> x", [["a"] * 300], "302 buffers, and a call has at most 255"),
        ("inrout string x", [("long text", 3)], "the text has 10 units with its NUL, and room for 3"),
    ],
)
def test_values_that_do_not_fit(parameters: str, values: list[object], message: str) -> None:
    with pytest.raises(ArgumentError) as error:
        Call(method_of(parameters), values)
    assert message in str(error.value)
