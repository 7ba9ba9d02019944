"""Built networks beside onnxruntime: the same inputs of several sizes, the largest difference, the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx
import onnxruntime

from farcall._texts import duration

from ..exact_bytes import exact_options
from .networks import FULL_SIZES, SMALL_SIZES, Network, export, feeds

ROUNDS = 5  # of the shorter of two times


@dataclass(frozen=True)
class Exported:
    """A network as an exporter wrote it, with its inputs and onnxruntime's results for them."""

    network: Network
    exporter: str
    full: bool

    @cached_property
    def model(self) -> onnx.ModelProto:
        return export(self.network, self.exporter, self.full)

    def of_fixed_sizes(self) -> onnx.ModelProto:
        """The model for the first sizes alone."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        del model.graph.value_info[:]
        for item, data in zip(model.graph.input, self.inputs[0], strict=True):
            for dim, size in zip(item.type.tensor_type.shape.dim, data.shape, strict=True):
                dim.dim_value = size
        for item in model.graph.output:
            item.type.tensor_type.ClearField("shape")
        return model

    @cached_property
    def session(self) -> onnxruntime.InferenceSession:
        options = exact_options()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        model = self.model.SerializeToString()
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    @cached_property
    def inputs(self) -> list[list[np.ndarray]]:
        sizes = FULL_SIZES if self.full else SMALL_SIZES
        return [feeds(self.network, one, self.full) for one in sizes]

    def theirs(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        names = [item.name for item in self.session.get_inputs()]
        return list(self.session.run(None, dict(zip(names, inputs, strict=True))))

    @cached_property
    def expected(self) -> list[list[np.ndarray]]:
        return [self.theirs(inputs) for inputs in self.inputs]

    def error(self, main: Callable[..., Any]) -> float:
        """The largest difference of ``main``'s results, as a part of the largest element of a result."""
        found = [0.0]
        for inputs, expected in zip(self.inputs, self.expected, strict=True):
            results = main(*inputs)
            ours = [_array(result) for result in (results if len(expected) > 1 else [results])]
            for one, other in zip(ours, expected, strict=True):
                assert (one.shape, one.dtype) == (other.shape, other.dtype)
                found.append(_difference(one, other))
        return max(found)

    def check(self, main: Callable[..., Any]) -> None:
        """Raises: ``main`` differs from onnxruntime by more than the network may."""
        error = self.error(main)
        assert error <= self.network.error, f"differs by {error:.1e} of the largest element"

    def ratio(self, main: Callable[..., Any]) -> float:
        """The time of ``main`` beside that of onnxruntime, one thread each, for the first sizes."""
        inputs = self.inputs[0]
        calls = (lambda: main(*inputs), lambda: self.theirs(inputs))
        ours, theirs = (
            min(each) for each in zip(*(map(_seconds, calls) for _ in range(ROUNDS)), strict=True)
        )
        return ours / theirs


def _array(result: Any) -> np.ndarray:
    """A result of a call here, or of one far away."""
    return result.numpy() if hasattr(result, "session") else np.from_dlpack(result)


def _difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    if not ours.size:
        return 0.0
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    return float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), np.finfo(np.float32).tiny))


def _seconds(call: Callable[[], object]) -> float:
    """The time of a call, the mean of so many that they take 20 ms."""
    start, count = time.perf_counter(), 0
    while (now := time.perf_counter() - start) < 0.02 or not count:
        call()
        count += 1
    return now / count


def lines(networks: Sequence[tuple[str, Exported]], backends: Sequence[str]) -> Iterator[list[str]]:
    """For each network: what it is, who computes it, the largest error, and the times."""
    import farcall as fc
    from farcall.errors import FarcallError

    for name, exported in networks:
        row = [name, exported.exporter, str(len(exported.model.graph.node))]
        try:
            start = time.perf_counter()
            plan = fc.partition(exported.model, backends=backends)
            artifact = plan.build()
            seconds = time.perf_counter() - start
            main = artifact.load()["main"]
            used = dict.fromkeys(region.backend for region in plan.regions)
            row += [", ".join(used), str(len(plan.regions)), f"{exported.error(main):.1e}"]
            row += [duration(seconds), f"{exported.ratio(main):.2f}"]
        except (FarcallError, AssertionError) as error:
            row += ["", "", str(error).splitlines()[0], "", ""]
        yield row
