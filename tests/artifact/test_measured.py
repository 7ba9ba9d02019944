"""Placement by measurement: with counted work instead of times, and once with real ones."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import farcall as fc
from farcall.artifact import Plan
from farcall.backends.base import Backend, Code, RegionCode, RegionModule
from farcall.backends.c import CBackend
from farcall.errors import ArtifactError, ConnectionLostError, RemoteError, UsageError
from farcall.graph import Region
from farcall.graph.dims import dims
from farcall.rpc import Session

from ..graph.graphs import KINDS, text_model

STEP = """<ir_version: 10, opset_import: ["": 20]>
g (float[{size}] x) => (float[{size}] y) {{ a = Exp(x) y = Neg(a) }}"""
BOTH = """g (float[4] x, float[90000] z) => (float[4] y, float[90000] v) { y = Exp(x) v = Exp(z) }"""


class Far(CBackend):
    """Takes long to begin, and is fast then."""

    name = "far"


class Meter:
    """Counts work: an element costs 1 on ``c``; on ``far`` 0.1, and each region 1,000."""

    def __init__(self) -> None:
        self.plans = 0

    def __call__(self, plan: Plan) -> Mapping[str, float]:
        self.plans += 1
        work = {
            region.name: float(sum(int(np.prod(dims(node.outputs[0]))) for node in region.nodes))
            for region in plan.regions
        }
        return {
            region.name: 1000 + work[region.name] / 10 if region.backend == "far" else work[region.name]
            for region in plan.regions
        }


def step(size: int) -> onnx.ModelProto:
    return onnx.parser.parse_model(STEP.format(size=size))


def place(model: onnx.ModelProto, folder: Path, meter: Meter, order: str = "far,c") -> Plan:
    backends = [Far() if name == "far" else name for name in order.split(",")]
    return fc.partition(model, backends, choose=fc.measured(meter=meter, figures=folder / "figures.json"))


@pytest.mark.parametrize("order", ["far,c", "c,far"])
@pytest.mark.parametrize(("size", "best"), [(4, "c"), (500, "c"), (600, "far"), (90_000, "far")])
def test_the_better_of_two_backends_that_cross_over(size: int, best: str, order: str, tmp_path: Path) -> None:
    plan = place(step(size), tmp_path, Meter(), order)
    assert [region.backend for region in plan.regions] == [best]
    assert "measured" in str(plan) and f"{best}_0" in plan.figures


def test_each_part_goes_where_it_is_faster(tmp_path: Path) -> None:
    for order in ("far,c", "c,far"):
        plan = place(text_model(BOTH), tmp_path, Meter(), order)
        assert {region.outputs[0].name: region.backend for region in plan.regions} == {"y": "c", "v": "far"}
    moved = plan.partition.whys[1]
    assert ("c", "measured") in [(one.backend, one.said) for one in moved.verdicts]
    assert "far \u00b7 1e+04 s" in plan.svg()


def test_equal_parts_are_moved_together(tmp_path: Path) -> None:
    """Forty times the same two operators: a plan for each part would be hundreds of builds."""
    steps = "".join(f"a{i} = Exp(y{i}) y{i + 1} = Conv(a{i}, w) " for i in range(40))
    model = text_model(
        f"g (float[1,1,8,8] y0) => (float[1,1,8,8] y40) <float[1,1,1,1] w = {{0.5}}> {{ {steps} }}"
    )
    meter = Meter()
    place(model, tmp_path, meter)
    assert meter.plans < 18


def test_a_plan_that_other_work_slowed_is_measured_again(tmp_path: Path) -> None:
    class Disturbed(Meter):
        def __call__(self, plan: Plan) -> Mapping[str, float]:
            found = super().__call__(plan)
            return {name: seconds * (50 if self.plans == 1 else 1) for name, seconds in found.items()}

    plan = place(step(90_000), tmp_path, Disturbed())
    assert [region.backend for region in plan.regions] == ["far"]


@pytest.mark.parametrize(("gain", "best"), [(0, "c"), (0.7, "c"), (0.8, "far")])
def test_a_cut_must_save_a_part_of_the_time(gain: float, best: str, tmp_path: Path) -> None:
    """`c` saves three quarters."""
    times = {"far": 1040.0, "c": 260.0}
    choose = fc.measured(
        meter=lambda plan: {one.name: times[one.backend] for one in plan.regions},
        gain=gain,
        figures=tmp_path / "f.json",
    )
    plan = fc.partition(step(4), [Far(), "c"], choose=choose)
    assert [region.backend for region in plan.regions] == [best]


def test_what_is_no_choice(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="gain: expected a part of the time"):
        fc.measured(gain=1)
    with pytest.raises(UsageError, match="on: expected a Session"):
        fc.measured(on="tcp://board:9090")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="budget_s: expected seconds"):
        fc.measured(budget_s=float("nan"))
    for given in ({}, {"c_0": -1.0}, None):
        choose = fc.measured(meter=lambda _, given=given: given, figures=tmp_path / "f.json")
        with pytest.raises(UsageError, match=r"meter: expected the seconds of each region .* for `c_0`"):
            fc.partition(step(4), ["c"], choose=choose)
    with pytest.raises(UsageError, match="choose: expected one that returns a Plan"):
        fc.partition(step(4), ["c"], choose=lambda propose: None)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_never_worse_than_the_order(kind: str, tmp_path: Path) -> None:
    model = KINDS[kind](24)
    chosen = place(model, tmp_path, Meter())
    greedy = Meter()(fc.partition(model, [Far(), "c"]))
    assert chosen.figures["main"] <= sum(greedy.values())


@pytest.mark.parametrize(("whole", "best"), [({"c": 5.0, "far": 6.0}, "c"), ({"c": 5.0, "far": 4.0}, "far")])
def test_the_time_of_the_whole_model_decides(whole: Mapping[str, float], best: str, tmp_path: Path) -> None:
    """Alone, each region moves its inputs and outputs; the whole model moves less, or more."""

    def meter(plan: Plan) -> Mapping[str, float]:
        (region,) = plan.regions
        return {region.name: 5.0, "main": whole[region.backend]}

    choose = fc.measured(meter=meter, figures=tmp_path / "f.json")
    model = text_model("g (float[4] x) => (float[4] y) { y = Exp(x) }")
    plan = fc.partition(model, [Far(), "c"], choose=choose)
    assert plan.figures == {"main": whole[best], f"{best}_0": 5.0}


def test_on_a_server_the_times_are_those_of_the_server(farcall_session: Session, tmp_path: Path) -> None:
    choose = fc.measured(on=farcall_session, figures=tmp_path / "f.json")
    plan = fc.partition(step(90_000), [Far(), "c"], choose=choose)
    assert all(seconds > 0 for seconds in plan.figures.values())


def test_figures_are_kept_and_the_same_figures_give_the_same_plan(tmp_path: Path) -> None:
    first, second = Meter(), Meter()
    plan = place(step(90_000), tmp_path, first)
    again = place(step(90_000), tmp_path, second)
    assert first.plans > 0 and second.plans == 0
    assert str(plan) == str(again)


def test_a_damaged_file_of_figures_is_measured_again(tmp_path: Path) -> None:
    for text in ("{", "[1]", '{"a": "b"}'):
        (tmp_path / "figures.json").write_text(text)
        meter = Meter()
        place(step(4), tmp_path, meter)
        assert meter.plans > 0


def test_without_budget_the_order_decides(tmp_path: Path) -> None:
    meter, hours = Meter(), itertools.count(0, 3600)
    choose = fc.measured(
        budget_s=60, meter=meter, figures=tmp_path / "f.json", clock=lambda: float(next(hours))
    )
    plan = fc.partition(step(4), [Far(), "c"], choose=choose)
    assert ([region.backend for region in plan.regions], meter.plans) == (["far"], 1)


def test_with_real_times_the_results_are_those_of_the_model(tmp_path: Path) -> None:
    x = np.float32([0, 1, 2, 3])
    choose = fc.measured(inputs={"x": x}, figures=tmp_path / "f.json")
    plan = fc.partition(step(4), [Far(), "c"], choose=choose)
    plan.build().save(tmp_path / "m.so")
    np.testing.assert_allclose(fc.load_module(tmp_path / "m.so")["main"](x), -np.exp(x), rtol=1e-6)
    assert all(seconds > 0 for seconds in plan.figures.values())
    with pytest.raises(UsageError, match="inputs: the model has no input `q`; it has x"):
        fc.partition(step(4), ["c"], choose=fc.measured(inputs={"q": x}, figures=tmp_path / "g.json"))


class Spin(Backend):
    """Counts down in a region: so often a call, and so often an element."""

    SOURCE = """#include <farcall/c_api.h>
