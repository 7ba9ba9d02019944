"""Regions behind a session: the digits model, its convolutions in another process, beside `c` alone."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

import farcall as fc
from bench.harness import Row, rows

DIGITS = Path(__file__).parents[1] / "examples/digits"


def run() -> list[Row]:
    """Calls of ``main``, whose regions go over a socket, at two batch sizes."""
    images = np.load(DIGITS / "test.npz")["images"].astype("float32")
    result = []
    with fc.serve() as server, fc.connect(server.url) as session:
        remote = fc.backend("remote", on=session, operators=["Conv", "Relu"])
        far, here = (
            fc.partition(DIGITS / "digits.onnx", backends).build().load()["main"]
            for backends in ([remote, "c"], ["c"])
        )
        for batch in (1, 64):
            x = images[:batch]
            np.testing.assert_allclose(far(x), here(x), rtol=1e-5, atol=1e-4)
            before = session.stats
            far(x)
            calls, trips = (
                getattr(session.stats, name) - getattr(before, name) for name in ("calls", "round_trips")
            )
            work = f"digits by remote,c, batch {batch} ({calls} calls, {trips} round trips)"
            result += rows(work, {"farcall": partial(far, x), "c": partial(here, x)})
    return result
