"""Signatures: the structure of a function's arguments and results, as data."""

from farcall.abi.annotated import annotated
from farcall.abi.annotations import Array
from farcall.abi.building import Arg, parse_leaf
from farcall.abi.classes import register_class
from farcall.abi.function_abi import FunctionAbi
from farcall.abi.leaves import Leaf, ListSpec, RefSpec, ScalarSpec, TensorSpec
from farcall.abi.signature import Parameter, Signature
from farcall.abi.structure import Fields, Items, Node, Nothing, Repeated, Slot

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
