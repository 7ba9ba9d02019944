"""Runs ONNX's own backend tests through the backend ``c``, many in one library.

``python -m tests.backends.onnx_nodes [KIND ...]`` prints how many cases pass, with the reasons of the others.
A chunk of cases is a process of its own; if that dies, its halves are tried, so that a crash costs one case.
``--fallback onnxruntime,reference`` tries the cases that do not pass again, with these as the last backends.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

import farcall as fc
from farcall.errors import ModelError, UnsupportedOperatorError
from farcall.graph import Region
from farcall.graph._control import OPERATORS

from .harness import Compiled, compile_regions, whole_region

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
DATA = Path(onnx.__file__).parent
_CHUNK = 500  # cases of one process
_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)

Call = Callable[..., Sequence[Any]]  # the inputs in their order -> the outputs in their order


@dataclass
class Outcome:
    """The outcomes of cases; ``accepted`` were partitioned and not run."""

    passed: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    accepted: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        self.passed += other.passed
        self.refused |= other.refused
        self.failed |= other.failed
        self.accepted += other.accepted

    @property
    def reasons(self) -> dict[str, str]:
        """Why cases do not pass, in a few words."""
        found = {name: short(text) for name, text in self.refused.items()}
        return found | {name: f"wrong: {short(text)}" for name, text in self.failed.items()}


@cache
def cases_of(kind: str) -> list[TestCase]:
    with warnings.catch_warnings(action="ignore"):  # onnx makes its cases with numpy's warnings
        return list(load_model_tests(kind=kind))


def model_of(case: TestCase) -> onnx.ModelProto:
    if case.model is not None:
        return case.model
    if case.model_dir is not None:
        return onnx.load(Path(case.model_dir) / "model.onnx")
    return onnx.load(DATA.parent / str(case.url))


def tensor(item: object) -> Any:
    """The data of an input or output as numpy has it: an array, a list of them, or None."""
    if isinstance(item, Path):
        proto = onnx.TensorProto()
        proto.ParseFromString(item.read_bytes())
        return numpy_helper.to_array(proto)
    if item is None or isinstance(item, list):
        return None if item is None else [tensor(one) for one in item]
    return numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else np.asarray(item)


def data_of(case: TestCase) -> Iterator[tuple[list[Any], list[Any]]]:
    """Inputs and outputs."""
    if case.data_sets:
        for inputs, outputs in case.data_sets:
            yield [tensor(item) for item in inputs], [tensor(item) for item in outputs]
    elif case.model_dir is not None:
        for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
            yield tuple([tensor(p) for p in sorted(folder.glob(f"{w}_*.pb"))] for w in ("input", "output"))  # type: ignore[misc]
    else:  # the light models: a ramp, as onnx's own runner feeds them
        path = DATA.parent / str(case.url)
        ramp = np.arange(3 * 224 * 224).reshape(1, 3, 224, 224) / (3 * 224 * 224)
        yield [ramp.astype(np.float32)], [tensor(path.with_name(path.stem + "_output_0.pb"))]


def run_case(case: TestCase, model: onnx.ModelProto, region: Compiled) -> None:
    """Call the model's region on the data of the case.

    Raises:
        AssertionError: a result is wrong.
    """
    check_case(case, _called(model, region))


def check_case(case: TestCase, call: Call) -> None:
    for inputs, outputs in data_of(case):
        results = call(*inputs)
        assert len(results) == len(outputs)
        for index, (result, expected) in enumerate(zip(results, outputs, strict=True)):
            _compare(case, f"output {index}", result, expected)


def _called(model: onnx.ModelProto, region: Compiled) -> Call:
    """The region as a function of the model's inputs."""
    weights = {item.name for item in model.graph.initializer}
    names = [item.name for item in model.graph.input if item.name not in weights]
    known = {
        value.name: value.const_value.numpy() for value in region.folded if value.const_value is not None
    }

    def call(*inputs: np.ndarray) -> list[np.ndarray]:
        feeds = dict(zip(names, inputs, strict=True))
        got = region(*(feeds[str(value.name)] for value in region.region.inputs))
        found = known | dict(zip([value.name for value in region.region.outputs], got, strict=True))
        return [found[value.name] for value in model.graph.output]

    return call