FARCALL_KERNEL(%s) {
  (void)self; (void)num_args; (void)result;
  const DLTensor *x = args[0].v_ptr, *y = args[1].v_ptr;
  volatile int64_t left = %d + %d * x->shape[0];
  while (left > 0) left = left - 1;
  for (int64_t k = 0; k < x->shape[0]; ++k) ((float*)y->data)[k] = -((const float*)x->data)[k];
  return 0;
}"""

    def __init__(self, name: str, call: int, element: int) -> None:
        self.name, self._counts = name, (call, element)

    def check(self, node: ir.Node) -> str | None:
        return None if node.op_type == "Neg" else "no Neg"

    def compile(self, region: Region) -> RegionCode:  # type: ignore[override]
        return RegionCode({f"{region.name}.c": self.SOURCE % (region.name, *self._counts)})


@pytest.mark.parametrize(("size", "best"), [(10, "slow"), (3000, "late")])
def test_real_times_find_where_two_backends_cross_over(size: int, best: str, tmp_path: Path) -> None:
    """Both are of one class: the figures of the one are not those of the other."""
    model = text_model(f"g (float[{size}] x) => (float[{size}] y) {{ y = Neg(x) }}")
    for order in (1, -1):
        backends = [Spin("late", 100_000, 0), Spin("slow", 0, 100)][::order]
        plan = fc.partition(model, backends, choose=fc.measured(figures=tmp_path / "f.json"))
        assert [region.backend for region in plan.regions] == [best]


class Exps(CBackend):
    """Takes Exp alone."""

    name = "exps"

    def check(self, node: ir.Node) -> str | None:
        return None if node.op_type == "Exp" else "no Exp"


def test_regions_that_are_connected_in_another_way_are_measured(tmp_path: Path) -> None:
    """One after the other, a value stays on its device; beside each other, each region moves its own."""
    plans = []
    for read, count in (("b", 1), ("y", 2), ("b", 2)):
        source = f"g (float[4] a, float[4] b) => (float[4] y, float[4] z) {{ y = Exp(a) z = Neg({read}) }}"

        def meter(plan: Plan) -> Mapping[str, float]:
            plans.append(plan)
            return {region.name: 1.0 for region in plan.regions}

        choose = fc.measured(meter=meter, budget_s=0, figures=tmp_path / "f.json")
        fc.partition(text_model(source), [Exps(), "c"], choose=choose)
        assert len(plans) == count


class Faulty(CBackend):
    """Takes all, but its code cannot be built, loaded or run."""

    name = "faulty"

    def __init__(self, code: Code) -> None:
        self._code = code

    def compile(self, region: Region) -> Code:  # type: ignore[override]
        return self._code


RAISES = """#include <farcall/c_api.h>
FARCALL_KERNEL(faulty_0) {
  (void)self; (void)args; (void)num_args; (void)result;
  TVMFFIErrorSetRaisedFromCStr("ValueError", "no unit");
  return -1;
}"""


@pytest.mark.parametrize(
    "code",
    [
        RegionCode({"faulty_0.c": "int broken("}),
        RegionModule("test.nobody", 1, b""),
        RegionCode({"faulty_0.c": RAISES}),
    ],
    ids=["build", "load", "run"],
)
def test_a_backend_whose_code_fails_is_no_choice(code: Code, tmp_path: Path) -> None:
    plan = fc.partition(step(4), ["c", Faulty(code)], choose=fc.measured(figures=tmp_path / "f.json"))
    assert [region.backend for region in plan.regions] == ["c"]
    with pytest.raises((UsageError, ValueError)):
        fc.partition(step(4), [Faulty(code), "c"], choose=fc.measured(figures=tmp_path / "f.json"))


def test_errors_of_a_meter_and_of_a_session_end_the_search(tmp_path: Path) -> None:
    for error in (KeyError("meter"), ConnectionLostError("gone")):
        plans = []

        def meter(plan: Plan, error: Exception = error, plans: list[Plan] = plans) -> Mapping[str, float]:
            plans.append(plan)
            if len(plans) == 2:
                raise error
            return {region.name: 1.0 for region in plan.regions}

        with pytest.raises(type(error)):
            place_by(meter, tmp_path / f"{type(error).__name__}.json")


def test_no_measurement_begins_that_would_end_after_the_budget(tmp_path: Path) -> None:
    """Each takes 10 s, so four fit into 45; the last would be comparisons of the first cut and the best."""
    now = [0.0]

    def meter(plan: Plan) -> Mapping[str, float]:
        now[0] += 10
        return Meter()(plan)

    place_by(meter, tmp_path / "f.json", budget_s=45, clock=lambda: now[0])
    assert now[0] == 40


def place_by(meter: Any, figures: Path, **options: Any) -> Plan:
    choose = fc.measured(meter=meter, figures=figures, **options)
    return fc.partition(text_model(BOTH), [Far(), "c"], choose=choose)


def test_processes_share_a_file_of_figures(tmp_path: Path) -> None:
    path = tmp_path / "new" / "figures.json"
    first = fc.measured(meter=Meter(), figures=path)
    place_by(Meter(), path)
    fc.partition(step(4), ["c"], choose=first)  # it had read the file before the other wrote it
    meter = Meter()
    place_by(meter, path)
    assert meter.plans == 0


def test_figures_that_cannot_be_written_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot make the folder .*/file/in"):
        place_by(Meter(), tmp_path / "file" / "in" / "f.json")


def test_the_figures_of_a_launched_device_are_kept(tmp_path: Path) -> None:
    """Each launch has another URL of the server; the device is the same."""
    found = []
    for _ in range(2):
        with fc.launch("local") as device, device.connect() as session:
            assert (session.device_url, session.target) == ("local", str(device.target))
            choose = fc.measured(on=session, figures=tmp_path / "f.json")
            found.append(fc.partition(step(4), ["c"], choose=choose).figures)
    assert found[0] == found[1]


@pytest.mark.parametrize(("first", "left"), [(True, []), (False, ["f.json"])])
def test_a_session_that_ends_meanwhile(first: bool, left: list[str], tmp_path: Path) -> None:
    """What was measured before is kept; nothing else is."""
    with fc.launch("local") as device, device.connect() as session:

        class Ends(Exps):
            def compile(self, region: Region, *more: Any) -> Code:
                device.stop()
                return super().compile(region, *more)

        choose = fc.measured(on=session, figures=tmp_path / "f.json")
        with pytest.raises(RemoteError):
            fc.partition(step(4), [Ends(), "c"] if first else ["c", Ends()], choose=choose)
    assert [path.name for path in tmp_path.iterdir()] == left


def test_devices_that_backends_name(tmp_path: Path) -> None:
    """Each has figures of its own; a session may stand for its place."""
    model = text_model("g (float[8] x) => (float[8] y) { y = Exp(x) }")
    found = []
    for _ in range(2):
        with fc.launch("local") as device, device.connect() as session:
            host = str(device.target)
            for on, more in (
                ("dsp0", {"devices": {"dsp0": session}, "targets": {"dsp0": host}}),
                (session, {}),
            ):
                remote = fc.backend("remote", called="dsp0", on=on)
                choose = fc.measured(figures=tmp_path / "f.json", **more)  # type: ignore[arg-type]
                found.append(fc.partition(model, [remote], choose=choose).figures)
    assert found[:2] == found[2:] and all(one["dsp0_0"] > 0 for one in found)
    with pytest.raises(ArtifactError, match="no device is called 'dsp0'"):
        remote = fc.backend("remote", called="dsp0", on="dsp0")
        fc.partition(model, [remote], choose=fc.measured(figures=tmp_path / "g.json"))
