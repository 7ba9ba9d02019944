"""Arguments of a model's ``main`` for measurements: what the caller gives, and random arrays for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from farcall.abi._leaves import is_numeric
from farcall.errors import UsageError

if TYPE_CHECKING:
    from farcall.abi import Signature


def made_up(signature: Signature, given: Mapping[str, Any]) -> dict[str, Any]:
    """A value for each input, by name; symbolic dims of random arrays are 1.

    Raises:
        UsageError: ``given`` has a name that no input has, or lacks an input of which no value is made up.
    """
    chance = np.random.default_rng(0)
    specs = {spec.name: spec for spec in signature.inputs}
    unknown = set(given) - set(specs)
    if unknown:
        raise UsageError(f"inputs: the model has no input `{min(unknown)}`; it has {', '.join(specs)}")
    missing = next((s for s in specs.values() if s.name not in given and not is_numeric(s)), None)
    if missing is not None:
        raise UsageError(f"inputs: expected a value of `{missing}`, of which none is made up")
    return {**{name: _random(spec, chance) for name, spec in specs.items() if name not in given}, **given}


def _random(spec: Any, chance: np.random.Generator) -> np.ndarray:
    """An array for an input: values around 0; whole numbers are 0, since they may be indices."""
    shape = [dim if isinstance(dim, int) else 1 for dim in spec.shape or ()]
    dtype = np.dtype(str(spec.dtype))
    if dtype.kind == "f":
        return chance.standard_normal(shape).astype(dtype)
    return np.zeros(shape, dtype)
