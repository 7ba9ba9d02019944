"""The Signatures of an artifact's functions: from its manifest, wherever its functions are called from."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from farcall.abi import Signature, TensorSpec
from farcall.library._elf import Elf, parse_library
from farcall.library._manifest import Manifest, stated_manifest


def signatures_of(manifest: Manifest | None) -> Mapping[str, Signature]:
    """By name, how the functions of an artifact are called; none of a plain library.

    The entry code of artifacts heeds strides: it gathers what is not row-major by itself.
    """
    functions = manifest.functions if manifest else {}
    return {name: _with_strides(function.signature) for name, function in functions.items()}


def read_signatures(data: bytes, what: str) -> Mapping[str, Signature]:
    """The same, from the bytes of a library, which may be for another machine; none of one without manifest.

    Who loads it checks its digest: here that would be one more pass over the file.

    Args:
        data: the whole file.
        what: how errors call it.

    Raises:
        ArtifactError: it is no library, or its manifest is damaged.
    """
    parse_library(data, what)
    return signatures_of(stated_manifest(Elf(data, what)))


def _with_strides(signature: Signature) -> Signature:
    inputs = tuple(
        msgspec.structs.replace(leaf, strided=True) if isinstance(leaf, TensorSpec) else leaf
        for leaf in signature.inputs
    )
    return msgspec.structs.replace(signature, inputs=inputs)
