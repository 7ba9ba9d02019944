"""The whole models of ``bench_models``: how each is made by torch or onnx, and what it is fed with.

The networks have random weights in the sizes that their names stand for; those of ``tests.models`` are taken
from there. A network with symbolic dims is exported once and fed with several sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from tests.models.convolutional import ResNet, block, efficient_net, mobile_net
from tests.models.networks import Network, export, quantized
from tests.models.sequences import Decoder, Encoder, Scale
from torch import nn

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits" / "digits.onnx"
MINI_LM = Scale(384, 12, 6, 512)
GPT_2 = Scale(768, 12, 12, 1024)
PAST = 128  # steps that the decoder has seen
Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Case:
    """A model and the sizes that it is measured with.

    Attributes:
        model: makes the ONNX model.
        inputs: what it is fed with, by the name of a size.
        reach: the largest ratio to the best rival that we allow ourselves, for each size.
        module: makes the torch module of the same weights, for rivals that compile it; None: there is none.
        tolerance: how much a result may differ from onnxruntime's, as a part of the largest element.
        beside: the largest ratios to rivals for which ``reach`` is not the limit.
        numpy: computes the same by OpenBLAS.
        operations: how many additions and multiplications it is, if the peak of the machine is a rival.
    """

    model: Callable[[], onnx.ModelProto]
    inputs: Mapping[str, Callable[[], Arrays]]
    reach: Mapping[str, float]
    module: Callable[[], nn.Module] | None = None
    tolerance: float = 1e-3
    beside: Mapping[str, float] = field(default_factory=dict)
    numpy: Callable[..., np.ndarray] | None = None
    operations: int = 0


class Fire(nn.Module):
    """SqueezeNet's part: a narrow convolution, then two beside each other."""

    def __init__(self, inputs: int, narrow: int, wide: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, narrow, 1)
        self.one, self.three = nn.Conv2d(narrow, wide, 1), nn.Conv2d(narrow, wide, 3, padding=1)

    def forward(self, x):  # type: ignore[no-untyped-def]
        x = self.squeeze(x).relu()
        return torch.cat([self.one(x).relu(), self.three(x).relu()], 1)


def squeeze_net() -> nn.Module:
    """SqueezeNet 1.1."""
    pool = nn.MaxPool2d(3, 2, ceil_mode=True)
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, 2), nn.ReLU(), pool, Fire(64, 16, 64), Fire(128, 16, 64), pool,
        Fire(128, 32, 128), Fire(256, 32, 128), pool, Fire(256, 48, 192), Fire(384, 48, 192),
        Fire(384, 64, 256), Fire(512, 64, 256), nn.Conv2d(512, 1000, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


class Bottleneck(nn.Module):
    """MobileNetV2's inverted residual."""

    def __init__(self, inputs: int, wide: int, outputs: int, stride: int) -> None:
        super().__init__()
        middle = inputs * wide
        parts = [block(inputs, middle, act=nn.ReLU6())] if wide > 1 else []
        parts.append(block(middle, middle, 3, stride, groups=middle, act=nn.ReLU6()))
        self.parts, self.same = (
            nn.Sequential(*parts, block(middle, outputs)),
            stride == 1 and inputs == outputs,
        )

    def forward(self, x):  # type: ignore[no-untyped-def]
        return x + self.parts(x) if self.same else self.parts(x)


# Widened by, outputs, layers, stride.
_MOBILE = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobile_net_2() -> nn.Module:
    """MobileNetV2."""
    layers, inputs = [block(3, 32, 3, 2, act=nn.ReLU6())], 32
    for wide, outputs, count, stride in _MOBILE:
        for number in range(count):
            layers.append(Bottleneck(inputs, wide, outputs, 1 if number else stride))
            inputs = outputs
    tail = [block(320, 1280, act=nn.ReLU6()), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)]
    return nn.Sequential(*layers, *tail)


def perceptron() -> nn.Module:
    """Three layers, as for handwritten digits."""
    return nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10), nn.Softmax(1)
    )


class StepDecoder(Decoder):
    """A decoder whose caches come as one tensor: layers x (keys, values) x batch x heads x past x size."""

    def forward(self, ids, caches):  # type: ignore[no-untyped-def]
        return super().forward(ids, *caches.flatten(0, 1).unbind(0))


