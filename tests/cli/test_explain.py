"""``farcall explain``, and what ``build`` takes and writes about who gets what."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

import farcall as fc
from farcall.backends.base import Backend, RegionCode, RegionModule
from farcall.backends.c import CBackend
from farcall.errors import UsageError
from farcall.graph import Region, Why
from farcall.library import inspect

from ..terminal import Cli
from ..tree import ROOT

NPU = ("--backends", "examples.backends.npu:NpuBackend,c")
MODEL = """<ir_version: 10, opset_import: ["": 20]>
net (float[1,3,8,8] x) => (float[1,4,8,8] y) <float[4,3,1,1] w = {1,2,3,4,5,6,7,8,9,10,11,12}>
{ c = Conv(x, w) r = Relu(c) y = Abs(r) }"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    return path


def test_explain_lists_all_nodes(cli: Cli, model: Path) -> None:
    done = cli("explain", model, *NPU)
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines()]
    assert ["Conv_0", "Conv", "npu_0", "pattern", "conv_relu", "(`Conv_0`,", "`Relu_1`)"] in lines
    assert ["Abs_2", "Abs", "c_0", "as", "a", "single", "node"] in lines


def test_explain_says_of_a_node_what_each_backend_said(cli: Cli, model: Path) -> None:
    text = cli("explain", model, "Abs_2", *NPU).out
    assert "  in region `c_0` of backend `c`\n  npu  refused: npu takes no single Abs\n  c    takes: " in text
    report = json.loads(cli("explain", model, "*_[01]", *NPU, "--exclude", "npu=Conv*", "--json").out)
    assert [node["node"] for node in report["nodes"]] == ["Conv_0", "Relu_1"]
    assert {"backend": "npu", "said": "excluded", "text": "the node is excluded"} in report["nodes"][0][
        "verdicts"
    ]


def test_a_name_that_is_near_is_named(cli: Cli, model: Path) -> None:
    assert "no node is called `Abs_3`; did you mean `Abs_2`?" in cli("explain", model, "Abs_3").err
    for option in ("--pin=Abs_2", "--exclude=npu", "--min-nodes=c", "--min-nodes=c=few"):
        done = cli("explain", model, option)
        assert done.code == 2 and "expected" in done.err


def test_a_node_that_is_gone_is_told_as_such(cli: Cli, tmp_path: Path) -> None:
    source = """<ir_version: 10, opset_import: ["": 20]>
    net (float[2] x) => (float[2] y) <float[2] w = {1, 2}>
    { [folded] k = Neg(w) [unread] u = Exp(x) y = Add(x, k) }"""
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(source), path)
    for name in ("folded", "unread"):
        assert f"node `{name}` is in no region: when the model was loaded" in cli("explain", path, name).err


def test_build_takes_pins_and_emits_code_and_the_artifact_knows_why(cli: Cli, model: Path) -> None:
    done = cli(
        "build", model, "-o", "m.so", *NPU, "--pin", "Conv_0=c", "--min-nodes", "c=1", "--emit", "code"
    )
    assert done.code == 0, done.err
    assert [path.name for path in Path("code").iterdir()] == ["c_0.c"]
    answers = inspect("m.so").answers
    said = [answers.texts[index] for index in answers.nodes["Conv_0"]]
    assert said[0] == "npu pinned: the node is pinned to `c`"


EXPANDED = """<ir_version: 10, opset_import: ["": 22]>
net (float[n, 8] x, float[8] w, bool go) => (float[n, 8] y, float[n, 8] z) {
  [norm] y = LayerNormalization(x, w)
  [choose] z = If(go) <then_branch = left () => (float[n, 8] a) { [inner] a = Exp(y) },
                       else_branch = right () => (float[n, 8] b) { b = Neg(y) }>
}"""


class Plain(CBackend):
    name = "plain"

    def check(self, node: Any) -> str | None:
        return "no unit for it" if node.op_type == "LayerNormalization" else super().check(node)


def told(whys: Iterable[Why]) -> dict[str, Why]:
    """The answers by node, without the types of operands, which a manifest leaves out."""
    return {why.node: replace(why, about="") for why in whys}


@pytest.mark.parametrize(
    ("text", "rules", "target"),
    [
        (MODEL, {}, None),
        (MODEL, {"pin": {"Conv_0": "plain"}}, None),
        (MODEL, {"exclude": {"npu": ["*"]}}, None),
        (EXPANDED, {}, "s390x-linux-musl"),
    ],
)
def test_an_artifact_tells_what_its_plan_does(
    text: str, rules: dict[str, Any], target: str | None, tmp_path: Path
) -> None:
    from examples.backends.npu import NpuBackend

    plan = fc.partition(onnx.parser.parse_model(text), [NpuBackend(), Plain()], **rules)
    manifest = inspect(plan.build(target).save(tmp_path / "m.so"))
    whys = told(plan.partition.whys)
    assert told(manifest.whys) == whys
    name = next(name for name, why in whys.items() if why.verdicts)
    assert replace(manifest.why(name), about="") == whys[name]
    with pytest.raises(UsageError, match="no node is called `Convv_0`"):
        manifest.why("Convv_0")


