"""The readers and writers of Signatures.

The methods of :class:`~farcall.abi.Signature` call these functions, and these functions make Signatures. To
avoid an import cycle, Signature imports this module only when one of those methods is first called.
"""

from __future__ import annotations

from farcall.abi._annotations import from_callable
from farcall.abi._building import build
from farcall.abi._metadata import from_metadata
from farcall.abi.calls._function_abi import FunctionAbi
from farcall.abi.iree._json import from_iree, to_iree_json
from farcall.abi.iree._raw import text as raw_text
from farcall.abi.iree._reflection import from_reflection, to_reflection

__all__ = [
    "FunctionAbi",
    "build",
    "from_callable",
    "from_iree",
    "from_metadata",
    "from_reflection",
    "raw_text",
    "to_iree_json",
    "to_reflection",
]
