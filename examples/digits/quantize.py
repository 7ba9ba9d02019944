"""Quantise the demo's model to integer products: uint8 activations, int8 weights, sums in int32.

The file that it writes (``digits_int8.onnx``) is in the repository. It reads ``digits.onnx`` and, for the
ranges of the activations, the training images::

    pip install onnx onnxruntime scikit-learn torch==2.13.0
    python examples/digits/quantize.py

Weights have one scale for each output channel, activations one for each tensor. All zero points are 0: images
and the outputs of Relu are not negative. Accelerators for integers multiply such operands as they are.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper
from train import split

HERE = Path(__file__).resolve().parent


def ranges(model: onnx.ModelProto, images: np.ndarray, names: list[str]) -> dict[str, float]:
    """Value name -> the largest element of ``names`` over all ``images`` (float32 [n, 1, 8, 8])."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    wide.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names if name != "image")
    run = ort.InferenceSession(wide.SerializeToString(), providers=["CPUExecutionProvider"]).run
    wanted = [name for name in names if name != "image"]
    found = dict(zip(wanted, run(wanted, {"image": images}), strict=True))
    return {name: float(found.get(name, images).max()) for name in names}


class Quantizer:
    """Rewrites one graph, node by node; ``self.nodes`` and ``self.weights`` become the new one."""

    def __init__(self, model: onnx.ModelProto, largest: dict[str, float]) -> None:
        self.largest = largest
        self.old = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}

    def rewrite(self, node: onnx.NodeProto) -> None:
        """Convolutions and dense layers become integer products; other nodes stay."""
        if node.op_type == "Conv":
            self.layer(node, "ConvInteger", self.old[node.input[1]], (-1, 1, 1))
        elif node.op_type == "Gemm":
            self.layer(node, "MatMulInteger", self.old[node.input[1]], (-1,))
        else:
            self.nodes.append(node)
            self.weights |= {name: self.old[name] for name in node.input if name in self.old}

    def layer(self, node: onnx.NodeProto, op: str, weight: np.ndarray, by_channel: tuple[int, ...]) -> None:
        """Quantise the input, multiply integers, and scale the sums; ``weight`` has its outputs in front."""
        x, w, b = node.input
        step = self.largest[x] / 255
        steps = np.abs(weight).reshape(len(weight), -1).max(1) / 127
        whole = np.rint(weight / steps.reshape(-1, *([1] * (weight.ndim - 1)))).astype(np.int8)
        self.weights |= {
            f"{x}.scale": np.array(step, np.float32),
            f"{w}.int8": whole if op == "ConvInteger" else np.ascontiguousarray(whole.T),
            f"{w}.scale": (steps * step).astype(np.float32).reshape(by_channel),
            f"{b}.float": self.old[b].reshape(by_channel),
            "zero": np.array(0, np.uint8),
        }
        kept = node.attribute if op == "ConvInteger" else []  # Gemm's say that the weight is transposed
        out = node.output[0]
        product = helper.make_node(op, [f"{x}.uint8", f"{w}.int8"], [f"{out}.sum"])
        product.attribute.extend(kept)
        self.nodes += [
            helper.make_node("QuantizeLinear", [x, f"{x}.scale", "zero"], [f"{x}.uint8"]),
            product,
            helper.make_node("Cast", [f"{out}.sum"], [f"{out}.float"], to=onnx.TensorProto.FLOAT),
            helper.make_node("Mul", [f"{out}.float", f"{w}.scale"], [f"{out}.scaled"]),
            helper.make_node("Add", [f"{out}.scaled", f"{b}.float"], [out]),
        ]


def quantized(model: onnx.ModelProto, images: np.ndarray) -> onnx.ModelProto:
    """The model with integer products, whose ranges hold for ``images``."""
    layers = [node.input[0] for node in model.graph.node if node.op_type in ("Conv", "Gemm")]
    work = Quantizer(model, ranges(model, images, layers))
    for node in model.graph.node:
        work.rewrite(node)
    names = (f"{node.op_type}_{number}" for number, node in enumerate(work.nodes))
    for node, name in zip(work.nodes, names, strict=True):
        node.name = name
    weights = [numpy_helper.from_array(data, name) for name, data in work.weights.items()]
    graph = helper.make_graph(work.nodes, "digits_int8", model.graph.input, model.graph.output, weights)
    result = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    onnx.checker.check_model(result, full_check=True)
    return result


def main() -> None:
    train_x, _, test_x, test_y = split()
    model = quantized(onnx.load(HERE / "digits.onnx"), train_x.astype(np.float32) / 16)
    onnx.save(model, HERE / "digits_int8.onnx")
    run = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run
    (logits,) = run(None, {"image": test_x.astype(np.float32) / 16})
    print(f"accuracy on {len(test_y)} held-out images: {(logits.argmax(1) == test_y).mean():.4f}")


if __name__ == "__main__":
    main()