def test_explain_reads_artifacts(cli: Cli, model: Path) -> None:
    assert cli("build", model, "-o", "m.so", *NPU, "--target", "aarch64-linux-musl").code == 0
    listed = cli("explain", "m.so")
    lines = [line.split() for line in listed.out.splitlines()]
    assert ["Conv_0", "Conv", "npu_0", "pattern", "conv_relu", "(`Conv_0`,", "`Relu_1`)"] in lines
    assert "net for aarch64-linux-musl, built by farcall" in listed.err
    text = cli("explain", "m.so", "Abs_2").out
    assert "  in region `c_0` of backend `c`\n  npu  refused: npu takes no single Abs\n  c    takes: " in text
    of_model, of_file = (
        json.loads(cli("explain", *words, "--json").out)["nodes"] for words in ((model, *NPU), ("m.so",))
    )
    assert [one | {"about": ""} for one in of_file] == [one | {"about": ""} for one in of_model]
    assert "no node is called `Abs_3`; did you mean `Abs_2`?" in cli("explain", "m.so", "Abs_3").err
    assert (
        "m.so is an artifact, which was cut when it was built" in cli("explain", "m.so", "--pin", "a=c").err
    )


def test_an_artifact_of_an_earlier_version_does_not_tell(cli: Cli) -> None:
    (old,) = (ROOT / "tests/data/format1").glob("*.so")
    assert "did not write why nodes are where they are; build it again" in cli("explain", old).err


class Module(Backend):
    """A backend whose regions are modules; ``text`` is what people read of them."""

    name = "mod"

    def __init__(self, text: str = "") -> None:
        self._text = text

    def check(self, node: object) -> None:
        return None

    def compile(self, region: Region) -> RegionModule:  # type: ignore[override]
        return RegionModule("kind", 1, bytes(range(256)) * 4, source=self._text)


class Objects(Module):
    """A backend with a source and an object."""

    def compile(self, region: Region) -> RegionCode:  # type: ignore[override]
        return RegionCode({"a.c": "int a;"}, objects={"b.o": b"\x7fELF"})


def test_the_source_of_each_kind_of_code(model: Path, tmp_path: Path) -> None:
    assert "FARCALL_KERNEL(c_0)" in fc.partition(model).source("c_0")
    plan = fc.partition(model, backends=[Module()])
    assert plan.source("mod_0").startswith("00000000  00 01 02 03 04 05")
    assert plan.source("mod_0").endswith("... 1,024 bytes in all\n")
    assert "a graph" in fc.partition(model, backends=[Module("a graph")]).source("mod_0")
    assert fc.partition(model, backends=[Objects()]).source("mod_0") == (
        "---- a.c\nint a;\n---- b.o\n00000000  7f 45 4c 46\n"
    )
    with pytest.raises(UsageError, match="no region is called `mod_1`; did you mean `mod_0`"):
        plan.source("mod_1")
    plan.emit(tmp_path / "out")
    assert (tmp_path / "out" / "mod_0.kind.bin").read_bytes() == bytes(range(256)) * 4


def test_the_picture_tells_what_others_said(model: Path) -> None:
    from examples.backends.npu import NpuBackend

    assert "npu refused: npu takes no single Abs" in fc.partition(model, [NpuBackend(), "c"]).svg()


def test_a_dry_run_says_what_a_build_would_be(cli: Cli, tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 20]>
        main (float[n, 4] x, bool go) => (float[n, 3] y, int64[r, k] at, float[n, 3] z)
          <float[4, 3] w = {1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0}> {
          y = MatMul(x, w)
          at = NonZero(y)
          z = If(go) <then_branch = left () => (float[n, 3] a) { a = Exp(y) },
                      else_branch = right () => (float[n, 3] b) { b = Neg(y) }>
        }
    """)
    onnx.save(model, tmp_path / "m.onnx")
    report = json.loads(cli("build", tmp_path / "m.onnx", "--dry-run", "--json").out)
    regions = {region["operators"]: region for region in report["regions"]}
    first = regions["MatMul, NonZero"]
    assert (first["constants"], first["multiply_adds"]) == (48, "12*n")
    assert first["notes"] == ["allocates `at` in each call: the data decides the size"]
    assert regions["Exp"]["notes"] == ["runs if `" + if_name(report) + "` takes this branch"]
    shown = cli("build", tmp_path / "m.onnx", "--dry-run")
    assert "12*n" in shown.out and "nothing was built" in shown.err
    assert not Path("m.so").exists()
    far = ("--backends", "reference", "--target", "riscv64-linux-musl")
    (one, *_) = json.loads(cli("build", tmp_path / "m.onnx", "--dry-run", "--json", *far).out)["regions"]
    assert one["notes"][0].startswith(
        "cannot be built for riscv64-linux-musl: reference computes on a machine"
    )


def if_name(report: dict[str, list[dict[str, list[str]]]]) -> str:
    """The name that the node got, which has none in the model."""
    notes = [note for region in report["regions"] for note in region["notes"]]
    return next(note.split("`")[1] for note in notes if "branch" in note)


def test_convert_writes_another_opset(cli: Cli, model: Path) -> None:
    done = cli("convert", model, "--opset", "11", "-o", "old.onnx")
    assert done.code == 0, done.err
    assert done.out.startswith("old.onnx: ") and "opset 11, 3 nodes" in done.err
    assert onnx.load("old.onnx").opset_import[0].version == 11
    assert cli("build", "old.onnx", "-o", "old.so").code == 0
    refused = cli("convert", model, "--opset", "4")
    assert refused.code == 2 and "opset 4 cannot be written; expected one from 7 to" in refused.err
