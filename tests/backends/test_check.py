"""What the C backend refuses by the dims of operands of which it reads the first elements."""

from __future__ import annotations

import numpy as np
import pytest

import farcall as fc
from farcall.errors import UnsupportedOperatorError

from ..graph.graphs import text_model


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("g (float[1] x, int64[1, 0, 3] k) => (float[n] y) { y, i = TopK (x, k) }", "`k` has 0 elements"),
        (
            "g (int64[4] x, int64 d, float[n] v) => (float[4, d] y) { y = OneHot (x, d, v) }",
            "expected one depth and two values",
        ),
        ("g (float[4] x, int64[0] a) => (float[4] y) { y = CumSum (x, a) }", "is not one number"),
        ("g (float[4, 4] x, int64[m] k) => (float[4, 4] y) { y = Trilu (x, k) }", "is not one number"),
    ],
)
def test_operands_without_the_elements_that_are_read_are_refused(source: str, message: str) -> None:
    """The C loops would read behind them."""
    with pytest.raises(UnsupportedOperatorError, match=message):
        fc.partition(text_model(source), backends=["c"])


@pytest.mark.parametrize("call", ["Swish <alpha = -1.0>", "Shrink <lambd = -1.0, bias = -2.0>"])
def test_a_number_below_zero_is_no_decrement(call: str) -> None:
    model = text_model(f"g (float[3] x) => (float[3] y) {{ y = {call} (x) }}", opset=24)
    x = np.array([-2, 0, 3], np.float32)
    found = [fc.partition(model, backends=[name]).build().load()["main"](x) for name in ("c", "reference")]
    np.testing.assert_allclose(*map(np.from_dlpack, found), rtol=1e-6)
