"""Mistakes in interface files: each error shows the place, the line, and the cure."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from farcall.errors import IdlError, MissingFileError, UsageError
from farcall.idl import compile as compile_idl
from farcall.idl._compile import parse_text
from farcall.idl._source import Source

MISTAKES = [
    ("interface i { long m(in int x); };", "1:25: no type `int`; write long"),
    ("interface i { long m(in lnog x); };", "1:25: no type `lnog`; did you mean `long`?"),
    ("interface i { long m(long x); };", "write its mode first: in, rout or inrout; found `long`"),
    ("interface i { long m(out long x); };", "write `rout`; found `out`"),
    ("interface i { void m(); };", "a method returns a status: write AEEResult"),
    ("interface i { long m(in uint32 x); };", '`uint32` is declared by AEEStdDef.idl; add #include'),
    ("interface i : remote_handle64 { };", "`remote_handle64` is declared by remote.idl"),
    ("interface i { long m(); long m(); };", "has a method `m` already; rename it"),
    ("interface i { long m(in long a, in long a); };", "two parameters are called `a` in C"),
    ("interface i { long m(in sequence<octet> a, in long aLen); };", "parameters are called `aLen`"),
    ("interface i { long m(in long while); };", "`while` is reserved in C; choose another"),
    ("interface i { long m(in long class); };", "`class` is reserved in C++"),
    ("interface i { long m(in long _x); };", "names that begin with `_` belong to the compiler"),
    ("interface i { long m(in long x) };", "1:33: expected `;` behind the method; found `}`"),
    ("interface i { long m(in long x", "expected `,` between parameters; the file ends"),
    ("struct s { s x; };", "struct s contains itself, and would have no end"),
    ("struct s { long x; long x; };", "struct s has two fields `x`; rename one"),
    ("struct s { };", "struct s has no fields, which C does not allow"),
    ("typedef long x; typedef long x;", "`x` exists in the C code already, line 1 of x.idl"),
    ("typedef long memcpy;", "`memcpy` is a function of the C library"),
    ("typedef long int32_t;", "`int32_t` may be defined by the C library"),
    ("struct i_m { long x; }; interface i { long m(); };", "`i_m` exists in the C code already"),
    ("module m { };", "there are no modules; put its name before the names of its interfaces"),
    ("union u { };", "there are no unions"),
    ("interfase i { };", "did you mean `interface`?"),
    ("interface i : a { };", "no interface `a`; declare it before this line"),
    ("typedef sequence<octet, 5> x;", "a sequence has no bound here"),
    ("typedef sequence<sequence<octet>> x;", "has the name of a typedef"),
    ("typedef sequence<octet> a; typedef sequence<a> b; typedef sequence<b> c;", "nest twice at most"),
    ("struct s { long big[70000]; };", "the length of an array is from 1 to 65536, not 70000"),
    ("struct s { long big[65536]; };", "an array has at most 65536 bytes"),
    ("const octet x = 256;", "a constant of type octet is a whole number from 0 to 255"),
    ("const long x = y;", "no constant `y`; declare it before this line"),
    ("const long x = 010;", "a leading 0 would mean octal in C"),
    ('const string x = "a\\q";', "unknown escape \\q"),
    ('const string x = "a', 'this " has no partner on its line'),
    ("/* never ends", "this comment has no end; write */ behind it"),
    ("#define X 1 + 2", "the directive 'define' is not supported: there is no preprocessor here"),
    ('#include "other.idl"', "cannot be included: this text is not in a folder"),
    ("interface i { long m(rout dmahandle h); };", "a dmahandle cannot be rout"),
    ("struct s { string x; }; interface i { long m(inrout s x); };", "a struct with sequences is in or rout"),
    (f"interface i {{ long m({', '.join(f'in long x{n}' for n in range(65))}); }};", "at most 64 parameters"),
    (f"interface i {{ long m({', '.join(f'in dmahandle x{n}' for n in range(16))}); }};", "at most 15"),
    ("interface i { long m() @ };", "'@' is not part of the language; remove it"),
    ("x" * 101, "a name has at most 100 characters, this one 101"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), MISTAKES, ids=[text[:40] for text, _ in MISTAKES])
def test_a_mistake_is_explained(text: str, message: str) -> None:
    with pytest.raises(IdlError) as error:
        parse_text(Source("x.idl", text))
    assert message in str(error.value)
    first, line, carets = str(error.value).split("\n")
    assert first.startswith(f"x.idl:{error.value.line}:{error.value.column}: ")
    assert carets.strip("^ ") == ""
    assert line


def test_the_line_is_shown_with_a_caret() -> None:
    with pytest.raises(IdlError) as error:
        parse_text(Source("a.idl", "// one\ninterface i {\n\tlong m(in lnog x);\n};\n"))
    assert str(error.value) == (
        "a.idl:3:12: no type `lnog`; did you mean `long`?\n   long m(in lnog x);\n             ^^^^"
    )
    assert (error.value.path, error.value.line, error.value.column) == ("a.idl", 3, 12)
    again = pickle.loads(pickle.dumps(error.value))  # noqa: S301
    assert (str(again), again.line) == (str(error.value), 3)


def test_a_long_line_is_shown_in_part_and_control_characters_are_not() -> None:
    with pytest.raises(IdlError) as error:
        parse_text(Source("a.idl", f"/*{'y' * 5000}*/ \x1b struct s {{ }};"))
    _, line, _ = str(error.value).split("\n")
    assert len(line) < 130
    assert "\x1b" not in str(error.value)


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.idl").write_text(text)
    return folder / "main.idl"


def test_included_files_are_found_once_and_get_headers(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/deep.idl").write_text("struct point { long x; };\n")
    main = write(
        tmp_path,
        types='#ifndef X\n#define X\n#pragma once\n#include "parts/deep.idl"\n'
        "typedef sequence<point> points;\n#endif\n",
        main='#include "types.idl"\n#include "parts/deep.idl"\ninterface i { long m(in points p); };\n',
    )
    files = {path.relative_to(tmp_path).as_posix() for path in compile_idl(main, tmp_path)}
    assert files == {"main.h", "types.h", "parts/deep.h", "main_skel.c", "main_stub.c"}
    assert '#include "types.h"\n#include "parts/deep.h"\n' in (tmp_path / "main.h").read_text()


@pytest.mark.parametrize(
    ("include", "message"),
    [
        ('"../out.idl"', "is outside of the folder"),
        ('"/etc/passwd.idl"', "is outside of the folder"),
        ('"link.idl"', "is outside of the folder"),
        ('"absent.idl"', "no file 'absent.idl' beside this one"),
        ('"main.idl"', "'main.idl' includes itself"),
        ('"text.txt"', "has a name that ends in .idl"),
        ('"a.idl" junk', "the directive 'include' is not supported"),
    ],
)
def test_files_that_cannot_be_included(tmp_path: Path, include: str, message: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "out.idl").write_text("struct s { long x; };")
    (folder / "link.idl").symlink_to(tmp_path / "out.idl")
    main = write(folder, main=f"#include {include}\ninterface i {{ }};\n")
    with pytest.raises(IdlError) as error:
        compile_idl(main, tmp_path)
    assert message in str(error.value)
    assert not list(tmp_path.glob("*.h"))


def test_files_that_cannot_be_compiled(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"cannot read .*absent.idl.*name an .idl file"):
        compile_idl(tmp_path / "absent.idl", tmp_path)
    empty = write(tmp_path, main="struct s { long x; };")
    with pytest.raises(IdlError, match="no interface; declare one"):
        compile_idl(empty, tmp_path)
    good = write(tmp_path, main="interface i { };")
    with pytest.raises(UsageError, match="there is no folder"):
        compile_idl(good, tmp_path / "absent")
    with pytest.raises(UsageError, match="no stubs in 'java'; the languages are c and python"):
        compile_idl(good, tmp_path, stubs=("java",))  # type: ignore[arg-type]
    (tmp_path / "bad-name.idl").write_text("interface i { };")
    with pytest.raises(IdlError, match="the names of files and folders become parts of the code"):
        compile_idl(tmp_path / "bad-name.idl", tmp_path)
    (tmp_path / "latin.idl").write_bytes(b"// \xe9\n")
    with pytest.raises(IdlError, match=r"latin\.idl:1:4: this byte is not UTF-8"):
        compile_idl(tmp_path / "latin.idl", tmp_path)
