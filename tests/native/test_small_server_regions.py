"""Artifacts whose regions go on to devices: the small server as the phone, and as the device.

What the full server does alike is tested in tests/rpc/test_far_regions.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import parser

import farcall as fc
from farcall.errors import ArtifactError, DeadlineExceededError, PermissionDeniedError, RemoteError
from farcall.library import Blob, embed_modules
from farcall.library._far import KIND, VERSION, Source, pack
from farcall.rpc import connect
from farcall.rpc.tokens import TokenFile

from ..tree import ROOT
from ..waiting import SECONDS
from .between import Between, between, kill
from .small_server import named, running, small_server

DIGITS = ROOT / "examples/digits"
X86 = "x86_64-linux-musl"


def model(body: str) -> onnx.ModelProto:
    return parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[n, 3] p, float[n, 3] q) => (float[n, 3] y)'
        f"{{ {body} }}"
    )


# s and t go around Exp, from one region of the device to the other
AROUND = model("s = Add(p, q) t = Tanh(s) r = Relu(s) e = Exp(r) u = Add(e, s) y = Add(u, t)")
P, Q = np.float32([[1, -2, 3], [0, 4, -6]]), np.float32([[3, 1, 1], [-2, 5, 0.5]])


def result(p: Any, q: Any) -> Any:
    total = p + q
    return np.exp(np.maximum(total, 0)) + total + np.tanh(total)


class Chain(NamedTuple):
    """This machine -> phone -> device."""

    session: fc.Session
    line: Between  # between phone and device
    device: int  # the process of the device's server


@pytest.fixture
def small(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return small_server(named("x86_64"), tmp_path_factory)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    remote = fc.backend("remote", on="dsp0", operators=["Add", "Tanh", "Relu"])
    plan = fc.partition(AROUND, backends=[remote, "c"])
    assert [region.backend for region in plan.regions] == ["remote", "c", "remote"]
    built = plan.build(X86, devices={"dsp0": X86})
    return built.save(tmp_path_factory.mktemp("regions") / "around.so")


@contextmanager
def chain(small: list[str], folder: Path, *words: str) -> Iterator[Chain]:
    """With further options of the device's server."""
    for name in ("near", "far"):
        (folder / name).mkdir()
    with (
        running(small, "--workpath", f"{folder}/far", *words, listen=f"unix:{folder}/u") as (device, url),
        between(url) as line,
        running(small, "--workpath", f"{folder}/near", "--device", f"dsp0={line.url}") as (_, near),
        connect(near, timeout=SECONDS) as session,
    ):
        yield Chain(session, line, device.pid)


@pytest.fixture
def phone(small: list[str], tmp_path: Path) -> Iterator[Chain]:
    with chain(small, tmp_path) as made:
        yield made


def test_a_phone_without_python_computes_regions_on_its_device(phone: Chain, artifact: Path) -> None:
    module = phone.session.load_module(artifact)
    for rows in (1, 2, 0, 200):  # the device's memory grows with the batch
        p, q = (np.resize(value, (rows, 3)) for value in (P, Q))
        np.testing.assert_allclose(module["main"](p, q).numpy(), result(p, q), rtol=1e-5)
    total, tanh, relu = (one.numpy() for one in module["remote_0"](P, Q))  # a region alone gives all values
    np.testing.assert_array_equal(total, P + Q)
    np.testing.assert_allclose(tanh, np.tanh(total), rtol=1e-5)
    np.testing.assert_array_equal(relu, np.maximum(total, 0))


def test_each_region_is_one_round_trip_to_the_device(phone: Chain, artifact: Path) -> None:
    main = phone.session.load_module(artifact)["main"]
    main(P, Q)  # the device has memory for the tensors now
    before = phone.line.trips
    for _ in range(5):
        main(P, Q)
    assert phone.line.trips - before == 5 * 2


def test_memory_of_the_device_is_used_again(small: list[str], tmp_path: Path, artifact: Path) -> None:
    """The device has 4 MiB for a session; 20 calls with tensors of 120 KB would need more."""
    with chain(small, tmp_path, "--memory", "4M") as made:
        main = made.session.load_module(artifact)["main"]
        p, q = (np.resize(value, (10_000, 3)) for value in (P, Q))
        for _ in range(20):
            np.testing.assert_allclose(main(p, q).numpy(), result(p, q), rtol=1e-5)


def test_a_call_that_fails_leaves_no_value_on_the_device(small: list[str], tmp_path: Path) -> None:
    """`s` stays on the device for the second region, but Gather, here, refuses its indices before that."""
    proto = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[n, 3] p, int64[n] i) => (float[n, 3] y)'
        "{ s = Add(p, p) r = Relu(s) g = Gather<axis = 0>(r, i) y = Add(g, s) }"
    )
    remote = fc.backend("remote", on="dsp0", operators=["Add", "Relu"])
    path = fc.partition(proto, [remote, "c"]).build(X86, devices={"dsp0": X86}).save(tmp_path / "gather.so")
    p = np.resize(P, (10_000, 3))
    i = np.arange(len(p))
    with chain(small, tmp_path, "--memory", "4M") as made:
        main = made.session.load_module(path)["main"]
        for _ in range(20):
            with pytest.raises(IndexError):
                main(p, i + 1)
        np.testing.assert_array_equal(main(p, i).numpy(), np.maximum(2 * p, 0) + 2 * p)


