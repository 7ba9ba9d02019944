"""The error that no backend takes some nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from farcall._texts import count
from farcall.errors import UnsupportedOperatorError
from farcall.graph._annotate import Answer, Answers, Claims, describe_node
from farcall.graph._expand import Expansion, origin
from farcall.graph._microsoft_calls import DEFINITIONS, DOMAIN
from farcall.library._why import CONTROL

_LISTED = 5  # nodes that an error lists
_FOR_OTHERS = "    its definition by other operators is not for such attributes, operands or opsets"
_KINDS = 10  # operators that it names for the other nodes


def unsupported(
    missing: Sequence[ir.Node],
    answers: Answers,
    backends: Sequence[Claims],
    expansions: Mapping[str, Expansion],
) -> UnsupportedOperatorError:
    """The error that no backend takes some nodes, with what each backend said.

    A node that is from the definition of an operator comes after the node of that operator.
    """
    given = [backend.name for backend in backends if backend.name != CONTROL]
    names = ", ".join(f"`{name}`" for name in given)
    lines = [f"no backend takes {count(len(missing), 'node')} (asked: {names})"]
    shown = ""
    for node in missing[:_LISTED]:
        if origin(node) != shown:
            shown = origin(node)
            for outer in _origins(shown, expansions):
                lines += [f"  {outer.about}", *_said(outer.answers)]
                lines.append(f"    its definition by other operators ({count(len(outer.nodes), 'node')}) has")
        lines += [f"  {describe_node(node)}", *_said(answers.get(node, []))]
        if node.domain == DOMAIN and node.op_type in DEFINITIONS:
            lines.append(_FOR_OTHERS)
    if len(missing) > _LISTED:
        kinds = sorted({node.op_type for node in missing[_LISTED:]})
        more = ", ".join(kinds[:_KINDS]) + (", ..." if len(kinds) > _KINDS else "")
        lines.append(f"  and {len(missing) - _LISTED:,} more: {more}")
    lines.append(_cure(given))
    return UnsupportedOperatorError("\n".join(lines))


def _cure(names: Sequence[str]) -> str:
    """What to do. Nearly all is taken by the backends that compute where the artifact is loaded."""
    other = next((name for name in ("onnxruntime", "reference") if name not in names), None)
    if other is None:
        return "add a backend that takes them, or change the model"
    plan = ", ".join(f'"{name}"' for name in (*names, other))
    return f"add a backend that takes them, such as {other} (backends=[{plan}]), or change the model"


def _origins(name: str, expansions: Mapping[str, Expansion]) -> Iterator[Expansion]:
    """The expansions that led to a node, the outermost first."""
    found = []
    while name:
        found.append(expansions[name])
        name = found[-1].origin
    return reversed(found)


def _said(answers: Sequence[Answer]) -> list[str]:
    return [f"    {answer.backend}: {answer.text}" for answer in answers]
