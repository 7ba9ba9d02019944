"""The interface language: any text is refused with one error, or becomes code that is whole."""

from __future__ import annotations

import ast
import re

from farcall.errors import IdlError
from farcall.idl._c_header import header
from farcall.idl._c_skel import skel
from farcall.idl._c_stub import stub
from farcall.idl._compile import parse_text
from farcall.idl._python import python_stub
from farcall.idl._source import source_of

from . import harness

_STRING = re.compile(r'"(?:[^"\\\n]|\\[0-7]{3})*"')


def one_input(data: bytes) -> None:
    """Parse the bytes; generate all code."""
    try:
        unit = parse_text(source_of("fuzz.idl", data))
    except IdlError as error:
        assert error.line >= 1
        assert error.column >= 1
        assert "\x1b" not in str(error)
        return
    ast.parse(python_stub(unit))
    for text in (header(unit), stub(unit), skel(unit)):
        code = _STRING.sub("", text)
        assert '"' not in code, "a text ends early"
        assert code.isascii()
        for pair in ("()", "{}", "[]"):
            assert code.count(pair[0]) == code.count(pair[1])


if __name__ == "__main__":
    harness.main("idl", one_input)
