"""Bundles: many cases in one model, so that one build serves them all."""

from __future__ import annotations

import gc
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import compose

import farcall as fc
from farcall.errors import ModelError
from farcall.testing._cases import Arrays, Case
from farcall.testing._guarded import guarded, guarded_results
from farcall.testing._isolated import EndedError, in_child

if TYPE_CHECKING:
    from farcall.artifact import Plan
    from farcall.rpc import Session

Runs = Sequence[Arrays]
Results = Iterator[tuple[int, Arrays]]  # the number of a run, and its outputs
MakePlan = Callable[[], "Plan"]
Drive = Callable[..., Results]  # of a MakePlan and Runs
MakeSession = Callable[[], "AbstractContextManager[Session]"]

_SIZE = 32  # cases in a bundle
_THREADS = 4


def outcomes(
    cases: Sequence[Case], plan: Callable[[onnx.ModelProto], Plan], drive: Drive, seconds: float
) -> Iterator[tuple[Case, str]]:
    """Each case, and what is wrong with it; the text is empty if nothing is.

    The code of the backend runs in child processes, each of which may take so many ``seconds``.
    """
    groups: dict[object, list[Case]] = defaultdict(list)
    for case in cases:
        opsets = sorted((one.domain, one.version) for one in case.model.opset_import)
        alone = case.name if case.model.functions else ""
        groups[case.model.ir_version, tuple(opsets), alone].append(case)
    for group in groups.values():
        for start in range(0, len(group), _SIZE):
            yield from _outcomes(group[start : start + _SIZE], plan, drive, seconds)


