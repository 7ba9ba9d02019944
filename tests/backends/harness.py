"""Compiles regions with the system compiler, many in one library, and calls them."""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from farcall import _core
from farcall.backends._ctext import stored
from farcall.backends.base import Backend, RegionCode
from farcall.backends.c import CBackend
from farcall.graph import Match, Region, cut
from farcall.graph.dims import dims, evaluate
from farcall.testing._guarded import DLTensor
from farcall.toolchain import Target, find_compiler

ROOT = Path(__file__).resolve().parents[2]
CC = find_compiler()
NATIVE = CC.target_flags(Target.host())
COMPILE = [*CC.command, "-std=c11", "-fPIC", "-w", "-fno-math-errno", "-fno-trapping-math"]
COMPILE += [f"-I{ROOT / 'include'}"]

_OBJECTS = tempfile.TemporaryDirectory(prefix="farcall-kernels-")  # it goes with the process


class Any(ctypes.Structure):
    _fields_ = (("type_index", ctypes.c_int32), ("padding", ctypes.c_uint32), ("value", ctypes.c_int64))


@dataclass(frozen=True)
class WholeRegion(Region):
    """All nodes of a model."""

    graph: ir.Graph | None = None


@dataclass
class Compiled:
    """A region's code, and its function in the loaded library."""

    region: Region
    code: RegionCode
    function: object = None

    @property
    def folded(self) -> list[ir.Value]:
        """The outputs of the model that constant folding computed at load."""
        graph = self.region.graph if isinstance(self.region, WholeRegion) else None
        return (
            [value for value in graph.outputs if value.const_value is not None] if graph is not None else []
        )

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        """Run on ``inputs``. The workspace is filled with garbage before, and guarded at its end."""
        sizes: dict[str, int] = {}
        for value, array in zip(self.region.inputs, inputs, strict=True):
            for dim, size in zip(dims(value), array.shape, strict=True):
                if not isinstance(dim, int) and dim.is_Symbol:
                    sizes[dim.name] = size
        outs = [
            np.full([evaluate(d, sizes) for d in dims(value)], 77, dtype=value.dtype.numpy())
            for value in self.region.outputs
        ]
        shown = [stored(np.ascontiguousarray(array).reshape(array.shape)) for array in (*inputs, *outs)]
        tensors = [
            _tensor(memory, array.shape) for memory, array in zip(shown, (*inputs, *outs), strict=True)
        ]
        args = [Any(7, 0, ctypes.addressof(item[0])) for item in tensors]
        total = evaluate(self.code.workspace, sizes)
        space = np.full(total + 192, 0xAB, dtype=np.uint8)
        start = -space.ctypes.data % 64 + 64
        if self.code.workspace != 0:
            args.append(Any(4, 0, space.ctypes.data + start))
        args += [Any(1, 0, sizes[name]) for name in self.code.symbols]
        packed = (Any * len(args))(*args)
        result = Any(99, 0, 0)
        table = [_aligned(data) for data in self.code.constants.values()]
        addresses = (ctypes.c_void_p * (len(table) + 1))(*(data.ctypes.data for data in table))
        status = self.function(addresses, packed, len(args), ctypes.byref(result))
        assert (space[start + total :] == 0xAB).all() and (space[:start] == 0xAB).all(), "workspace overrun"
        if status:
            _take_error()
            raise RuntimeError(f"region returned {status}")
        assert result.type_index == 0
        return [_elements(memory, out) for memory, out in zip(shown[len(inputs) :], outs, strict=True)]


def _take_error() -> None:
    """Empty this thread's slot for errors: a later call that fails without one would find this one."""
    core, error = ctypes.CDLL(_core.__file__), ctypes.c_void_p()
    core.TVMFFIErrorMoveFromRaised(ctypes.byref(error))
    if error:
        core.TVMFFIObjectDecRef(error)


def _tensor(memory: np.ndarray, dims: Sequence[int]) -> tuple[DLTensor, object]:
    shape = (ctypes.c_int64 * max(len(dims), 1))(*dims)
    tensor = DLTensor(memory.ctypes.data, 1, 0, len(dims), 0, 0, 1, shape, None, 0)
    return tensor, (shape, memory)