@pytest.mark.long
def test_digits_on_two_emulated_machines(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A phone of aarch64 with a DSP of Hexagon, both small servers: one artifact with code for both."""
    phone, dsp = named("aarch64"), named("hexagon")
    folder = tmp_path_factory.mktemp("digits")
    images = np.load(DIGITS / "test.npz")["images"][:4].astype("float32")
    remote = fc.backend("remote", on="dsp0", operators=["Conv", "Relu", "Gemm", "MatMul", "Add"])
    plan = fc.partition(DIGITS / "digits.onnx", backends=[remote, "c"])
    path = plan.build(phone.target, devices={"dsp0": "hexagon-linux-musl:hexagonv67+hvx"}).save(
        folder / "digits.so"
    )
    expected = fc.partition(DIGITS / "digits.onnx").build().load()["main"](images)
    with ExitStack() as stack:

        def serve(machine: Any, name: str, *words: str) -> str:
            (folder / name).mkdir()
            program = small_server(machine, tmp_path_factory)
            return stack.enter_context(running(program, "--workpath", f"{folder}/{name}", *words))[1]

        device = serve(dsp, "dsp", "--mailbox", f"{folder}/box")
        url = serve(phone, "phone", "--device", f"dsp0={device}")
        session = stack.enter_context(connect(url, timeout=SECONDS))
        main = session.load_module(path)["main"]
        for _ in range(2):
            np.testing.assert_allclose(main(images).numpy(), expected, rtol=1e-5, atol=1e-5)


# ---- errors


def test_the_device_is_killed_in_the_middle_of_a_call(phone: Chain, artifact: Path) -> None:
    main = phone.session.load_module(artifact)["main"]

    phone.line.tap = partial(kill, phone.device)
    with pytest.raises(
        RemoteError, match=r"region `remote_0` of backend `remote`: hop 2 \(device:dsp0\): `main`"
    ):
        main(P, Q)
    phone.line.tap = lambda: True
    with pytest.raises(RemoteError, match=r"it is lost with the session .* load the artifact again"):
        main(P, Q)
    assert phone.session.get_function("test.add")(20, 22) == 42  # the session with the phone goes on


def test_the_device_hangs_and_the_deadline_passes(phone: Chain, artifact: Path) -> None:
    main = phone.session.load_module(artifact)["main"]
    phone.line.tap = lambda: False
    with pytest.raises(DeadlineExceededError), fc.deadline(0.3):
        main(P, Q)
    assert phone.line.ended.wait(SECONDS)  # the device's session, too
    assert phone.session.closed  # the phone's worker waits for the device, so only its end ends the call


def test_a_phone_without_the_device_refuses_the_artifact(
    small: list[str], tmp_path: Path, artifact: Path
) -> None:
    words = ("--workpath", str(tmp_path))
    with running(small, *words) as (_, url), connect(url, timeout=SECONDS) as session:
        with pytest.raises(
            ArtifactError, match=r"regions `remote_0`, `remote_1` on dsp0: .*it has none .*--device NAME=URL"
        ):
            session.load_module(artifact)
        assert session.get_function("test.add")(1, 2) == 3


def test_a_token_without_the_right_to_go_on(small: list[str], tmp_path: Path, artifact: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    token = file.create("local", scopes=("call", "copy", "files", "load"))
    words = (
        "--workpath",
        str(tmp_path),
        "--device",
        f"dsp0=unix:{tmp_path}/no",
        "--token-file",
        str(file.path),
    )
    with (
        running(small, *words, listen=f"unix:{tmp_path}/u") as (_, url),
        connect(url, token=token, timeout=SECONDS) as session,
        pytest.raises(PermissionDeniedError, match=r"remote_0.* on dsp0: .*needs the scope `relay`"),
    ):
        session.load_module(artifact)


GOOD = pack("dsp0", "remote", "x", {"a": Source(1, b"one"), "b": Source(2, b"two")})


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "its first line is no head"),
        (b"[]\n", "its first line is no head"),
        (b"\xff\n", "its first line is no head"),
        (GOOD.replace(b'"on":"dsp0"', b'"on":[1]'), "it names no device"),
        (GOOD.replace(b'"part":1', b'"part":2'), "a region has no artifact"),
        (GOOD.replace(b'"inputs":2', b'"inputs":-2'), "a region has no artifact"),
        (GOOD.replace(b'"inputs":2', b'"inputs":"2"'), "a region has no artifact"),
        (GOOD[:-1], None),
        (GOOD, None),  # its artifacts are no libraries
    ],
)
def test_damaged_data_is_refused(phone: Chain, tmp_path: Path, data: bytes, problem: str | None) -> None:
    (tmp_path / "m.c").write_text(embed_modules([Blob(KIND, VERSION, data)]))
    library = fc.cpp.build("m", sources=[tmp_path / "m.c"], target=X86, build_directory=tmp_path / "build")
    with pytest.raises(ArtifactError, match=f"damaged: {problem}" if problem else "regions `a`, `b` on dsp0"):
        phone.session.load_module(library)
    assert phone.session.get_function("test.add")(1, 2) == 3
