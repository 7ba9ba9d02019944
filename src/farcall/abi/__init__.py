"""Signatures: the structure of a function's arguments and results, as data."""

from farcall.abi._annotations import Array
from farcall.abi._building import Arg, parse_leaf
from farcall.abi._classes import register_class
from farcall.abi._leaves import Leaf, ListSpec, RefSpec, ScalarSpec, TensorSpec
from farcall.abi._signature import Parameter, Signature
from farcall.abi._structure import Fields, Items, Node, Nothing, Repeated, Slot
from farcall.abi.calls._annotated import annotated
from farcall.abi.calls._function_abi import FunctionAbi

__all__ = [
    "Arg",
    "Array",
    "Fields",
    "FunctionAbi",
    "Items",
    "Leaf",
    "ListSpec",
    "Node",
    "Nothing",
    "Parameter",
    "RefSpec",
    "Repeated",
    "ScalarSpec",
    "Signature",
    "Slot",
    "TensorSpec",
    "annotated",
    "parse_leaf",
    "register_class",
]
__dir__ = __all__.copy
