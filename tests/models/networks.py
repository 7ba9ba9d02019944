"""Networks of the kinds that people export, with random weights: how each is made, exported and fed.

Each has a small version, for the tests, and a full one, of the size that its name stands for.
"""

from __future__ import annotations

import io
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import nn

from farcall.torch._export import quiet

from .architectures import (
    Beam,
    Conditioned,
    Conformer,
    Dilated,
    Experts,
    Generates,
    Neighbours,
    Nested,
    Relative,
    Upscaler,
)
from .convolutional import Detector, ResNet, UNet, efficient_net, mobile_net
from .sequences import (
    FULL,
    SMALL,
    WORDS,
    Branches,
    CachedDecoder,
    Encoder,
    Grows,
    Llama,
    Recurrent,
    Scale,
    Scans,
)
from .sequences import VisionTransformer as Vision

Inputs = tuple[torch.Tensor, ...]
Dims = dict[int, str]

SMALL_SIZES = (
    {"batch": 2, "length": 3, "past": 5, "high": 33, "wide": 40},
    {"batch": 1, "length": 1, "past": 1, "high": 32, "wide": 17},
    {"batch": 3, "length": 17, "past": 0, "high": 8, "wide": 64},
)
FULL_SIZES = (
    {"batch": 1, "length": 32, "past": 64, "high": 224, "wide": 224},
    {"batch": 2, "length": 7, "past": 1, "high": 160, "wide": 97},
    {"batch": 1, "length": 128, "past": 0, "high": 64, "wide": 256},
)


@dataclass(frozen=True)
class Network:
    """How a network is made and exported.

    ``make`` and ``inputs`` are told whether the network is a full one. ``sizes`` names the dims of each
    input that may change. ``after`` changes the exported model. ``error`` is the largest difference from
    onnxruntime's result, as a part of the largest element.
    """

    make: Callable[[bool], nn.Module]
    inputs: Callable[[bool], Inputs]
    sizes: tuple[Dims, ...] = ({0: "batch"},)
    exporters: tuple[str, ...] = ("dynamo", "script")
    opset: int = 20
    after: Callable[[onnx.ModelProto, Network, bool], onnx.ModelProto] = field(
        default=lambda model, *_: model
    )
    error: float = 1e-5


def export(network: Network, exporter: str, full: bool = False) -> onnx.ModelProto:
    """The network as the exporter ``dynamo`` or ``script`` of torch writes it."""
    torch.manual_seed(0)
    with quiet(), torch.no_grad():
        module, inputs = network.make(full).eval(), network.inputs(full)
        names = [f"x{i}" for i in range(len(inputs))]
        if exporter == "dynamo":
            axes = tuple(dict.fromkeys(sizes, torch.export.Dim.DYNAMIC) for sizes in network.sizes)
            program = torch.onnx.export(
                module, inputs, dynamo=True, opset_version=network.opset, input_names=names,
                dynamic_shapes=axes, verbose=False,
            )  # fmt: skip
            model = program.model_proto
        else:
            file = io.BytesIO()
            torch.onnx.export(
                module, inputs, file, dynamo=False, opset_version=network.opset, input_names=names,
                dynamic_axes=dict(zip(names, network.sizes, strict=True)),
            )  # fmt: skip
            model = onnx.load_from_string(file.getvalue())
    return network.after(model, network, full)


def feeds(network: Network, sizes: Mapping[str, int], full: bool = False) -> list[np.ndarray]:
    """Inputs of these sizes, which depend on them alone."""
    rng = np.random.default_rng(sum(sizes.values()))
    found = []
    for example, dims in zip(network.inputs(full), network.sizes, strict=True):
        shape = [sizes[dims[i]] if i in dims else size for i, size in enumerate(example.shape)]
        data = rng.standard_normal(shape) if example.is_floating_point() else rng.integers(0, 2, shape)
        found.append(data.astype(example.numpy().dtype))
    return found


def quantized(model: onnx.ModelProto, network: Network, full: bool) -> onnx.ModelProto:
    """The model in int8, as onnxruntime's quantizer writes it: calibrated with three inputs."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    names = [value.name for value in model.graph.input]
    batches = (dict(zip(names, feeds(network, sizes, full), strict=True)) for sizes in SMALL_SIZES)

    class Reader(CalibrationDataReader):
        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(batches, None)

    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings(action="ignore"):
        plain, ready, made = (str(Path(name) / f"{part}.onnx") for part in ("plain", "ready", "made"))
        onnx.save(model, plain)
        quant_pre_process(plain, ready, skip_symbolic_shape=True)
        quantize_static(
            ready, made, Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
        )  # fmt: skip
        return onnx.load(made)


def optimized(model: onnx.ModelProto, _: Network, __: bool) -> onnx.ModelProto:
    """The model as onnxruntime optimises it, with operators of its own."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as name:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(Path(name) / "optimized.onnx")
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath)


def _scale(full: bool) -> Scale:
    return FULL if full else SMALL


def _ids(*shape: int) -> torch.Tensor:
    return torch.randint(0, WORDS, shape)


def _image(full: bool) -> Inputs:
    size = 224 if full else 32
    return (torch.randn(2, 3, size, size),)


def _encoder_inputs(_: bool) -> Inputs:
    return _ids(2, 7), torch.ones(2, 7, dtype=torch.long), torch.zeros(2, 7, dtype=torch.long)


def _cache(scale: Scale) -> Inputs:
    shape = 2, scale.heads, 5, scale.each
    return tuple(torch.randn(*shape) for _ in range(2 * scale.layers))


def _resnet(full: bool, depths: tuple[int, ...], narrow: bool) -> nn.Module:
    return ResNet(64, depths, narrow) if full else ResNet(8, depths[:2], narrow)