def _elements(memory: np.ndarray, like: np.ndarray) -> np.ndarray:
    """The elements of memory, which several may share a byte of."""
    dtype = ir.DataType.from_numpy(like.dtype)
    if dtype.bitwidth >= 8:
        return memory.view(like.dtype).reshape(like.shape)
    codes = (memory[:, None] >> np.arange(0, 8, dtype.bitwidth, dtype=np.uint8)).reshape(-1)[: like.size]
    low = codes & (2**dtype.bitwidth - 1)
    if dtype.is_signed() and dtype.is_integer():
        low = (low ^ 2 ** (dtype.bitwidth - 1)) - np.uint8(2 ** (dtype.bitwidth - 1))
    return low.astype(np.uint8).view(like.dtype).reshape(like.shape)


def whole_region(model: onnx.ModelProto, backend: Backend | None = None, name: str = "c_0") -> Region:
    """The model as one region, if the backend takes all of it; otherwise raises the partitioning error."""
    backend = backend or CBackend()
    partition = cut(model, [backend])
    graph = partition.model.graph
    if backend.patterns():
        matches = tuple(match for region in partition.regions for match in region.matches)
    else:  # the order of the model
        matches = tuple(Match(node.op_type, (node,)) for node in graph)
    made = dict.fromkeys(value for match in matches for node in match.nodes for value in node.outputs)
    read = dict.fromkeys(v for match in matches for node in match.nodes for v in node.inputs if v is not None)
    outputs = tuple(value for value in dict.fromkeys(graph.outputs) if value in made)
    inputs = tuple(value for value in graph.inputs if value in read)
    constants = tuple(value for value in read if value not in made and value not in inputs)
    return WholeRegion(name, backend.name, matches, inputs, outputs, constants, graph)


def compile_regions(
    regions: Sequence[Region], backend: Backend | None = None, flags: Sequence[str] = ("-O1",)
) -> list[Compiled]:
    """Compile regions, which must have different names, into one library and load it."""
    backend = backend or CBackend()
    compiled = [Compiled(region, backend.compile(region, Target.host(), {})) for region in regions]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files: list[str] = []
        for item in compiled:
            for file, text in item.code.texts.items():
                (folder / file).write_text(text)
                files.append(file)
        used = {one.name: one for item in compiled for one in item.code.kernels}
        kernels = [_object(one.name, one.text, (*flags, *one.compile_flags)) for one in used.values()]
        command = [*COMPILE, "-shared", *flags, *compiled[-1].code.compile_flags]
        halves = [files[i::2] for i in range(2) if files[i::2]]
        jobs = [
            subprocess.Popen([*command, *half, *kernels, "-o", f"lib{i}.so", "-lm"], cwd=folder)
            for i, half in enumerate(halves)
        ]
        statuses = [job.wait() for job in jobs]
        assert not any(statuses), "the compiler refused the code"
        found: dict[str, object] = {}
        for i, half in enumerate(halves):
            library = ctypes.CDLL(str(folder / f"lib{i}.so"), mode=os.RTLD_NOW | os.RTLD_LOCAL)
            found.update(dict.fromkeys(half, library))
        for item in compiled:
            library = found[next(iter(item.code.sources))]
            item.function = library[f"__tvm_ffi_{item.region.name}"]
            item.function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p]
    return compiled


@cache
def _object(name: str, text: str, flags: tuple[str, ...]) -> Path:
    """Kernels, which many models share, compiled once a process."""
    folder = Path(tempfile.mkdtemp(dir=_OBJECTS.name))
    (folder / f"{name}.c").write_text(text)
    subprocess.run([*COMPILE, *flags, "-c", f"{name}.c"], cwd=folder, check=True)
    return folder / f"{name}.o"


def _aligned(data: np.ndarray) -> np.ndarray:
    """A constant as an artifact holds it: row-major, aligned to 64 bytes."""
    space = np.empty(data.nbytes + 64, np.uint8)
    start = -space.ctypes.data % 64
    space[start : start + data.nbytes] = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
    return space[start:]


def compile_model(model: onnx.ModelProto, flags: Sequence[str] = ("-O1",)) -> Compiled:
    """A whole model as one callable."""
    return compile_regions([whole_region(model)], flags=flags)[0]


__all__ = ["Compiled", "Match", "compile_model", "compile_regions", "ir", "whole_region"]
