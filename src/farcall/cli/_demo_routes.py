"""The routes of the demo: where a model runs, how a call gets there, and how long it takes."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from farcall.cli import _show
from farcall.cli._progress import shown

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from farcall.artifact import Plan
    from farcall.launch import LaunchedDevice
    from farcall.rpc import Session

BATCHES = (1, 32, 360)  # one artifact serves all of them, since its batch is symbolic
_REPEATS = dict.fromkeys(BATCHES, 30)
_EMULATED_REPEATS = {1: 10, 32: 1, 360: 1}  # an emulated DSP needs half a minute for the last one
DSP, PHONE = "hexagon", "aarch64"  # the first is reached through the second; the others directly

Run = Callable[["np.ndarray"], "np.ndarray"]


@dataclass(frozen=True)
class Result:
    """What a route gave.

    Attributes:
        way: the machines of the route, and the channels between them.
        latencies: median microseconds of a call, by batch.
        outputs: of all images.
    """

    way: str
    latencies: dict[int, float]
    outputs: np.ndarray


def measure(run: Run, images: np.ndarray, way: str, repeats: Mapping[int, int] = _REPEATS) -> Result:
    """Time calls with each batch. The last batch is all images."""
    medians = {}
    for batch in BATCHES:
        x, samples = images[:batch], []
        if repeats[batch] > 1:
            run(x)  # the first call allocates, so it does not count
        for _ in range(repeats[batch]):
            start = time.perf_counter_ns()
            outputs = run(x)
            samples.append((time.perf_counter_ns() - start) / 1e3)
        medians[batch] = statistics.median(samples)
    return Result(way, medians, outputs)


def of_session(session: Session, artifact: Path) -> Run:
    """The model on a server: images go there, and logits come back."""
    main = session.load_module(artifact)["main"]

    def run(batch: np.ndarray) -> np.ndarray:
        result: np.ndarray = main(session.tensor(batch)).numpy()
        return result

    return run


@contextmanager
def server(*options: str) -> Iterator[str]:
    """Run ``farcall serve`` on loopback in a process of its own; yields its address."""
    from farcall.errors import ConnectError

    words = [sys.executable, "-m", "farcall", "serve", "--quiet", *options]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line.startswith("listening on "):
                raise ConnectError(
                    f"the server did not start: expected `listening on URL`, got {line!r}; "
                    "run `farcall serve` to see the reason"
                )
            yield line.removeprefix("listening on ").strip()
        finally:
            process.terminate()


def host() -> str:
    """The instruction set of this machine."""
    from farcall.toolchain import Target

    return Target.host().arch


# ---- emulated machines


def obstacle(name: str) -> str | None:
    """Why this machine cannot emulate another one, with the cure; None: it can."""
    from farcall.errors import ToolchainError
    from farcall.toolchain import MACHINES, zig_compiler

    on_the_way = {name, PHONE} if name == DSP else {name}
    for machine in MACHINES:
        if machine.name in on_the_way and machine.emulate() is None:
            return f"the emulator {machine.emulator} is not installed; run: apt install qemu-user"
    try:
        zig_compiler(f"farcall-server for {name}")
    except ToolchainError as error:
        return str(error)
    return None


def on_emulated(name: str, plan: Plan, artifact: Path, images: np.ndarray) -> Result:
    """Build a plan for an emulated machine, start the small server there, and measure."""
    from farcall.toolchain import static_target

    _show.note(f"{artifact.name}: build it for {name}, start farcall-server there, and run it")
    with shown() as progress:
        plan.build(static_target(name), progress=progress).save(artifact)
        with _session(name, progress) as (session, way):
            return measure(of_session(session, artifact), images, way, _EMULATED_REPEATS)


@contextmanager
def _session(name: str, progress: Any) -> Iterator[tuple[Session, str]]:
    """A session with an emulated machine, and the way to it."""
    import farcall as fc

    with fc.launch(f"emulator:{name}", progress=progress) as device:
        if name != DSP:
            with device.connect() as session:
                yield session, host() + _leg(name, device)
            return
        behind = {"dsp0": device.server_url}
        with (
            fc.launch(f"emulator:{PHONE}", devices=behind, progress=progress) as phone,
            phone.connect(via=["device:dsp0"]) as session,
        ):
            yield session, host() + _leg(PHONE, phone) + _leg(name, device)


def _leg(name: str, device: LaunchedDevice) -> str:
    """The part of a way that leads to a machine."""
    return f" --{device.server_url.partition(':')[0]}--> {name} (qemu, farcall-server)"
