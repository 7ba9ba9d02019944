"""A program as a user writes it. `make lint` has mypy and pyright check it.

Each line with two `ignore` comments is a mistake that both must report; an `ignore` without need is an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict, assert_type

import numpy as np
import numpy.typing as npt

import farcall as fc
from farcall.abi import FunctionAbi, annotated
from farcall.rpc import Call, Limits, RemoteDevice, RemoteModule, Server, Stats, Timing, Tls
from farcall.rpc.tokens import TokenFile

Image = Annotated[fc.Array, "float32[batch, 1, 8, 8]"]


class Tokens(TypedDict):
    ids: Annotated[npt.NDArray[np.int64], "int64[n]"]
    mask: Annotated[fc.Array, "bool[n]"] | None


class Scores(NamedTuple):
    best: int
    rows: list[Annotated[fc.Array, "float32[...]"]]


def score(tokens: Tokens, image: Image, *, scale: float = 1.0) -> Scores:
    assert_type(tokens["ids"], npt.NDArray[np.int64])
    return Scores(3, [image.sum() * scale])


@annotated
def norms(points: list[Annotated[npt.NDArray[np.float32], "float32[3]"]]) -> list[float]:
    return [float(np.linalg.norm(point)) for point in points]


def modules(path: Path) -> None:
    module = fc.load_module(path)
    assert_type(module, fc.Module)
    assert_type(module["main"], fc.Function)
    assert_type(module.main, fc.Function)
    assert_type("main" in module, bool)
    assert_type(len(module), int)
    for name in module:
        assert_type(name, str)
    assert_type(dict(module.items()), dict[str, fc.Function])
    assert_type(dict(module), dict[str, fc.Function])
    module[0]  # type: ignore[index]  # pyright: ignore


def functions(function: fc.Function) -> None:
    result: npt.NDArray[np.float32] = function(np.ones(3), scale=2)  # a call returns Any
    assert_type(function.name, str)
    assert_type(function.submit(result), Call | Future[Any])
    function.signature = fc.Signature.from_callable(score)
    function.abi = FunctionAbi(fc.Signature.of({"x": "float32[n]"}, "float32[n]"), casting="same_kind")
    assert_type(norms, fc.Function)
    assert_type(fc.get_global_func("name"), fc.Function)
    assert_type(fc.get_global_func("name", allow_missing=True), fc.Function | None)
    function.name = "other"  # type: ignore[misc]  # pyright: ignore


@fc.register_global_func("consumer.add")
def add(a: int, b: int) -> int:
    return a + b


assert_type(add(1, 2), int)


def tensors(x: npt.NDArray[np.float32]) -> None:
    tensor = fc.from_dlpack(x)
    assert_type(tensor, fc.Tensor)
    assert_type(tensor.shape, fc.Shape)
    assert_type(tensor.shape[0], int)
    assert_type(tensor.dtype, fc.dtype)
    assert_type(tensor.device, fc.Device)
    assert_type(tensor.numpy(), npt.NDArray[Any])
    _ = tensor.shap  # type: ignore[attr-defined]  # pyright: ignore


def sessions(url: str) -> None:
    with fc.connect(url, via=["tcp://gateway:9090"], timeout=3, tls=Tls.of("certs/client")) as session:
        assert_type(session, fc.Session)
        far = session.load_module("model.so")
        assert_type(far, RemoteModule)
        assert_type(far["main"], fc.Function)
        for name in far:
            assert_type(name, str)
        assert_type(session.tensor(np.ones(3)), fc.Tensor)
        assert_type(session.device("cuda:0"), RemoteDevice)
        assert_type(session.stats, Stats)
        assert_type(session.stats.bytes_in, int)
        assert_type(session.download("log.txt"), bytes)
        with session.pipeline() as pipeline:
            assert_type(pipeline(far["main"], 1), Call)
        with fc.deadline(0.5), fc.trace("trace.json"):
            assert_type(far.benchmark("main", 1, repeat=5), Timing)
    fc.connect(url, timout=3)  # type: ignore[call-arg]  # pyright: ignore
    fc.connect(9090)  # type: ignore[arg-type]  # pyright: ignore


def servers(folder: Path) -> None:
    tokens = TokenFile(folder / "tokens.json")
    with fc.serve("exports:register", url="unix:///run/farcall.sock") as server:
        assert_type(server, Server)
    with Server(limits=Limits(sessions=3), tokens=tokens.path) as server:
        assert_type(server.url, str)
    Limits(sesions=3)  # type: ignore[call-arg]  # pyright: ignore


async def asynchronous(function: fc.Function) -> None:
    async with fc.connect_async("tcp://board:9090", timeout=3) as session:
        assert_type(session, fc.Session)
    assert_type(await fc.connect_async("tcp://board:9090"), fc.Session)
    fc.connect_async("tcp://board:9090", timout=3)  # type: ignore[call-arg]  # pyright: ignore
    assert_type(await function.call_async(1, timeout=3.0), Any)
    call = function.submit(1)
    if isinstance(call, Call):
        assert_type(await call, Any)


def models(path: Path) -> None:
    plan = fc.partition(path, backends=["c"])
    assert_type(plan, fc.Plan)
    assert_type(plan.signature, fc.Signature)
    assert_type(plan.svg(), str)
    artifact = plan.build(target="aarch64-linux-musl")
    assert_type(artifact, fc.artifact.Artifact)
    fc.partition(path, backend="c")  # type: ignore[call-arg]  # pyright: ignore


def rooms() -> None:
    assert_type(fc.rpc.Limits(), Limits)
    assert_type(fc.cpp.load_inline("mine", cpp_sources="int f() { return 1; }"), fc.Module)
    assert_type(fc.library.inspect("model.so"), fc.library.Manifest)
    try:
        modules(Path("model.so"))
    except fc.errors.MissingFunctionError as error:
        assert_type(error.url, str)
    except (fc.errors.ArgumentError, fc.RemoteError):
        pass
    check: Callable[[str], fc.abi.Leaf] = fc.abi.parse_leaf
    check("float32[n]")
    fc.conect("tcp://board:9090")  # type: ignore[attr-defined]  # pyright: ignore
    _ = fc.rpc.conect  # type: ignore[attr-defined]  # pyright: ignore
    _ = fc.errors.RemotError  # type: ignore[attr-defined]  # pyright: ignore


if __name__ == "__main__":
    asyncio.run(asynchronous(fc.convert(add)))
