"""The activation functions of LSTM, GRU and RNN, as C expressions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from farcall.backends._ctext import c_literal
from farcall.backends.c import _scalar as scalar
from farcall.backends.c._node import Unsupported

# Name -> defaults of alpha and beta; None: the function does not have it, and takes none of the node's list.
_PARAMETERS: dict[str, tuple[float | None, float | None]] = {
    "relu": (None, None),
    "tanh": (None, None),
    "sigmoid": (None, None),
    "softsign": (None, None),
    "softplus": (None, None),
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01, None),
    "thresholdedrelu": (1.0, None),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, None),
}


@dataclass(frozen=True)
class Activation:
    """A function of one element. ``alpha`` and ``beta`` mean something to some functions only."""

    name: str
    alpha: float
    beta: float

    def text(self, x: str, dtype: ir.DataType | None) -> str:
        """The C expression; ``x`` is the name of a variable."""
        one, a, b = (c_literal(value, dtype) for value in (1, self.alpha, self.beta))
        sigmoid, expm1, tanh, fabs, softplus = (
            scalar.function(dtype, name) for name in ("sigmoid", "expm1", "tanh", "fabs", "softplus")
        )
        line = f"{a} * {x} + {b}"
        return {
            "relu": f"({x} < 0 ? 0 : {x})",
            "tanh": f"{tanh}({x})",
            "sigmoid": f"{sigmoid}({x})",
            "softsign": f"({x} / ({one} + {fabs}({x})))",
            "softplus": f"{softplus}({x})",
            "affine": f"({line})",
            "leakyrelu": f"({x} < 0 ? {a} * {x} : {x})",
            "thresholdedrelu": f"({x} < {a} ? 0 : {x})",
            "scaledtanh": f"({a} * {tanh}({b} * {x}))",
            "hardsigmoid": f"({line} < 0 ? 0 : {line} > 1 ? {one} : {line})",
            "elu": f"({x} < 0 ? {a} * {expm1}({x}) : {x})",
        }[self.name]


def activations(node: ir.Node, defaults: tuple[str, ...], directions: int) -> list[Activation]:
    """The functions of all directions, in the order of the attribute ``activations``.

    Each takes the next element of ``activation_alpha`` and of ``activation_beta`` if it has that parameter.
    """
    names = [*defaults] * directions
    if "activations" in node.attributes:
        names = list(node.attributes["activations"].as_strings())
    if len(names) != len(defaults) * directions:
        raise Unsupported(f"{len(names)} activations; {len(defaults) * directions} are needed")
    alphas, betas = (_floats(node, f"activation_{name}") for name in ("alpha", "beta"))
    return [_activation(name, alphas, betas) for name in names]


def _floats(node: ir.Node, name: str) -> Iterator[float]:
    return iter(node.attributes[name].as_floats() if name in node.attributes else ())


def _activation(name: str, alphas: Iterator[float], betas: Iterator[float]) -> Activation:
    key = name.lower()
    if key not in _PARAMETERS:
        raise Unsupported(f"the activation `{name}`")
    alpha, beta = _PARAMETERS[key]
    return Activation(
        key,
        0.0 if alpha is None else float(next(alphas, alpha)),
        0.0 if beta is None else float(next(betas, beta)),
    )
