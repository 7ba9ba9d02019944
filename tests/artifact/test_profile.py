"""The profile of an artifact: each region measured by itself, here and on a server, and drawn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

import farcall as fc
from farcall.cli.run import command
from farcall.errors import ArtifactError
from farcall.library import inspect
from farcall.rpc import Profile, Server

from ..tree import ROOT
from .stub_backend import Stub, model, plan

CHAIN = [("Add", "x y", "a"), ("Neg", "a", "b"), ("Mul", "b w", "z"), ("Add", "z a", "r")]
SHAPE = {"x": ["batch", 3], "y": ["batch", 3]}
X = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    proto = model(CHAIN, SHAPE, {"r": ["batch", 3]}, {"w": np.array(2.5, np.float32)})
    built = plan(proto, Stub("npu", ["Neg"]), Stub("cpu")).build()
    return built.save(tmp_path_factory.mktemp("profile") / "chain.so")


@pytest.fixture(scope="module")
def here(artifact: Path) -> Profile:
    return fc.profile(artifact, X, X)


@pytest.fixture(scope="module")
def session() -> Iterator[fc.Session]:
    with Server() as server, fc.connect(server.url) as session:
        yield session


def check(profile: Profile) -> None:
    assert [(row.name, row.backend, row.nodes) for row in profile.rows] == [
        ("cpu_0", "cpu", 1), ("npu_0", "npu", 1), ("cpu_1", "cpu", 2)
    ]  # fmt: skip
    assert all(row.timing.median > 0 for row in profile.rows)
    assert sum(row.share for row in profile.rows) == pytest.approx(1)
    assert profile.main.median > 0


def test_each_region_has_a_time_and_a_share(here: Profile) -> None:
    check(here)
    first, head, *rows = str(here).splitlines()
    assert first.startswith("main in this process: ")
    assert head.split() == ["region", "backend", "nodes", "time", "share"]
    assert {row.split()[0] for row in rows} == {"cpu_0", "npu_0", "cpu_1"}
    shares = [float(row.split()[-1].rstrip("%")) for row in rows]
    assert shares == sorted(shares, reverse=True)
    assert "<table" in here._repr_html_()


def test_regions_are_measured_on_a_server_too(artifact: Path, session: fc.Session) -> None:
    profile = fc.profile(artifact, X, y=X, on=session)
    check(profile)
    assert profile.where == session.url


def test_a_loaded_module_and_arguments_by_name_do_as_well(artifact: Path) -> None:
    check(fc.profile(fc.load_module(artifact), x=X, y=X))


def test_wrong_arguments_are_refused_as_main_refuses_them(artifact: Path) -> None:
    with pytest.raises(TypeError, match="`x` of `main`"):
        fc.profile(artifact, X.astype(np.float64), X)


def test_the_picture_shows_the_time_of_each_region(here: Profile) -> None:
    root = ElementTree.fromstring(here.svg())  # noqa: S314
    texts = [item.text or "" for item in root.iter("{http://www.w3.org/2000/svg}text")]
    assert sum(" \u00b7 " in text and text.endswith("%") for text in texts) == 3
    assert {"Add", "Neg", "Mul"} <= set(texts)


def test_the_diagram_is_in_the_manifest_and_constants_are_not(artifact: Path) -> None:
    diagram = msgspec.json.decode(inspect(artifact).diagram)
    assert [box[0] for box in diagram["boxes"]][2:6] == [["Add"], ["Neg"], ["Mul"], ["Add"]]
    assert "w" not in [value[0] for value in diagram["values"]]


def test_an_artifact_of_the_first_version_is_refused_with_the_cure() -> None:
    frozen = ROOT / "tests" / "data" / "format1" / "affine.so"
    assert bytes(inspect(frozen).diagram) == b"null"
    with pytest.raises(ArtifactError, match="no Signatures; build it again"):
        fc.profile(frozen, np.zeros((2, 4), np.float32))


def test_the_command_shows_the_table_and_writes_the_picture(artifact: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    given = ["--input", f"x={tmp_path}/x.npy", "--input", f"y={tmp_path}/x.npy"]
    picture = tmp_path / "times.svg"
    done = CliRunner().invoke(command, [str(artifact), *given, "--svg", str(picture)], catch_exceptions=False)
    assert "its regions one by one" in done.output
    assert picture.read_text().startswith("<svg ")
    refused = CliRunner().invoke(command, [str(artifact), *given, "--profile", "--trace", "t.json"])
    assert refused.exit_code == 2 and "choose one" in refused.output
    words = [str(artifact), *given, "--profile", "--json"]
    report = json.loads(CliRunner().invoke(command, words, catch_exceptions=False).output)
    assert [row["name"] for row in report["regions"]] == ["cpu_0", "npu_0", "cpu_1"]
