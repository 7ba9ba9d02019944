"""Weights of gigabytes in external files: what a model does not need of them is never read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

MIB = 1 << 20
_ROW = 16  # bytes: four float32
_PROGRAM = """
import resource, sys
import numpy as np
import farcall as fc
import farcall.backends.c, farcall.graph

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

before = peak()
artifact = fc.partition(sys.argv[1], backends=["c"]).build()
found = np.asarray(artifact.load()["main"](np.ones((3, 4), np.float32)))
print(peak() - before, found.ravel().tolist())
"""


def sparse_model(folder: Path, size: int) -> Path:
    """A model that adds the last three rows of a table of ``size`` bytes to its input."""
    rows = size // _ROW
    table = TensorProto(
        name="table", data_type=TensorProto.FLOAT, dims=[rows, 4], data_location=TensorProto.EXTERNAL
    )
    table.external_data.add(key="location", value="table.bin")
    with (folder / "table.bin").open("wb") as file:
        file.truncate(size)
        file.seek((rows - 3) * _ROW)
        file.write(np.arange(12, dtype=np.float32).tobytes())
    shape = helper.make_tensor_type_proto(TensorProto.FLOAT, [3, 4])
    bounds = {"start": np.array([-3]), "end": np.array([1 << 62])}
    graph = helper.make_graph(
        [
            helper.make_node("Slice", ["table", *bounds], ["last"]),
            helper.make_node("Add", ["x", "last"], ["y"]),
        ],
        "large",
        [helper.make_value_info("x", shape)],
        [helper.make_value_info("y", shape)],
        [table, *(numpy_helper.from_array(value, name) for name, value in bounds.items())],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, folder / "large.onnx")
    return folder / "large.onnx"


@pytest.mark.parametrize(
    "size", [256 * MIB, pytest.param(3072 * MIB, marks=pytest.mark.slow)], ids=["256 MiB", "3 GiB"]
)
def test_a_model_reads_the_rows_that_it_needs(tmp_path: Path, size: int) -> None:
    """By the peak of the memory of a process, in which every page of a map that is read counts."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, sparse_model(tmp_path, size)],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    used, values = done.stdout.split(" ", 1)
    assert int(used) < 96, "MiB"
    assert values.strip() == str([float(value) for value in range(1, 13)])