def _compare(case: TestCase, what: str, result: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert len(result) == len(expected), what
        for item, other in zip(result, expected, strict=True):
            _compare(case, what, item, other)
        return
    if expected is None:
        assert result is None, what
        return
    result = np.asarray(result)
    if expected.dtype.kind in "OSU":
        assert (result.shape, result.dtype) == (expected.shape, np.dtype(object)), what
        np.testing.assert_array_equal(result, expected, err_msg=what)
        return
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype), what
    # ONNX rounds these after each step inside of an operator, and `c` once.
    unit = {"float16": 2.0**-10, "bfloat16": 2.0**-7}.get(expected.dtype.name, 0)
    if expected.dtype.kind == "V":  # bfloat16 and narrower: numpy compares none of them
        result, expected = result.astype(np.float32), expected.astype(np.float32)
    rtol, atol = max(case.rtol, 1e-3, 2 * unit), max(case.atol, 1e-6)
    np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol, err_msg=what)


def _is_plain(region: Region) -> bool:
    """Whether the caller can allocate what a region needs, and its code is one function."""
    return not region.late and not any(
        attribute.type in _GRAPHS for node in region.nodes for attribute in node.attributes.values()
    )


def _built(model: onnx.ModelProto, fallback: Sequence[str] = ()) -> Call:
    """The model as the function of an artifact, by ``c`` and then by the fallbacks."""
    main = fc.partition(model, backends=["c", *fallback]).build().load()["main"]

    def call(*inputs: Any) -> Sequence[Any]:
        result = main(*inputs)
        return result if isinstance(result, tuple) else (result,)

    return call


def run_all(
    cases: Sequence[TestCase],
    flags: Sequence[str] = ("-O1",),
    chosen: Callable[[str], bool] = lambda name: True,
) -> Outcome:
    """Partition all cases, and run those whose names are ``chosen``.

    What is one plain function is compiled together with the others; any other model is built alone.
    """
    outcome = Outcome()
    plain: list[tuple[TestCase, onnx.ModelProto, Region]] = []
    calls: list[tuple[TestCase, Callable[[], Call]]] = []
    for case in cases:
        model = model_of(case)
        region: Region | None = None
        try:
            try:
                region = whole_region(model, name=f"c_{len(plain)}")
            except UnsupportedOperatorError as error:
                if not any(f"::{operator}," in str(error) for operator in OPERATORS):
                    raise
                fc.partition(model, backends=["c"])  # takes nodes with graphs inside, if c takes the rest
        except ModelError as error:
            outcome.refused[case.name] = " | ".join(str(error).splitlines())
            continue
        except Exception as error:
            outcome.failed[case.name] = f"{type(error).__name__}: {error}"
            continue
        if not chosen(case.name):
            outcome.accepted.append(case.name)
        elif region is not None and _is_plain(region):
            plain.append((case, model, region))
        else:
            calls.append((case, lambda model=model: _built(model)))  # type: ignore[misc]
    compiled = compile_regions([region for _, _, region in plain], flags=flags)
    for (case, model, _), item in zip(plain, compiled, strict=True):
        calls.append((case, lambda model=model, item=item: _called(model, item)))  # type: ignore[misc]
    for case, make in calls:
        try:
            check_case(case, make())
        except Exception as error:
            outcome.failed[case.name] = f"{type(error).__name__}: {error}"
        else:
            outcome.passed.append(case.name)
    return outcome


