"""Einsum against the reference evaluator, which calls numpy's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from farcall.graph._equation import equation_of

from .cases import Case, check, compare

SIZES = dict(zip("abijklmnI", (2, 3, 5, 7, 4, 6, 1, 9, 8), strict=True))


def operands(equation: str, hidden: tuple[int, ...] = (), dtype: str = "float64") -> list[np.ndarray]:
    """Integers, whose sums are exact."""
    numbers = np.random.default_rng(0)
    found = []
    for term in "".join(equation.split()).partition("->")[0].split(","):
        before, dots, after = term.partition("...")
        shape = [SIZES[i] for i in before] + list(hidden if dots else ()) + [SIZES[i] for i in after]
        found.append(numbers.integers(-4, 5, shape).astype(dtype))
    return found


EQUATIONS = (
    "ij->ji", "ij->i", "ij->", "ii->i", "ii", "iji->ji", "aijaj->ia",
    "ij,jk->ik", "ij,jk",
    "ji,kj->ki", "ij,kj->ik", "ij,jk->ki", "aij,ajk->aik", "aibj,bkja->abik", "bij,jk->bik",
    "i,j->ij", "i,i->", "i,i->i", "ij,ij->ij", "ij,i->j", "ij,kl->", "ij,kl->ljki", "iij,jk->ik", "im,mk->ik",
    "ij, jk, kl -> il", "ijk,jl,kn->inl", "ai,aj,ak->aijk", "i,j,i->j", ",ij->ij", ",->", "Iab,Ibi->Iai",
)  # fmt: skip
HIDDEN = (
    "...ij,...jk->...ik",
    "i...->...i",
    "...i->...",
    "i...,i...->...",
    "...,...->...",
    "...ii->i...",
    "...ij,jk",
)


def cases_of(equations: Sequence[str], hidden: Sequence[str]) -> list[Case]:
    cases = [Case("Einsum", operands(text), {"equation": text}) for text in equations]
    return cases + [Case("Einsum", operands(text, (2, 3)), {"equation": text}) for text in hidden]


def test_some_equations() -> None:
    narrow = Case("Einsum", operands("aij,ajk->aik", dtype="int8"), {"equation": "aij,ajk->aik"})
    check([*cases_of(EQUATIONS[::3], HIDDEN[::3]), narrow])


@pytest.mark.slow
def test_all_equations() -> None:
    cases = cases_of(EQUATIONS, HIDDEN)
    for dtype in ("float32", "uint16", "int64"):
        cases += [
            Case("Einsum", operands(t, dtype=dtype), {"equation": t}) for t in ("aij,ajk->aik", "ij->j")
        ]
    check(cases)


def test_axes_that_repeat() -> None:
    x, y = operands("ij,jk")
    wide, flat = np.ones((2, 1, 5, 7)), np.ones((1, 3, 7, 4))
    check(
        [
            Case("Einsum", [wide, flat], {"equation": "...ij,...jk->...ik"}, shapes={0: [2, 3, 5, 4]}),
            Case("Einsum", [flat, wide], {"equation": "...jk,...ij->i...k"}, shapes={0: [5, 2, 3, 4]}),
            Case("Einsum", [x[:, :0], y[:0]], {"equation": "ij,jk->ki"}),
            Case("Einsum", [x[:0]], {"equation": "ij->j"}),
        ]
    )


def test_symbolic_sizes() -> None:
    shapes = ([2, 3, 4, 5], [2, 3, 6, 5], [2, 3, 6, 4])
    numbers = [
        np.random.default_rng(i).integers(-3, 4, shape).astype("float32") for i, shape in enumerate(shapes)
    ]
    queries = {0: ["b", "h", "n", "d"], 1: ["b", "h", "m", "d"], 2: ["b", "h", "m", "e"]}
    attention = Case("Einsum", numbers, {"equation": "bhid,bhjd,bhje->bihe"}, symbolic=queries)
    hidden = Case(
        "Einsum",
        operands("i...j,...jk", (2,)),
        {"equation": "i...j,...jk"},
        symbolic={0: ["i", "x", "j"], 1: ["x", "j", "k"]},
    )
    first, second = check([attention, hidden])
    other = [number[:1, :, :3] for number in numbers]
    compare(attention, first(*other), attention.expected(other))
    other = [np.ones((2, 4, 3)), np.ones((4, 3, 9))]
    compare(hidden, second(*other), hidden.expected(other))


@pytest.mark.parametrize(
    "text",
    ["ij->ii", "ij->k", "ij,jk", "i.j", "ij...k", "..ij", "i->j->k", "...i->i", "ab->a$", "i...j...", "(ij)"],
)
def test_what_is_no_equation(text: str) -> None:
    with pytest.raises(ValueError, match=r"equation|label|list|ellipsis"):
        equation_of(text, [2] if "..." not in text else [4 if text == "...i->i" else 2])
