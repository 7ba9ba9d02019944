"""Other engines that run ONNX models or torch modules: how each loads a model for a number of threads.

A rival takes and gives numpy arrays, as farcall does in these measurements. One that is not installed, or
that cannot take a model, raises :class:`Absent` with the reason.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.kernels import ALL

Run = Callable[..., Sequence[np.ndarray]]


class Absent(Exception):  # noqa: N818 - a reason, not an error
    """The reason why a rival does not take part."""


def onnxruntime(model: Path, case: str, threads: int) -> Run:
    """A session with all of its optimizations, which are its default."""
    engine = _package("onnxruntime")
    options = engine.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = engine.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    return lambda *inputs: session.run(None, dict(zip(names, inputs, strict=True)))


def openvino(model: Path, case: str, threads: int) -> Run:
    """A request of a model compiled for latency, in float32."""
    engine = _package("openvino")
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    try:
        request = engine.compile_model(str(model), "CPU", settings).create_infer_request()
    except Exception as error:
        raise Absent(str(error).strip().splitlines()[0]) from None
    return lambda *inputs: list(request.infer(list(inputs), share_inputs=True, share_outputs=True).values())


def torch_compile(model: Path, case: str, threads: int) -> Run:
    """The torch module that the model was exported from, compiled by inductor."""
    torch = _package("torch")
    make = ALL[case].module
    if make is None:
        raise Absent("the model does not come from a torch module")
    torch.set_num_threads(threads)
    compiled = torch.compile(make())

    def run(*inputs: np.ndarray) -> list[np.ndarray]:
        with torch.inference_mode():
            found = compiled(*map(torch.from_numpy, inputs))
            return [one.numpy() for one in (found if isinstance(found, tuple) else (found,))]

    return run


def iree(model: Path, case: str, threads: int) -> Run:
    """A module compiled for this CPU; one thread is the synchronous driver."""
    if threads > 1:
        raise Absent("its number of threads is set for the process, not for a module")
    compiler, runtime = _package("iree.compiler"), _package("iree.runtime")
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "model.mlir"
        importer = [sys.executable, "-m", "iree.compiler.tools.import_onnx", str(model), "-o", str(text)]
        done = subprocess.run(importer, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Absent(f"its importer: {done.stderr.strip().splitlines()[-1][:200]}")
        flags = ["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"]
        try:
            binary = compiler.tools.compile_file(
                str(text), target_backends=["llvm-cpu"], input_type="onnx", extra_args=flags
            )
        except Exception as error:
            raise Absent(f"its compiler: {str(error).strip().splitlines()[-1][:200]}") from None
    config = runtime.Config("local-sync")
    loaded = runtime.load_vm_module(runtime.VmModule.copy_buffer(config.vm_instance, binary), config)
    name = next(one for one in loaded.vm_module.function_names if not one.startswith("__"))
    function = loaded[name.removesuffix("$async")]

    def run(*inputs: np.ndarray) -> list[np.ndarray]:
        found = function(*inputs)
        return [one.to_host() for one in (found if isinstance(found, (tuple, list)) else (found,))]

    return run


def openblas(model: Path, case: str, threads: int) -> Run:
    """The product by numpy, whose wheels bring OpenBLAS; its threads are those of OMP_NUM_THREADS."""
    function = ALL[case].numpy
    if function is None:
        raise Absent("it is no matrix product")
    return lambda *inputs: [function(*inputs)]


RIVALS: dict[str, Callable[[Path, str, int], Run]] = {
    "onnxruntime": onnxruntime,
    "OpenVINO": openvino,
    "torch.compile": torch_compile,
    "IREE": iree,
    "OpenBLAS": openblas,
}


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise Absent(f"{name} is not installed") from None
