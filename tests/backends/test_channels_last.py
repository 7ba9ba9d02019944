"""Chains of quantized convolutions whose bytes are in the order of channels last."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime import InferenceSession

import farcall as fc
from farcall.backends.c._channels_last import channels_last
from farcall.toolchain._target import host_cpu_flags

from ..exact_bytes import seven_bits
from .harness import NATIVE, compile_regions, whole_region

AVX2 = ["-mavx2", "-mfma"] if "avx2" in host_cpu_flags() else []
LEVELS = [["-O1"], ["-O1", *AVX2], ["-O1", *NATIVE]]
MICROSOFT = "com.microsoft"


@dataclass
class Network:
    """A graph under construction, of bytes of one dtype."""

    dtype: np.dtype
    given: bool = False  # whether scales and zero points are inputs, not constants
    unsigned: bool = False  # whether weights are uint8, with a zero point, not int8
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)

    def _name(self) -> str:
        return f"v{len(self.nodes)}_{len(self.constants) + len(self.feeds)}"

    def constant(self, data: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(data, name := self._name()))
        return name

    def number(self, data: np.ndarray) -> str:
        """A scale or a zero point."""
        if not self.given:
            return self.constant(data)
        self.feeds[name := self._name()] = data
        return name

    def scale(self, value: float = 0.25) -> str:
        return self.number(np.array(value, np.float32))

    def zero(self, value: int = 9) -> str:
        return self.number(np.array(value, self.dtype))

    def node(self, kind: str, inputs: Sequence[str], domain: str = "", **attributes: Any) -> str:
        name = self._name()
        self.nodes.append(helper.make_node(kind, inputs, [name], domain=domain, **attributes))
        return name

    def conv(
        self, x: str, shape: Sequence[int], each: bool = False, bias: bool = True, **attributes: Any
    ) -> str:
        seed, outs = len(self.nodes), shape[0]
        scales = np.random.default_rng(seed).integers(1, 9, outs if each else 1).astype(np.float32) / 4
        weights, origin = seven_bits(*shape, seed=seed), np.zeros(len(scales), np.int8)
        if self.unsigned:
            weights, origin = (
                (weights.astype(np.int16) + 70).astype("u1"),
                np.full(len(scales), 99 + seed, "u1"),
            )
        parts = [x, self.scale(), self.zero(), self.constant(weights)]
        parts += [self.number(scales), self.constant(origin)]
        parts += [self.scale(64), self.zero(40 + seed)]
        if bias:
            parts.append(
                self.constant(np.random.default_rng(seed).integers(-999, 999, outs).astype(np.int32))
            )
        return self.node("QLinearConv", parts, **attributes)

    def binary(self, kind: str, a: str, b: str) -> str:
        parts = [
            a,
            self.scale(),
            self.zero(),
            b,
            self.scale(0.5),
            self.zero(7),
            self.scale(0.75),
            self.zero(),
        ]
        return self.node(kind, parts, MICROSOFT)

    def model(self, x: Sequence[int | str], outputs: Sequence[str]) -> onnx.ModelProto:
        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        infos = [helper.make_tensor_value_info("x", kind, x)]
        for name, data in self.feeds.items():
            infos.append(
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(data.dtype), data.shape)
            )
        made = [helper.make_tensor_value_info(name, kind, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "g", infos, made, self.constants)
        opsets = [helper.make_opsetid("", 13), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def residual(
    dtype: type, given: bool, sizes: Sequence[int | str], unsigned: bool = False
) -> tuple[onnx.ModelProto, Network]:
    """Convolutions of many kinds, sums and pools: 16 channels and more, few of them whole vectors."""
    net = Network(np.dtype(dtype), given, unsigned)
    first = net.conv("x", (24, 19, 3, 3), each=True, pads=[1, 0, 2, 1], strides=[2, 1])
    pooled = net.node("MaxPool", [first], kernel_shape=[3, 2], strides=[1, 2], pads=[1, 1, 1, 0])
    left = net.conv(pooled, (32, 24, 1, 1))
    right = net.conv(pooled, (32, 24, 3, 3), each=True, bias=False, pads=[1, 2, 1, 2], dilations=[1, 2])
    total = net.binary("QLinearAdd", left, right)
    short = net.conv(total, (83, 32, 1, 1), strides=[2, 2])
    deep = net.conv(total, (83, 32, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2])
    product = net.binary("QLinearMul", net.binary("QLinearAdd", deep, short), deep)
    joined = net.node("Concat", [product, net.conv(product, (17, 83, 1, 1)), product], axis=1)
    wide = net.conv(net.conv(joined, (260, 183, 1, 1)), (16, 260, 2, 2), each=True, auto_pad="SAME_UPPER")
    mean_parts = [wide, net.scale(), net.zero(), net.scale(0.5), net.zero()]
    mean = net.node("QLinearGlobalAveragePool", mean_parts, MICROSOFT, channels_last=0)
    return net.model(sizes, [mean, wide]), net


@pytest.mark.parametrize("flags", LEVELS)
@pytest.mark.parametrize(
    ("dtype", "given", "sizes"),
    [
        (np.uint8, False, (2, 19, 21, 17)),
        (np.int8, False, (1, 19, 21, 17)),
        (np.int8, True, ("n", 19, "h", "w")),
        (np.uint8, True, (1, 19, 40, 41)),
    ],
)
def test_chains_of_convolutions(
    dtype: type, given: bool, sizes: tuple[int | str, ...], flags: list[str]
) -> None:
    check_chain(*residual(dtype, given, sizes), sizes, flags)


@pytest.mark.parametrize("flags", LEVELS)
def test_weights_with_zero_points(flags: list[str]) -> None:
    sizes = (2, 19, 21, 17)
    check_chain(*residual(np.uint8, False, sizes, unsigned=True), sizes, flags)


def check_chain(model: onnx.ModelProto, net: Network, sizes: Sequence[int | str], flags: list[str]) -> None:
    """The results are onnxruntime's."""
    shape = [size if isinstance(size, int) else {"n": 3, "h": 10, "w": 13}[size] for size in sizes]
    bounds = np.iinfo(net.dtype)
    x = np.random.default_rng(1).integers(bounds.min, bounds.max + 1, shape).astype(net.dtype)
    region = whole_region(onnx.shape_inference.infer_shapes(model), name="c_run")
    (compiled,) = compile_regions([region], flags=flags)
    assert "farcall_bytes_last" in "".join(compiled.code.texts.values())
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": x, **net.feeds})
    for got, wanted in zip(compiled(x, *net.feeds.values()), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("machine", "unsigned"), [("aarch64", False), pytest.param("s390x", True, marks=pytest.mark.long)]
)
def test_chains_on_other_machines(machine: str, unsigned: bool, tmp_path: Path) -> None:
    """Those with dot products of their own, and with the highest byte first."""
    if shutil.which(f"qemu-{machine}") is None:
        pytest.skip(f"needs qemu-{machine}")
    model, _ = residual(np.uint8, False, (1, 19, 9, 8), unsigned)
    x = np.random.default_rng(2).integers(0, 256, (1, 19, 9, 8), "u1")
    path = fc.partition(model).build(f"{machine}-linux-musl").save(tmp_path / "model.so")
    with fc.launch(f"emulator:{machine}") as device, device.connect() as session:
        results = session.load_module(path)["main"](session.tensor(x))
        found = [np.from_dlpack(result.numpy()) for result in results]
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for got, wanted in zip(found, session.run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(got, wanted)


def operators(model: onnx.ModelProto) -> list[str]:
    region = whole_region(onnx.shape_inference.infer_shapes(model))
    return [node.op_type for node in channels_last(region).nodes]


def test_a_chain_is_turned_where_it_begins_and_ends() -> None:
    model, _ = residual(np.uint8, False, (1, 19, 9, 8))
    found = operators(model)
    assert found.count("ToChannelsLast") == found.count("FromChannelsLast") == 1
    assert found[0] == "ToChannelsLast"


@pytest.mark.parametrize(("count", "turned"), [(1, False), (3, False), (4, True)])
def test_a_chain_needs_two_convolutions_for_each_turn(count: int, turned: bool) -> None:
    net = Network(np.dtype(np.uint8))
    value = "x"
    for _ in range(count):
        value = net.conv(value, (16, 16, 1, 1))
    assert ("ToChannelsLast" in operators(net.model((1, 16, 5, 5), [value]))) == turned


def test_weights_with_zero_points_are_worth_two_turns() -> None:
    net = Network(np.dtype(np.uint8), unsigned=True)
    found = operators(net.model((1, 16, 5, 5), [net.conv("x", (16, 16, 1, 1))]))
    assert found == ["ToChannelsLast", "QLinearConv", "FromChannelsLast"]


def test_what_computes_in_the_onnx_order_stays_so() -> None:
    """Groups, few output channels, three axes."""
    for shape, attributes in [((16, 8, 1, 1), {"group": 2}), ((8, 8, 1, 1), {}), ((16, 16, 1, 1, 1), {})]:
        net, value = Network(np.dtype(np.uint8)), "x"
        for _ in range(4):
            value = net.conv(value, shape, **attributes)
        sizes = (1, shape[0], *[5] * (len(shape) - 2))
        found = operators(net.model(sizes, [value]))
        assert found == ["QLinearConv"] * 4
