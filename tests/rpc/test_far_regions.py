"""Artifacts with regions for a device behind the server: host -> phone -> DSP."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import farcall as fc
from farcall.errors import ArtifactError, ConnectionLostError, DeadlineExceededError, RemoteError
from farcall.rpc import Server, connect

from ..native.between import Between, between, kill
from ..native.small_server import named, running, small_server
from ..tree import ROOT
from ..waiting import SECONDS
from .servers import COMMAND

DIGITS = ROOT / "examples/digits"
HERE = f"pipe:{shlex.join([*COMMAND, '--stdio'])}"  # a device that is a process of this machine


def planned(on: str, operators: list[str]) -> fc.Plan:
    remote = fc.backend("remote", on=on, operators=operators)
    return fc.partition(DIGITS / "digits.onnx", backends=[remote, "c"])


@pytest.fixture(scope="module")
def images() -> Any:
    return np.load(DIGITS / "test.npz")["images"][:4].astype("float32")


@pytest.fixture(scope="module")
def expected(images: Any) -> Any:
    return fc.partition(DIGITS / "digits.onnx").build().load()["main"](images)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("far")
    return planned("dsp0", ["Conv", "Relu"]).build().save(folder / "digits.so")


@pytest.mark.long
def test_regions_for_two_instruction_sets_in_one_artifact(
    images: Any, expected: Any, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    hexagon = named("hexagon")
    words = [*small_server(hexagon, tmp_path_factory), "--stdio", "--workpath", str(tmp_path)]
    device = f"pipe:{shlex.join(words)}"
    plan = planned("dsp0", ["Conv", "Relu", "Gemm", "MatMul", "Add"])
    counts = [region.backend for region in plan.regions]
    assert counts.count("remote") > 1 and "c" in counts
    path = plan.build(devices={"dsp0": hexagon.target}).save(tmp_path / "digits.so")
    with (
        Server(devices={"dsp0": device}) as phone,
        connect(phone.url, timeout=SECONDS) as session,
    ):
        main = session.load_module(path)["main"]
        for _ in range(2):
            np.testing.assert_allclose(main(images).numpy(), expected, rtol=1e-5, atol=1e-5)


def test_the_owner_of_the_server_says_where_devices_are(images: Any, expected: Any, artifact: Path) -> None:
    with Server(devices={"npu": HERE, "dsp0": HERE}) as phone, connect(phone.url, timeout=SECONDS) as session:
        got = session.load_module(artifact)["main"](images).numpy()
        np.testing.assert_array_equal(got, expected)


def test_a_server_without_the_device_refuses_the_artifact(artifact: Path) -> None:
    with Server() as phone, connect(phone.url, timeout=SECONDS) as session:
        with pytest.raises(ArtifactError, match=r"region.*`remote_0`.*farcall serve --device dsp0=URL"):
            session.load_module(artifact)
        assert not session.closed


def test_a_client_cannot_send_a_server_to_a_url(tmp_path: Path) -> None:
    with Server() as phone, connect(phone.url, timeout=SECONDS) as session:
        path = planned(phone.url, ["Conv"]).build().save(tmp_path / "url.so")
        with pytest.raises(ArtifactError, match="regions are on devices that its owner names"):
            session.load_module(path)


def test_a_device_that_ends_does_not_end_the_session(
    images: Any, expected: Any, artifact: Path, tmp_path: Path
) -> None:
    url = f"unix://{tmp_path}/dsp.sock"
    with (
        Server(devices={"dsp0": url}) as phone,
        connect(phone.url, timeout=SECONDS) as session,
    ):
        with Server(urls=[url]):
            main = session.load_module(artifact)["main"]
            np.testing.assert_array_equal(main(images).numpy(), expected)
        with pytest.raises(RemoteError, match=r"region `remote_0` on dsp0: .*load the artifact again"):
            main(images)
        with Server(urls=[url]):
            again = session.load_module(artifact)["main"]
            np.testing.assert_array_equal(again(images).numpy(), expected)


# ---- a device that dies or hangs in the middle of a call


class Device(NamedTuple):
    """A small server, and the line to it."""

    process: subprocess.Popen[str]
    line: Between


@pytest.fixture
def device(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    (tmp_path / "far").mkdir()
    program = small_server(named("x86_64"), tmp_path_factory)
    with running(program, "--workpath", f"{tmp_path}/far") as (process, url), between(url) as line:
        yield Device(process, line)


@pytest.fixture(scope="module")
def for_musl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plan = planned("dsp0", ["Conv", "Relu"])
    target = named("x86_64").target
    return plan.build(devices={"dsp0": target}).save(tmp_path_factory.mktemp("musl") / "digits.so")


def test_a_device_is_killed_in_the_middle_of_a_call(
    images: Any, expected: Any, for_musl: Path, device: Device
) -> None:
    main = fc.load_module(for_musl, devices={"dsp0": device.line.url})["main"]
    np.testing.assert_allclose(main(images), expected, rtol=1e-5, atol=1e-5)
    device.line.tap = partial(kill, device.process.pid)
    for _ in range(2):
        with pytest.raises(
            ConnectionLostError, match=r"region `remote_0` on dsp0: .*load the artifact again"
        ):
            main(images)


def test_a_device_behind_a_server_is_killed_in_the_middle_of_a_call(
    images: Any, for_musl: Path, device: Device
) -> None:
    with (
        Server(devices={"dsp0": device.line.url}) as phone,
        connect(phone.url, timeout=SECONDS) as session,
    ):
        main = session.load_module(for_musl)["main"]
        device.line.tap = partial(kill, device.process.pid)
        for _ in range(2):
            with pytest.raises(RemoteError, match=r"region `remote_0` on dsp0: .*load the artifact again"):
                main(images)
        assert not session.closed
        assert session.tensor(images).numpy().shape == images.shape


def test_a_device_hangs_and_the_deadline_passes(
    images: Any, expected: Any, for_musl: Path, device: Device
) -> None:
    """The session is over: the device may still be at the call. Another one may begin."""
    main = fc.load_module(for_musl, devices={"dsp0": device.line.url})["main"]
    device.line.tap = lambda: False
    with pytest.raises(DeadlineExceededError, match="region `remote_0` on dsp0: "), fc.deadline(0.2):
        main(images)
    assert device.line.ended.wait(SECONDS)
    with pytest.raises(RemoteError, match=r"region `remote_0` on dsp0: .*load the artifact again"):
        main(images)
    device.line.tap = lambda: True
    again = fc.load_module(for_musl, devices={"dsp0": device.line.url})["main"]
    np.testing.assert_allclose(again(images), expected, rtol=1e-5, atol=1e-5)


def test_a_device_behind_a_server_hangs_and_the_deadline_passes(
    images: Any, for_musl: Path, device: Device
) -> None:
    with (
        Server(devices={"dsp0": device.line.url}) as phone,
        connect(phone.url, timeout=SECONDS) as session,
    ):
        main = session.load_module(for_musl)["main"]
        device.line.tap = lambda: False
        with pytest.raises(DeadlineExceededError), fc.deadline(0.2):
            main(images)
        assert session.closed
        assert device.line.ended.wait(SECONDS)  # the worker's session with the device ends with it
        device.line.tap = lambda: True
        with connect(phone.url, timeout=SECONDS) as other:
            assert other.load_module(for_musl)["main"](images).numpy().shape == (4, 10)
