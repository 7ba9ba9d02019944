"""Networks that torch exports, built by the `c` backend alone, give onnxruntime's results at three sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

import farcall as fc
from farcall.artifact._entry import main_source
from farcall.artifact._generate import generate
from farcall.toolchain import Target

from ..native.small_server import named, running, small_server

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

from .compared import Exported  # noqa: E402 - needs torch
from .networks import NETWORKS  # noqa: E402

# One of those that resemble each other, by the exporter that takes less time.
RESEMBLING = {
    *((name, "script") for name in ("resnet-50", "vit", "rnn")),
    *((name, "script") for name in ("relative", "wavenet", "conditioned", "u-net++")),
}
QUICK = {
    *((name, "script") for name, network in NETWORKS.items() if "script" in network.exporters),
    *((name, "dynamo") for name in ("gpt-2-opset-24", "branches", "scans")),
} - RESEMBLING
ALL = [(name, exporter) for name, network in NETWORKS.items() for exporter in network.exporters]
EMULATED = "aarch64"


def cases(quick: set[tuple[str, str]]) -> list[object]:
    """All networks; those that are not quick are slow tests."""
    return [
        pytest.param(*case, marks=() if case in quick else pytest.mark.slow, id="-".join(case))
        for case in ALL
    ]


@pytest.mark.parametrize(("name", "exporter"), cases(QUICK))
def test_a_network_gives_onnxruntimes_results(
    name: str, exporter: str, tmp_path: Path, farcall_session: fc.rpc.Session
) -> None:
    exported = Exported(NETWORKS[name], exporter, full=False)
    path = fc.partition(exported.model, backends=["c"]).build().save(tmp_path / "model.so")
    exported.check(fc.load_module(path)["main"])
    exported.check(farcall_session.load_module(path)["main"])


@pytest.mark.parametrize(("name", "exporter"), cases({("gru", "script"), ("detector", "script")}))
def test_a_network_runs_on_another_machine(
    name: str, exporter: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    machine = named(EMULATED)
    program = small_server(machine, tmp_path_factory)  # skips without its tools
    exported = Exported(NETWORKS[name], exporter, full=False)
    plan = fc.partition(exported.model, backends=["c"])
    path = plan.build(target=str(machine.target.triple)).save(tmp_path / "model.so")
    with running(program, "--workpath", str(tmp_path)) as (_, url), fc.connect(url) as session:
        exported.check(session.load_module(path)["main"])


@pytest.mark.parametrize(
    ("name", "exporter"), cases({(name, "script") for name in ("resnet-18", "u-net", "bert", "gpt-2", "gru")})
)
def test_the_memory_of_a_network_of_fixed_sizes_is_near_the_lower_bound(name: str, exporter: str) -> None:
    exported = Exported(NETWORKS[name], exporter, full=False)
    plan = fc.partition(exported.of_fixed_sizes(), backends=["c"])
    codes = generate(plan, Target.host())
    parts = (plan.partition, *(body.partition for body in plan.partition.bodies()))
    constants = {value: "c" for one in parts for value in one.model.graph.outputs}
    workspace, least, *_ = main_source(plan.partition, codes, constants).memory
    assert isinstance(workspace, int) and isinstance(least, int)
    assert least <= workspace <= max(1.05 * least, least + 1024)  # a few bytes are mostly gaps


@pytest.mark.slow
@pytest.mark.parametrize(("name", "exporter"), ALL, ids=["-".join(case) for case in ALL])
def test_a_full_network_gives_onnxruntimes_results(name: str, exporter: str) -> None:
    exported = Exported(NETWORKS[name], exporter, full=True)
    exported.check(fc.partition(exported.model, backends=["c"]).build().load()["main"])