def _outcomes(
    cases: Sequence[Case], plan: Callable[[onnx.ModelProto], Plan], drive: Drive, seconds: float
) -> Iterator[tuple[Case, str]]:
    """A bundle that fails as a whole is halved until the case is found that is at fault.

    One that hangs is taken apart at once: each half with the case would take all of the time again. If all
    parts pass, the cases do not go together in one model.
    """
    work = [(cases, plan, drive)]
    ((_, wrong),) = in_child(_attempt, work, seconds)
    if isinstance(wrong, list):
        yield from zip(cases, wrong, strict=True)
    elif len(cases) == 1:
        yield cases[0], str(wrong)
    else:
        late = isinstance(wrong, EndedError) and wrong.late
        size = 1 if late else -(-len(cases) // 2)
        found: list[tuple[Case, str]] = []
        for start in range(0, len(cases), size):
            found += _outcomes(cases[start : start + size], plan, drive, seconds)
        if wrong and not late and not any(text for _, text in found):
            found[0] = cases[0], f"in one model with {len(cases) - 1} other cases: {wrong}"
        yield from found


def _attempt(work: tuple[Sequence[Case], Callable[[onnx.ModelProto], Plan], Drive]) -> list[str] | str:
    """What is wrong with each case of a bundle; or with the bundle, if it does not run as a whole.

    An empty text: its cases are to run apart.
    """
    try:
        return _wrong(*work)
    except Exception as error:
        if isinstance(error, ModelError) and len(work[0]) > 1:
            return ""  # graphs inside of nodes cannot always be merged, which no backend is to blame for
        return f"{type(error).__name__}: {error}"


def _wrong(cases: Sequence[Case], plan: Callable[[onnx.ModelProto], Plan], drive: Drive) -> list[str]:
    model = _merged([case.model for case in cases])
    runs = max(len(case.runs) for case in cases)
    feeds = [[x for case in cases for x in case.runs[min(i, len(case.runs) - 1)][0]] for i in range(runs)]
    wrong = [""] * len(cases)
    for run, outputs in drive(lambda: plan(model), feeds):
        start = 0
        for number, case in enumerate(cases):
            i = min(run, len(case.runs) - 1)
            end = start + len(case.runs[i][1])
            wrong[number] = wrong[number] or _difference(case, i, outputs[start:end])
            start = end
    return wrong


def _difference(case: Case, run: int, outputs: Arrays) -> str:
    try:
        case.compare(run, outputs)
    except AssertionError as error:
        return str(error).strip()
    return ""


def _merged(models: Sequence[onnx.ModelProto]) -> onnx.ModelProto:
    """One model with the nodes of all, whose names and symbols get a prefix."""
    if len(models) == 1:
        return models[0]
    merged = onnx.ModelProto()
    merged.CopyFrom(models[0])
    merged.graph.Clear()
    merged.graph.name = "cases"
    for i, model in enumerate(models):
        graph = compose.add_prefix(model, f"m{i}_").graph
        for value in (*graph.input, *graph.output, *graph.value_info):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param:
                    dim.dim_param = f"m{i}_{dim.dim_param}"
        for part in ("node", "initializer", "sparse_initializer", "input", "output", "value_info"):
            getattr(merged.graph, part).extend(getattr(graph, part))
    return merged


# ---- ways to run an artifact


def _call(function: Any, inputs: Arrays) -> Arrays:
    found = function(*inputs)
    return [np.asarray(one) for one in (found if isinstance(found, (list, tuple)) else [found])]


def plainly(make: MakePlan, runs: Runs) -> Results:
    """Load, and call once for each run."""
    main = make().build().load()["main"]
    for i, inputs in enumerate(runs):
        yield i, _call(main, inputs)


def strided(make: MakePlan, runs: Runs) -> Results:
    """The inputs are views: every second element, from the end, and not aligned beyond their elements."""
    main = make().build().load()["main"]
    for i, inputs in enumerate(runs):
        for view in (_every_second, _backwards, _unaligned):
            yield i, _call(main, [view(one) for one in inputs])


def _every_second(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if not array.shape:
        return array
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


def _backwards(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if not array.shape:  # of which numpy would make one dim
        return array
    axes = tuple(range(array.ndim))
    return np.asfortranarray(np.flip(array))[tuple(slice(None, None, -1) for _ in axes)]


def _unaligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Row-major, one element behind the start of its memory."""
    space = np.zeros(array.size + 1, array.dtype)
    space[1:] = array.reshape(-1)
    return space[1:].reshape(array.shape)


def at_the_end_of_memory(make: MakePlan, runs: Runs) -> Results:
    """Behind each input and result, there is no memory; and inputs stay as they are."""
    main = make().build().load()["main"]
    for i, inputs in enumerate(runs):
        given = [guarded(one) for one in inputs]
        with guarded_results():
            found = [one.copy() for one in _call(main, given)]
        for number, (one, was) in enumerate(zip(given, inputs, strict=True)):
            assert one.tobytes() == was.tobytes(), f"input {number} of the model was written"
        yield i, found


def in_threads(make: MakePlan, runs: Runs) -> Results:
    """Several threads call the function at once, with the data of all runs."""
    main = make().build().load()["main"]
    order = [i % len(runs) for i in range(8 * _THREADS)]
    with ThreadPoolExecutor(_THREADS) as pool:
        yield from zip(order, pool.map(lambda i: _call(main, runs[i]), order), strict=True)


def again(make: MakePlan, runs: Runs) -> Results:
    """Load, unload and load again; then two at once."""
    artifact = make().build()
    held = []
    for _ in range(2):
        main = artifact.load()["main"]
        yield 0, _call(main, runs[0])
        del main
        gc.collect()
    for _ in range(2):
        held.append(artifact.load()["main"])
    for main in held:
        yield 0, _call(main, runs[0])


def from_file(make: MakePlan, runs: Runs) -> Results:
    """Save the artifact, and load the file."""
    with tempfile.TemporaryDirectory() as folder:
        main = fc.load_module(make().build().save(Path(folder) / "model.so"))["main"]
        for i, inputs in enumerate(runs):
            yield i, _call(main, inputs)


def equally(make: MakePlan, runs: Runs) -> Results:
    """Build twice: the files have the same bytes."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [make().build().save(Path(folder) / name) for name in ("first.so", "second.so")]
        first, second = (path.read_bytes() for path in paths)
    differences = sum(a != b for a, b in zip(first, second, strict=False))
    assert first == second, (
        f"two builds differ: {len(first)} and {len(second)} bytes, {differences} of them not equal"
    )
    yield from ()


def remotely(make: MakePlan, runs: Runs, connect: MakeSession) -> Results:
    """Call through a session with a server, which loads the file."""
    with tempfile.TemporaryDirectory() as folder, connect() as session:
        main = session.load_module(make().build().save(Path(folder) / "model.so"))["main"]
        for i, inputs in enumerate(runs):
            found = main(*(session.tensor(one) for one in inputs))
            yield i, [one.numpy() for one in (found if isinstance(found, (list, tuple)) else [found])]