def _chain(n: int) -> onnx.ModelProto:
    """((a + b) - c) * d on float32[n, n]."""
    steps = [("Add", "a", "b", "s"), ("Sub", "s", "c", "t"), ("Mul", "t", "d", "y")]
    nodes = [helper.make_node(kind, [left, right], [out]) for kind, left, right, out in steps]
    infos = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [n, n]) for name in "abcdy"}
    graph = helper.make_graph(nodes, "chain", [infos[name] for name in "abcd"], [infos["y"]])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def random(*shape: int) -> np.ndarray:
    """Elements that depend on the shape alone."""
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def _words(length: int) -> Arrays:
    ids = np.random.default_rng(length).integers(0, 50, (1, length))
    return [ids, np.ones((1, length), np.int64), np.zeros((1, length), np.int64)]


def _step() -> Arrays:
    caches = random(GPT_2.layers, 2, 1, GPT_2.heads, PAST, GPT_2.each)
    return [np.array([[7]]), caches]


def seeded(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """``make`` with the weights that :func:`export` gives, so that all contenders have the same."""

    def made() -> nn.Module:
        torch.manual_seed(0)
        return make().eval()

    return made


def exported(
    make: Callable[[], nn.Module],
    inputs: Callable[[], Arrays],
    sizes: tuple[dict[int, str], ...] = ({},),
    after: Callable[..., onnx.ModelProto] | None = None,
) -> Callable[[], onnx.ModelProto]:
    """What exports ``make``'s network: ``sizes`` names the dims of each input that may change."""

    def model() -> onnx.ModelProto:
        given: Any = {"after": after} if after else {}
        example = tuple(map(torch.from_numpy, inputs()))
        network = Network(lambda _: make(), lambda _: example, sizes, **given)
        return export(network, "script" if after else "dynamo")

    return model


def _image() -> Arrays:
    return [random(1, 3, 224, 224)]


def _vision(make: Callable[[], nn.Module]) -> Case:
    return Case(exported(make, _image), {"": _image}, {"": 1.0}, seeded(make))


def _resnet(*depths: int, narrow: bool) -> Callable[[], nn.Module]:
    return lambda: ResNet(64, depths, narrow)


def _batches(*sizes: int) -> dict[str, Callable[[], Arrays]]:
    return {f"batch {size}": lambda size=size: [random(size, 784)] for size in sizes}  # type: ignore[misc]


RESNET_50 = _resnet(3, 4, 6, 3, narrow=True)
CASES: dict[str, Case] = {
    "ResNet-18": _vision(_resnet(2, 2, 2, 2, narrow=False)),
    "ResNet-50": _vision(RESNET_50),
    "SqueezeNet": _vision(squeeze_net),
    "MobileNetV2": _vision(mobile_net_2),
    "MobileNetV3": _vision(lambda: mobile_net(small=False)),
    "EfficientNet-B0": _vision(lambda: efficient_net(small=False)),
    "MLP": Case(
        exported(perceptron, lambda: [random(2, 784)], ({0: "batch"},)),
        _batches(1, 64), {"batch 1": 0.95, "batch 64": 1.0}, seeded(perceptron),
    ),
    "MiniLM": Case(
        exported(lambda: Encoder(MINI_LM), lambda: _words(7), ({1: "length"},) * 3),
        {f"{n} tokens": lambda n=n: _words(n) for n in (16, 128)},  # type: ignore[misc]
        {"16 tokens": 1.0, "128 tokens": 1.0}, seeded(lambda: Encoder(MINI_LM)),
    ),
    "GPT-2 step": Case(
        exported(lambda: StepDecoder(GPT_2), _step, ({}, {4: "past"})), {"": _step}, {"": 0.9},
        seeded(lambda: StepDecoder(GPT_2)),
    ),
    "ResNet-50 int8": Case(
        exported(RESNET_50, _image, after=quantized),
        {"": _image}, {"": 1.0}, tolerance=0.1,
    ),
    "digits CNN": Case(
        lambda: onnx.load(DIGITS),
        {f"batch {n}": lambda n=n: [random(n, 1, 8, 8)] for n in (1, 32, 360)},  # type: ignore[misc]
        {"batch 1": 0.7, "batch 32": 1.0, "batch 360": 1.0},
    ),
    **{
        f"chain {n}x{n}": Case(
            lambda n=n: _chain(n), {"": lambda n=n: [random(n, n) + i for i in range(4)]},  # type: ignore[misc]
            {"": reach},
        )
        for n, reach in ((10, 0.06), (1000, 0.55))
    },
}  # fmt: skip
