"""``Plan.build(tune=True)``: with a backend that counts made-up times, and once with the C backend's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from click.testing import CliRunner
from onnx import helper, numpy_helper

import farcall as fc
from farcall.backends.base import Backend, Choice, RegionCode, Work
from farcall.cli.build import command
from farcall.errors import UsageError
from farcall.graph import Region
from farcall.library import inspect
from farcall.rpc import Server, Session
from farcall.toolchain import Target

NANOSECONDS = {"plain": 5000, "clever": 2000, "odd": 9000}
SOURCE = """#include <farcall/c_api.h>
FARCALL_KERNEL({name}) {{
  ((float*)((DLTensor*)args[1].v_ptr)->data)[0] = {value};
  return 0;
}}
"""
STEPS = """FARCALL_KERNEL({name}_steps) {{
  *result = (TVMFFIAny){{.type_index = kTVMFFIInt, .v_int64 = {nanoseconds}}};
  return 0;
}}
"""


class Counted(Backend):
    """Computes Neg in three ways, whose times and results are made up: the result is the time."""

    name = "counted"
    profiles = True

    def __init__(self) -> None:
        self.measured: list[str] = []

    def check(self, node: ir.Node) -> str | None:
        return None if node.op_type == "Neg" else "only Neg"

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionCode:
        problem = f"Neg {list(map(str, region.inputs[0].shape or ()))}"
        way = options.get("ways", {}).get(problem, "plain")
        text = SOURCE.format(name=region.name, value=NANOSECONDS[way])
        if not options.get("profile"):
            return RegionCode({f"{region.name}.c": text})
        self.measured.append(way)
        text += STEPS.format(name=region.name, nanoseconds=NANOSECONDS[way])
        work = Work(
            [node.name or "" for node in region.nodes], "Neg", choice=Choice(problem, way, list(NANOSECONDS))
        )
        return RegionCode({f"{region.name}.c": text}, work=[work])


def model(size: int | str = 1) -> onnx.ModelProto:
    head = '<ir_version: 10, opset_import: ["": 20]>'
    return onnx.parser.parse_model(f"{head} g (float[{size}] x) => (float[{size}] y) {{ y = Neg(x) }}")


def built(figures: Path, backend: Backend | None = None, **options: Any) -> float:
    """The time that the artifact says it takes."""
    plan = fc.partition(model(), [backend or Counted()])
    artifact = plan.build(tune=True, figures=figures, **options)
    return float(artifact.load()["main"](np.zeros(1, np.float32))[0])


def test_the_fastest_way_is_taken(tmp_path: Path) -> None:
    assert built(tmp_path / "figures.json") == NANOSECONDS["clever"]


def test_nothing_is_measured_twice(tmp_path: Path) -> None:
    backend = Counted()
    built(tmp_path / "figures.json", backend)
    first, backend.measured[:] = set(backend.measured), []
    assert first == set(NANOSECONDS)
    assert built(tmp_path / "figures.json", backend) == NANOSECONDS["clever"]
    assert backend.measured == ["plain"], "only asked for its choices"


def test_other_sizes_are_another_problem(tmp_path: Path) -> None:
    built(tmp_path / "figures.json")
    backend = Counted()
    fc.partition(model(2), [backend]).build(tune=True, figures=tmp_path / "figures.json")
    assert set(backend.measured) == set(NANOSECONDS)


def test_without_time_the_first_way_is_taken(tmp_path: Path) -> None:
    assert built(tmp_path / "figures.json", budget_s=0) == NANOSECONDS["plain"]


def test_it_measures_on_a_server(tmp_path: Path, farcall_session: Session) -> None:
    assert built(tmp_path / "figures.json", on=farcall_session) == NANOSECONDS["clever"]
    backend = Counted()
    built(tmp_path / "figures.json", backend)
    assert set(backend.measured) == set(NANOSECONDS), "times of a server are not those of this process"


def test_another_machine_needs_a_session(tmp_path: Path) -> None:
    plan = fc.partition(model(), [Counted()])
    with pytest.raises(UsageError, match=r"runs no code for s390x-linux-musl; pass on=session"):
        plan.build("s390x-linux-musl", tune=True, figures=tmp_path / "figures.json")


def test_what_says_how_to_tune_needs_tune(tmp_path: Path) -> None:
    plan = fc.partition(model(), [Counted()])
    with pytest.raises(UsageError, match=r"^figures=...: says how to tune; pass tune=True, too, or leave it"):
        plan.build(figures=tmp_path / "figures.json")
    with pytest.raises(
        UsageError, match=r"^on: expected a Session, such as farcall.connect\(url\), got 'tcp:"
    ):
        plan.build(tune=True, on="tcp://127.0.0.1:1")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^budget_s: expected seconds, 0 or more, got -1"):
        plan.build(tune=True, budget_s=-1)


def test_another_number_of_threads_is_measured_again(tmp_path: Path) -> None:
    built(tmp_path / "figures.json")
    backend = Counted()
    with fc.use_threads(7):
        built(tmp_path / "figures.json", backend)
    assert set(backend.measured) == set(NANOSECONDS)


def test_regions_behind_open_sessions_are_loaded_there(tmp_path: Path) -> None:
    text = '<ir_version: 10, opset_import: ["": 20]> g (float[1] x) => (float[1] z) { y = Neg(x) z = Abs(y) }'
    with Server() as server, fc.connect(server.url) as session:
        far = fc.backend("remote", on=session, operators=["Abs"])
        plan = fc.partition(onnx.parser.parse_model(text), [Counted(), far])
        main = plan.build(tune=True, figures=tmp_path / "figures.json").load()["main"]
        assert main(np.zeros(1, np.float32))[0] == NANOSECONDS["clever"]


def test_inputs_must_be_of_the_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the model has no input `q`; it has x"):
        built(tmp_path / "figures.json", inputs={"q": np.zeros(1)})


def test_progress_tells_how_many_took_another_way(tmp_path: Path) -> None:
    events: list[fc.Progress] = []
    built(tmp_path / "figures.json", progress=events.append)
    (*_, last) = [event for event in events if event.phase == "tune"]
    assert last.finished
    assert last.message == "1 of 1 operator by another way"


def test_a_profile_tells_the_way(tmp_path: Path) -> None:
    path = fc.partition(model(), [Counted()]).build(profile=True).save(tmp_path / "m.so")
    ((step,),) = [region.steps for region in inspect(path).regions]  # type: ignore[misc]
    assert (step.problem, step.way) == ("Neg ['1']", "plain")


def test_convolutions_are_tuned(tmp_path: Path) -> None:
    """Whatever is the fastest here: the result is right, and every way has a time."""
    weights = np.random.default_rng(0).standard_normal((8, 8, 3, 3)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 8, 12, 12]) for name in "xy"]
    graph = helper.make_graph([node], "g", values[:1], values[1:], [numpy_helper.from_array(weights, "w")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    plan = fc.partition(proto)
    x = np.random.default_rng(1).standard_normal((1, 8, 12, 12)).astype(np.float32)
    expected = plan.build().load()["main"](x)
    found = plan.build(tune=True, figures=tmp_path / "figures.json").load()["main"](x)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    assert len((tmp_path / "figures.json").read_text().split(",")) == 4  # two tiles, two blocks of windows


def test_the_command_tunes_on_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    onnx.save(model(), tmp_path / "m.onnx")
    with Server() as server:
        options = ["--backends", f"{__name__}:Counted", "--tune", "--on", server.url]
        words = [str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.so"), *options]
        result = CliRunner().invoke(command, words, catch_exceptions=False)
    assert result.exit_code == 0
    assert fc.load_module(tmp_path / "m.so")["main"](np.zeros(1, np.float32))[0] == NANOSECONDS["clever"]
    assert (tmp_path / "farcall" / "figures.json").exists()
