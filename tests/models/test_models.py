"""Networks that torch exports, built by the `c` backend alone, give onnxruntime's results at other sizes."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping

import numpy as np
import onnx
import pytest

import farcall as fc

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")

from .networks import NETWORKS, Network  # noqa: E402 - needs torch

SIZES = ({"batch": 2, "length": 3, "past": 5}, {"batch": 1, "length": 1, "past": 1},
         {"batch": 3, "length": 9, "past": 4}, {"batch": 2, "length": 17, "past": 0})  # fmt: skip
QUICK = {"decoder", "llama-opset-24", "lstm", "branches", "grows"}  # the others take as long again


def export(network: Network) -> onnx.ModelProto:
    torch.manual_seed(0)
    file = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        module, inputs = network.make().eval(), network.inputs()
        names = [f"x{i}" for i in range(len(inputs))]
        if network.dynamo:
            axes = tuple(dict.fromkeys(sizes, torch.export.Dim.DYNAMIC) for sizes in network.sizes)
            program = torch.onnx.export(
                module, inputs, dynamo=True, opset_version=network.opset, input_names=names,
                dynamic_shapes=axes, verbose=False,
            )  # fmt: skip
            return program.model_proto
        torch.onnx.export(
            module, inputs, file, dynamo=False, opset_version=network.opset, input_names=names,
            dynamic_axes=dict(zip(names, network.sizes, strict=True)),
        )  # fmt: skip
    return onnx.load_from_string(file.getvalue())


def feeds(network: Network, sizes: Mapping[str, int]) -> list[np.ndarray]:
    rng = np.random.default_rng(sum(sizes.values()))
    found = []
    for example, dims in zip(network.inputs(), network.sizes, strict=True):
        shape = [sizes[dims[i]] if i in dims else size for i, size in enumerate(example.shape)]
        data = rng.standard_normal(shape) if example.is_floating_point() else rng.integers(0, 2, shape)
        found.append(data.astype(example.numpy().dtype))
    return found


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in NETWORKS]
)
def test_a_network_gives_onnxruntimes_results(name: str) -> None:
    network = NETWORKS[name]
    model = export(network)
    main = fc.partition(model, backends=["c"]).build().load()["main"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    for sizes in SIZES:
        inputs = feeds(network, sizes)
        expected = session.run(None, dict(zip(names, inputs, strict=True)))
        found = main(*inputs)
        for ours, theirs in zip(found if len(expected) > 1 else [found], expected, strict=True):
            np.testing.assert_allclose(np.from_dlpack(ours), theirs, rtol=1e-4, atol=1e-5)
