"""Signatures: the structure of a function's arguments and results, as data."""

from farcall.abi.signature import Signature, TensorSpec

__all__ = ["Signature", "TensorSpec"]
