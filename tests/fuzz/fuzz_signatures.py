"""The encodings of Signatures: raw, SIP, both together, `iree.abi`, declarations, and farcall's JSON.

The first byte selects one. Any bytes give a Signature or one error; a Signature survives writing and reading.
"""

from __future__ import annotations

import msgspec

from farcall.abi import Signature
from farcall.abi.iree import _raw as raw
from farcall.abi.iree import _sip as sip
from farcall.errors import SignatureError

from . import harness


def _raw(data: bytes) -> None:
    found = raw.parse(data)
    text = raw.emit(*found)
    assert raw.parse(text) == found
    assert raw.emit(*raw.parse(text)) == text


def _sip(data: bytes) -> None:
    found = sip.parse(data)
    assert sip.parse(sip.emit(found)) == found


def _reflection(data: bytes) -> None:
    flat, _, nested = data.decode("utf-8", "surrogateescape").partition("\n")
    made = Signature.from_reflection({"f": flat, "fv": "1", "abi": "sip", "sip": nested})
    attributes = made.to_reflection()
    again = Signature.from_reflection(attributes)
    assert again.to_reflection() == attributes
    assert str(again) == str(made)


def _iree_json(data: bytes) -> None:
    made = Signature.from_iree(data)
    text = made.to_iree_json()
    again = Signature.from_iree(text)
    assert again == made
    assert again.to_iree_json() == text


def _declaration(data: bytes) -> None:
    declaration = data.decode("utf-8", "surrogateescape")
    assert str(Signature.from_iree({"iree.abi.declaration": declaration}))


def _own_json(data: bytes) -> None:
    made = msgspec.json.decode(data, type=Signature)
    assert msgspec.json.decode(msgspec.json.encode(made), type=Signature) == made
    assert str(made)


_PARSERS = (_raw, _sip, _reflection, _iree_json, _declaration, _own_json)


def one_input(data: bytes) -> None:
    """The bytes give a Signature or one of these errors."""
    try:
        _PARSERS[data[0] % len(_PARSERS) if data else 0](data[1:])
    except (SignatureError, msgspec.MsgspecError, UnicodeDecodeError):
        return


if __name__ == "__main__":
    harness.main("signatures", one_input)
