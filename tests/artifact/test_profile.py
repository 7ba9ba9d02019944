"""The profile of an artifact: each region measured by itself, here and on a server, and drawn."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

import farcall as fc
from farcall.cli.run import command
from farcall.errors import ArtifactError
from farcall.library import inspect
from farcall.rpc import Profile, Roof, Server
from farcall.rpc.client import _roof
from farcall.toolchain import Target, find_compiler, include_dir

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
    traced = [str(artifact), *given, "--profile", "--trace", str(tmp_path / "t.json")]
    CliRunner().invoke(command, traced, catch_exceptions=False)
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert [event["name"] for event in events] == ["cpu_0", "npu_0", "cpu_1"]
    words = [str(artifact), *given, "--profile", "--json"]
    report = json.loads(CliRunner().invoke(command, words, catch_exceptions=False).output)
    assert [row["name"] for row in report["regions"]] == ["cpu_0", "npu_0", "cpu_1"]


SEQUENCE = [("MatMul", "x w", "a"), ("Tanh", "a", "b"), ("Neg", "b", "c"), ("Softmax", "c", "r")]


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact of `c` whose regions count the time of their operators."""
    w = np.ones((3, 5), np.float32)
    proto = model(SEQUENCE, {"x": ["batch", 3]}, {"r": ["batch", 5]}, {"w": w})
    built = fc.partition(proto, backends=["c"]).build(profile=True)
    return built.save(tmp_path_factory.mktemp("profile") / "counting.so")


def check_steps(profile: Profile) -> None:
    """4 rows of 3 and 5 elements: 2 x 4 x 3 x 5 operations of the product, one for each element of a loop."""
    assert [(step.operator, step.operations) for step in profile.steps] == [
        ("MatMul", 120), ("Tanh+Neg", 40), ("Softmax", 0)
    ]  # fmt: skip
    assert [step.traffic for step in profile.steps[1:]] == [2 * 80, 2 * 80]
    assert all(step.seconds > 0 and step.region == "c_0" for step in profile.steps)
    assert sum(step.share for step in profile.steps) == pytest.approx(1)
    (row,) = profile.rows
    assert (row.operations, row.traffic) == (160, sum(step.traffic for step in profile.steps))
    assert profile.roof is not None and profile.roof.operations > 1e8 and profile.roof.bandwidth > 1e7
    share = profile.roof_share(profile.steps[0])
    assert share is not None and share > 0


def test_a_profiled_build_tells_the_time_of_each_operator(counting: Path) -> None:
    profile = fc.load_module(counting).profile(X)
    check_steps(profile)
    regions, steps = str(profile).split("\n\n")
    assert regions.splitlines()[1].split() == [
        "region", "backend", "nodes", "time", "share", "GFLOP/s", "GB/s", "roof"
    ]  # fmt: skip
    assert "roof of one core: " in steps and "Tanh+Neg" in steps
    assert profile._repr_html_().count("<table") == 2
    events = {event["name"]: event for event in json.loads(profile.trace())["traceEvents"]}
    assert list(events) == ["c_0", "MatMul", "Tanh+Neg", "Softmax"]
    ends = [event["ts"] + event["dur"] for event in events.values()]
    assert ends[-1] <= ends[0] * 1.001  # microseconds: steps stand inside of their region


def test_an_operator_with_ways_for_several_sizes_is_one_row_also_of_a_module_that_was_never_saved() -> None:
    x = np.zeros((2, 1, 8, 8), np.float32)
    module = fc.partition(ROOT / "examples/digits/digits.onnx", backends=["c"]).build(profile=True).load()
    found = module.profile(x)
    assert [step.nodes for step in found.steps] == list(dict.fromkeys(step.nodes for step in found.steps))
    assert sum(len(step.nodes) for step in found.steps) == 11  # all but Reshape, which is no step
    assert module.memory(x).constants > 0


def test_operators_are_measured_on_a_server_too(counting: Path, session: fc.Session) -> None:
    check_steps(fc.profile(counting, X, on=session))


def test_a_normal_build_has_no_clocks(artifact: Path) -> None:
    plan = fc.partition(model(SEQUENCE, {"x": [4, 3]}, {"r": [4, 5]}, {"w": np.ones((3, 5), np.float32)}))
    assert "farcall_nanoseconds" not in plan.source("c_0")
    assert b'"steps"' not in artifact.read_bytes()


def test_a_profiled_static_library_is_refused() -> None:
    plan = fc.partition(model(SEQUENCE, {"x": [4, 3]}, {"r": [4, 5]}, {"w": np.ones((3, 5), np.float32)}))
    with pytest.raises(fc.UsageError, match="a static library has no profile"):
        plan.build(link="static", profile=True)


def test_the_roof_is_the_slower_one_of_arithmetic_and_memory() -> None:
    roof = Roof(operations=100e9, bandwidth=10e9)
    assert roof.seconds(100, 1) == pytest.approx(1e-9)
    assert roof.seconds(1, 10) == pytest.approx(1e-9)
    assert str(roof) == "100 GFLOP/s, 10.0 GB/s"


def test_the_command_tells_the_operators(counting: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    words = [str(counting), "--input", f"x={tmp_path}/x.npy", "--profile", "--json"]
    report = json.loads(CliRunner().invoke(command, words, catch_exceptions=False).output)
    assert [step["nodes"] for step in report["steps"]] == [["MatMul_0"], ["Tanh_1", "Neg_2"], ["Softmax_3"]]
    schema = json.loads((ROOT / "docs" / "schemas" / "run.1.json").read_text())
    jsonschema.validate(report, schema)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="counts instructions of x86-64")
def test_the_compiler_leaves_no_multiply_add_of_the_roof_out(tmp_path: Path) -> None:
    compiler, target = find_compiler(Target.host()), Target.host()
    (tmp_path / "roof.c").write_text(_roof._source())
    flags = [*compiler.target_flags(target), "-O3", "-ffp-contract=fast", f"-I{include_dir()}"]
    compiler.run([*flags, "-S", "roof.c", "-o", "roof.s"], tmp_path, "roof.c")
    text = (tmp_path / "roof.s").read_text()
    counts = [len(re.findall(rf"vfn?madd\d+ps\s.*%{register}", text)) for register in ("ymm", "zmm")]
    assert all(counts) and all(count % 12 == 0 for count in counts)
