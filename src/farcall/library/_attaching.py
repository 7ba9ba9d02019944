"""The Signatures of an artifact's functions, which its manifest holds, for local and remote callers."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from farcall.abi import Signature, TensorSpec
from farcall.library._elf import Elf, parse_library
from farcall.library._manifest import Manifest, stated_manifest


def signatures_of(manifest: Manifest | None) -> Mapping[str, Signature]:
    """The FunctionAbi of each function of an artifact, by name; empty for a plain library.

    The entry code of an artifact accepts strides: it gathers tensors that are not row-major by itself.
    """
    if manifest is None:
        return {}
    found = {name: function.signature for name, function in manifest.functions.items()}
    found |= {region.name: region.signature for region in manifest.regions if region.signature is not None}
    return {name: _with_strides(signature) for name, signature in found.items()}


def read_signatures(data: bytes, what: str) -> Mapping[str, Signature]:
    """The same, from the bytes of a library, which may be for another machine; empty without a manifest.

    This function does not check the digest, which would take one more pass over the file: the loader does.

    Args:
        data: the whole file.
        what: the name of the file in errors.

    Raises:
        ArtifactError: the file is not a library, or its manifest is damaged.
    """
    parse_library(data, what)
    return signatures_of(stated_manifest(Elf(data, what)))


def _with_strides(signature: Signature) -> Signature:
    inputs = tuple(
        msgspec.structs.replace(leaf, strided=True) if isinstance(leaf, TensorSpec) else leaf
        for leaf in signature.inputs
    )
    return msgspec.structs.replace(signature, inputs=inputs)
