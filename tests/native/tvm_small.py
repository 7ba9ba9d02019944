"""Apache TVM's own client at a small server: ``tvm_small.py HOST PORT [copies]``."""

from __future__ import annotations

import sys

import numpy as np
import tvm
from tvm import rpc

session = rpc.connect(sys.argv[1], int(sys.argv[2]))
device = session.cpu(0)

x = np.random.default_rng(0).random(100_000, dtype="float32")
there = tvm.runtime.tensor(x, device=device)
assert (there.numpy() == x).all()
session.get_function("test.twice")(there)
assert (there.numpy() == 2 * x).all()

if "copies" not in sys.argv:
    assert session.get_function("test.add")(20, 22) == 42
    library = session.system_lib()
    library["lib_twice"](there)
    assert (there.numpy() == 4 * x).all()
    times = library.time_evaluator("lib_twice", device, number=3, repeat=4)(there)
    assert len(times.results) == 4
    session.upload(bytearray(b"hello"), target="h.txt")
    assert session.download("h.txt") == b"hello"
    session.remove("h.txt")
    try:
        session.get_function("test.twice")(7)
    except Exception as error:
        assert "expected one float32 tensor" in str(error)
    else:
        raise AssertionError("no error")
print("all is well")
