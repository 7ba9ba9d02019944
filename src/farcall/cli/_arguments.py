"""Reads arguments from files, and turns results into arrays, by the names in a Signature."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from farcall.abi import Fields, Items, Node, Parameter, RefSpec, ScalarSpec, Signature, Slot, TensorSpec
from farcall.abi._classes import class_of
from farcall.abi._structure import slots
from farcall.cli._values import load_array

if TYPE_CHECKING:
    import numpy as np

    from farcall.abi import Leaf


def leaf_names(signature: Signature) -> dict[str, int]:
    """The index of each input by its name, as errors write names: ``image``, ``tokens["ids"][1]``."""
    return {
        parameter.name + path: index
        for parameter in signature.parameters
        for path, index in slots(parameter.node)
    }


def read_inputs(signature: Signature, texts: Sequence[str]) -> dict[int, Any]:
    """Read the values that ``NAME=FILE`` texts name, by the index of their leaf.

    Args:
        signature: the Signature of the function that gets the values.
        texts: NAME is a name of :func:`leaf_names`, or its dotted form, ``tokens.ids.1``. FILE is an array
            that ``numpy.save`` wrote. For a number or a text, it may be the value itself.

    Raises:
        click.UsageError: a name is unknown, missing or given twice, or a file cannot be read.
    """
    names = leaf_names(signature)
    spoken = {_dotted(name): index for name, index in names.items()} | names
    files: dict[int, str] = {}
    for text in texts:
        name, file = _split(text, spoken, signature)
        if spoken[name] in files:
            raise click.BadParameter(f"input {name!r} is given twice", param_hint="--input")
        files[spoken[name]] = file
    _check_missing(signature, names, files)
    return {index: _value(signature.inputs[index], file, name) for name, index, file in _found(names, files)}


def _found(names: Mapping[str, int], files: Mapping[int, str]) -> list[tuple[str, int, str]]:
    return [(name, index, files[index]) for name, index in names.items() if index in files]


def _dotted(path: str) -> str:
    """``tokens.ids.1`` for ``tokens["ids"][1]``."""
    return path.replace('["', ".").replace('"]', "").replace("[", ".").replace("]", "")


def _split(text: str, names: Mapping[str, int], signature: Signature) -> tuple[str, str]:
    """Split a text into name and file. Known names come first, since a name may contain ``=``."""
    for name in names:
        if text.startswith(f"{name}=") and len(text) > len(name) + 1:
            return name, text[len(name) + 1 :]
    wanted = f"; the inputs are {_listed(signature)}"
    name, equals, file = text.partition("=")
    if not equals or not file:
        raise click.BadParameter(f"{text!r}: expected NAME=FILE.npy{wanted}", param_hint="--input")
    close = difflib.get_close_matches(name, names, 1)
    meant = f"; did you mean {close[0]!r}?" if close else ""
    raise click.BadParameter(f"the model has no input {name!r}{meant}{wanted}", param_hint="--input")


def _listed(signature: Signature) -> str:
    leaves = [f"{name}: {signature.inputs[i].type}" for name, i in leaf_names(signature).items()]
    return ", ".join(leaves) or "none"


def _check_missing(signature: Signature, names: Mapping[str, int], files: Mapping[int, str]) -> None:
    missing = [
        (name, index)
        for parameter in signature.parameters
        for name, index in _leaves_of(parameter)
        if index not in files and not _is_left_out(parameter, files)
    ]
    if missing:
        listed = ", ".join(f"{name}: {signature.inputs[index].type}" for name, index in missing)
        cure = " ".join(f"--input {_dotted(name)}=FILE.npy" for name, _ in missing)
        raise click.UsageError(f"missing inputs: {listed}; add {cure}")


def _leaves_of(parameter: Parameter) -> list[tuple[str, int]]:
    return [(parameter.name + path, index) for path, index in slots(parameter.node)]


def _is_left_out(parameter: Parameter, files: Mapping[int, str]) -> bool:
    """Whether the user left out a parameter that is optional."""
    return not parameter.required and not any(index in files for _, index in _leaves_of(parameter))


def _value(leaf: Leaf, file: str, name: str) -> Any:
    if isinstance(leaf, ScalarSpec) or (isinstance(leaf, TensorSpec) and leaf.shape == ()):
        return _number(file, name)
    if isinstance(leaf, TensorSpec):
        return _load(file, name)
    if isinstance(leaf, RefSpec) and leaf.kind in ("str", "any"):
        return file
    raise click.BadParameter(
        f"input {name!r} is a {leaf.type}, which no file can hold; call the function from Python",
        param_hint="--input",
    )


def _number(text: str, name: str) -> Any:
    try:
        number = json.loads(text)
    except ValueError:
        return _load(text, name)[()]  # the number in an array of rank 0
    if not isinstance(number, int | float):
        raise click.BadParameter(f"input {name!r}: expected a number, got {text!r}", param_hint="--input")
    return number


def _load(file: str, name: str) -> np.ndarray:
    try:
        return load_array(file)
    except click.BadParameter as error:
        raise click.BadParameter(f"input {name!r}: {error.message}", param_hint="--input") from None


def call_arguments(signature: Signature, values: Mapping[int, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of the Python call: nested as the parameters are, without those that were left out."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for position, parameter in enumerate(signature.parameters):
        leaves = _leaves_of(parameter)
        if leaves and not any(index in values for _, index in leaves):
            continue
        value = _nested(parameter.node, values)
        if parameter.kind != "keyword_only" and len(args) == position:
            args.append(value)
        else:
            kwargs[parameter.name] = value
    return args, kwargs


def _nested(node: Node, values: Mapping[int, Any]) -> Any:
    if isinstance(node, Slot):
        return values[node.index]
    if isinstance(node, Items):
        items = [_nested(item, values) for item in node.items]
        return items if node.kind == "list" else tuple(items)
    if not isinstance(node, Fields):
        return None
    fields = {key: _nested(child, values) for key, child in node.fields}
    return fields if node.kind == "dict" else class_of(node)(**fields)


def result_arrays(signature: Signature, result: Any) -> dict[str, np.ndarray]:
    """The leaves of a call's result as arrays, by their names or paths."""
    import numpy as np

    flat: dict[int, Any] = {}
    _take_apart(signature.result_node, result, flat)
    paths = {index: f"result{path}" for path, index in slots(signature.result_node)}
    return {
        leaf.name or paths[i]: flat[i].numpy() if hasattr(flat[i], "numpy") else np.asarray(flat[i])
        for i, leaf in enumerate(signature.outputs)
    }


def _take_apart(node: Node, value: Any, flat: dict[int, Any]) -> None:
    if isinstance(node, Slot):
        flat[node.index] = value
    elif isinstance(node, Items):
        for item, child in zip(value, node.items, strict=True):
            _take_apart(child, item, flat)
    elif isinstance(node, Fields):
        for key, child in node.fields:
            _take_apart(child, value[key] if node.kind == "dict" else getattr(value, key), flat)