def run_fallback(cases: Sequence[TestCase], fallback: Sequence[str]) -> Outcome:
    """Run cases by ``c`` and then by the fallbacks, each as an artifact of its own."""
    outcome = Outcome()
    for case in cases:
        try:
            check_case(case, _built(model_of(case), fallback))
        except ModelError as error:
            outcome.refused[case.name] = " | ".join(str(error).splitlines())
        except Exception as error:
            outcome.failed[case.name] = f"{type(error).__name__}: {error}"
        else:
            outcome.passed.append(case.name)
    return outcome


def run_with(cases: Sequence[TestCase], flags: Sequence[str], fallback: Sequence[str]) -> Outcome:
    """The outcome of cases by ``c``, and of those that do not pass, with the fallbacks."""
    outcome = run_all(cases, flags)
    if fallback:
        again = [case for case in cases if case.name not in outcome.passed]
        passed = outcome.passed
        outcome = run_fallback(again, fallback)
        outcome.passed += passed
    return outcome


def short(text: str) -> str:
    """The reason of a refusal in a few words: the first node that nobody takes, and why.

    Of an operator that was expanded, it is the first part of its definition that nobody takes.
    """
    lines = [line.strip() for line in text.replace(" | ", "\n").splitlines() if line.strip()]
    reason = lines[0] if lines else "no reason"
    operator = outer = ""
    for line, after in pairwise([*lines, ""]):
        if line.startswith("node `"):
            operator = line.partition("::")[2].partition(",")[0]
        elif line.startswith("its definition"):
            outer = outer or f"{operator}: "
        elif line.startswith("c: ") and not after.startswith("its definition"):
            said = line.removeprefix("c: ")
            reason = outer + (said if operator in said else f"{operator}: {said}")
            break
    reason = " ".join(reason.partition(";")[0].split())
    return reason if len(reason) <= 110 else f"{reason[:107].rpartition(' ')[0]} ..."


def run_in_processes(kind: str, first: int = 0, last: int | None = None, fallback: str = "") -> Outcome:
    """The outcome of cases ``first`` to ``last`` (excluded; None: all) of a kind."""
    last = len(cases_of(kind)) if last is None else last
    outcome = Outcome()
    for start in range(first, last, _CHUNK):
        outcome.add(_chunk(kind, start, min(start + _CHUNK, last), fallback))
    return outcome


def _chunk(kind: str, first: int, last: int, fallback: str) -> Outcome:
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.backends.onnx_nodes",
        kind,
        f"--range={first}:{last}",
        f"--fallback={fallback}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return Outcome(**json.loads(done.stdout))
    if last - first == 1:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return Outcome(failed={cases_of(kind)[first].name: f"crash: {lines[-1]}"})
    middle = (first + last) // 2
    outcome = _chunk(kind, first, middle, fallback)
    outcome.add(_chunk(kind, middle, last, fallback))
    return outcome


def _show(kind: str, outcome: Outcome) -> None:
    passed, refused, failed = map(len, (outcome.passed, outcome.refused, outcome.failed))
    print(f"{kind}: {passed + refused + failed} cases: {passed} passed, {refused} refused, {failed} failed")
    for name, why in outcome.failed.items():
        print(f"  FAILED {name}: {' '.join(why.split())[:300]}")
    for reason, count in Counter(map(short, outcome.refused.values())).most_common(40):
        print(f"  {count:4} {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.backends.onnx_nodes", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; all by default")
    parser.add_argument("--range", help="FIRST:LAST: run these cases here, and print the outcome as JSON")
    parser.add_argument("--fallback", default="", help="the last backends, such as onnxruntime,reference")
    args = parser.parse_args()
    fallback = args.fallback.split(",") if args.fallback else []
    for kind in args.kinds or KINDS:
        if args.range:
            first, last = map(int, args.range.split(":"))
            print(json.dumps(asdict(run_with(cases_of(kind)[first:last], ["-O0"], fallback))))
        else:
            _show(kind, run_in_processes(kind, fallback=args.fallback))


if __name__ == "__main__":
    main()