def _unet(full: bool) -> Inputs:
    size = 64 if full else 16
    return torch.randn(2, 3, size, size), torch.tensor([3, 500])


def _llama_inputs(full: bool) -> Inputs:
    return torch.randn(2, 6, _scale(full).width), torch.arange(6)[None].repeat(2, 1)


def _sequences(_: bool) -> Inputs:
    return (torch.randn(2, 6, SMALL.width),)


def _wide(full: bool) -> int:
    return 256 if full else 16


def _rows(full: bool) -> Inputs:
    return (torch.randn(2, 6, _wide(full)),)


_BOTH = {0: "batch", 1: "length"}
_PAST = {0: "batch", 2: "past"}
_PLANE = ({0: "batch", 2: "high", 3: "wide"},)
_CACHED = (_BOTH, *[_PAST] * 4)  # of two layers


def _decoder(exporters: tuple[str, ...], opset: int = 20) -> Network:
    def scale(full: bool) -> Scale:
        return replace(_scale(full), layers=2)

    return Network(
        lambda full: CachedDecoder(scale(full)), lambda full: (_ids(2, 3), *_cache(scale(full))), _CACHED,
        exporters, opset,
    )  # fmt: skip


def _recurrent(kind: type[nn.RNNBase]) -> Network:
    return Network(
        lambda full: Recurrent(kind, 256 if full else 24), lambda full: (_ids(2, 7),), (_BOTH,),
        ("script",), 17,
    )  # fmt: skip


NETWORKS = {
    "resnet-18": Network(lambda full: _resnet(full, (2, 2, 2, 2), False), _image, _PLANE),
    "resnet-50": Network(lambda full: _resnet(full, (3, 4, 6, 3), True), _image),
    "mobilenet-v3": Network(lambda full: mobile_net(not full), _image),
    "efficientnet-b0": Network(lambda full: efficient_net(not full), _image),
    "u-net": Network(lambda full: UNet(64 if full else 8), _unet, ({0: "batch"}, {0: "batch"})),
    "vit": Network(lambda full: Vision(_scale(full)), _image),
    "bert": Network(lambda full: Encoder(_scale(full)), _encoder_inputs, (_BOTH,) * 3),
    "gpt-2": _decoder(("dynamo", "script")),
    "gpt-2-opset-24": _decoder(("dynamo",), 24),
    "llama": Network(lambda full: Llama(_scale(full)), _llama_inputs, (_BOTH, _BOTH), ("dynamo",)),
    "llama-opset-24": Network(
        lambda full: Llama(_scale(full)), _llama_inputs, (_BOTH, _BOTH), ("dynamo",), 24
    ),
    "lstm": _recurrent(nn.LSTM),
    "gru": _recurrent(nn.GRU),
    "rnn": _recurrent(nn.RNN),
    "detector": Network(
        lambda full: Detector(64 if full else 8, 20 if full else 3, 100 if full else 8), _image, ({},),
        ("script",),  # of an operator that torch has not
    ),
    "resnet-qdq": Network(
        lambda full: _resnet(full, (2, 2, 2, 2), False), _image, exporters=("script",), after=quantized,
        error=0.02,  # a step of the last scale
    ),
    "vit-float16": Network(
        lambda full: Vision(_scale(full)).half(), lambda full: (_image(full)[0].half(),), error=1e-2
    ),
    "branches": Network(lambda _: Branches(SMALL.width), _sequences, (_BOTH,), ("dynamo",)),
    "grows": Network(
        lambda _: torch.jit.script(Grows(SMALL.width)), _sequences, (_BOTH,), ("script",), 18
    ),
    "scans": Network(lambda _: Scans(), _sequences, (_BOTH,), ("dynamo",)),
    "u-net++": Network(lambda full: Nested(32 if full else 8), _image, ({0: "batch", **_PLANE[0]},)),
    "graph-attention": Network(
        lambda full: Neighbours(_wide(full)), lambda _: (torch.randn(6, 4), torch.randint(0, 2, (2, 10))),
        ({0: "high"}, {1: "wide"}), opset=18,
    ),
    "experts": Network(lambda full: Experts(_wide(full)), _rows, (_BOTH,)),
    "beam": Network(
        lambda _: Beam(),
        lambda _: (torch.randn(2, 3, WORDS), torch.randn(2, 3), torch.randn(2, 3, 2, 4, 5)),
        ({0: "batch"}, {0: "batch"}, {0: "batch", 4: "past"}),
    ),
    "conformer": Network(lambda full: Conformer(_wide(full)), _rows, (_BOTH,), ("dynamo",)),
    "super-resolution": Network(
        lambda full: Upscaler(64 if full else 8), lambda _: (torch.randn(2, 3, 8, 8),),
        ({0: "batch", 2: "high", 3: "wide"},),
    ),
    "conditioned": Network(
        lambda full: Conditioned(256 if full else 16),
        lambda _: (torch.randn(2, 4, 8, 8), torch.randn(2, 5, 12)),
        ({0: "batch"}, {0: "batch", 1: "length"}),
    ),
    "relative": Network(lambda full: Relative(_wide(full)), _rows, (_BOTH,)),
    "generates": Network(
        lambda full: torch.jit.script(Generates(_wide(full))),
        lambda full: (torch.randn(2, _wide(full)), torch.tensor(2)), ({0: "batch"}, {}), ("script",),
    ),
    "wavenet": Network(lambda full: Dilated(64 if full else 8), lambda _: (torch.randn(2, 30, 4),), (_BOTH,)),
    "bert-optimized": Network(
        lambda full: Encoder(_scale(full)), _encoder_inputs, (_BOTH,) * 3, ("script",), 17, optimized
    ),
}  # fmt: skip
