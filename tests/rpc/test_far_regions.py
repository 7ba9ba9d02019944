"""Artifacts with regions for a device behind the server: host -> phone -> DSP."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farcall as fc
from farcall.errors import ArtifactError, RemoteError
from farcall.rpc import Server, connect

from ..native.small_server import named, small_server
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
