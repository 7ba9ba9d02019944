"""Long work reports its progress to a callable, and stops when that raises."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

import farcall as fc
from farcall._progress import Phase
from farcall.cli import _talk
from farcall.cli._progress import _text, shown
from farcall.rpc import Server, Session, connect
from farcall.rpc.client import _copying as copying
from farcall.toolchain import Compiler, Target
from farcall.toolchain._build import linking

from .terminal import Cli
from .waiting import SECONDS

MIB = 1 << 20


class Heard(list[fc.Progress]):
    """A callable that keeps all events."""

    def __call__(self, event: fc.Progress) -> None:
        self.append(event)

    @property
    def phases(self) -> list[str]:
        return [phase for phase, _ in groupby(self, lambda event: event.phase)]

    def last(self, phase: str) -> fc.Progress:
        return [event for event in self if event.phase == phase][-1]

    def check(self) -> None:
        """Each phase begins at nothing, never goes back, and ends once."""
        for _, group in groupby(self, lambda event: event.phase):
            events = list(group)
            assert events[0].done == 0 and events[-1].finished
            done = [event.done for event in events]
            assert done == sorted(done)
            assert [event.seconds for event in events] == sorted(event.seconds for event in events)
            assert len([event for event in events if event.finished]) == 1 or not events[-1].total


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def session(server: Server) -> Iterator[Session]:
    with connect(server.url, key="k", timeout=SECONDS) as opened:
        yield opened


def raising(phase: str, at: int) -> Callable[[fc.Progress], None]:
    """A callable that raises as soon as ``at`` units of a phase are done."""

    def report(event: fc.Progress) -> None:
        if event.phase == phase and event.done >= at:
            raise KeyboardInterrupt(phase)

    return report


# ---- builds


def test_a_build_names_its_phases(digits: Path, heard: Heard) -> None:
    plan = fc.partition(digits, progress=heard)
    assert heard.phases == ["read", "partition"]
    assert heard.last("partition").message == "1 region: c 1"  # known before anything is compiled
    plan.build(progress=heard)
    assert heard.phases == ["read", "partition", "generate", "compile", "link"]
    compiling = [event.message for event in heard if event.phase == "compile"]
    files = int(compiling[0].removeprefix("compiling 1 of "))  # kernels and support have files of their own
    assert compiling[1] == f"compiling 2 of {files}"
    assert heard.last("compile").message.startswith(f"{files} files")
    heard.check()


def test_a_second_build_says_that_the_cache_had_its_objects(digits: Path, heard: Heard) -> None:
    plan = fc.partition(digits)
    plan.build()
    plan.build(progress=heard)
    files, found = heard.last("compile").message.split(" files, ")
    assert found == f"{files} from the cache"


@pytest.mark.parametrize("phase", ["generate", "compile", "link"])
def test_a_callable_that_raises_stops_the_build(digits: Path, phase: str, heard: Heard) -> None:
    plan = fc.partition(digits)
    with pytest.raises(KeyboardInterrupt, match=phase):
        plan.build(progress=raising(phase, 0))
    plan.build(progress=heard)  # nothing is left that would break the next build
    assert heard.phases[-1] == "link"


def test_the_first_link_for_a_target_says_that_it_prepares_libc(
    heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(tmp_path))
    zig, target = Compiler(("zig", "cc"), "zig", "1"), Target.parse("hexagon-linux-musl")
    for _ in range(2):
        with linking(zig, target, heard):
            pass
    assert [event.message for event in heard if not event.done] == [
        "preparing libc for hexagon-linux-musl, once",
        "linking",
    ]


def test_a_failed_link_prepares_libc_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(tmp_path))
    zig, target = Compiler(("zig", "cc"), "zig", "1"), Target.parse("hexagon-linux-musl")
    with pytest.raises(OSError, match="no linker"), linking(zig, target, None):
        raise OSError("no linker")
    assert not list(tmp_path.iterdir())


def test_kernels_from_source(heard: Heard, tmp_path: Path) -> None:
    for _ in range(2):
        module = fc.cpp.load_inline(
            "seven",
            cpp_sources="int seven() { return 7; }",
            functions="seven",
            extra_cflags=["-O0"],
            build_directory=tmp_path,
            progress=heard,
        )
    assert module["seven"]() == 7
    assert heard.phases == ["compile", "link"]  # the second call found the library
    heard.check()


# ---- transfers


def test_transfers_count_bytes(session: Session, heard: Heard, tmp_path: Path) -> None:
    data = np.random.default_rng(1).bytes(3 * MIB)
    session.upload(data, "a.bin", progress=heard)
    assert session.download("a.bin", progress=heard) == data
    assert heard.phases == ["upload", "download"]
    assert {event.unit for event in heard} == {"bytes"}
    assert len(heard) > 6
    assert all(heard.last(phase).total == len(data) for phase in heard.phases)
    heard.check()


def test_an_upload_that_the_server_does_not_need(session: Session, heard: Heard) -> None:
    data = np.random.default_rng(2).bytes(MIB)
    session.upload(data, "a.bin")
    session.upload(data, "b.bin", progress=heard)
    assert heard[-1].message == "b.bin, which the server had"
    heard.check()


def test_loading_a_module_is_a_phase(session: Session, digits_artifact: Path, heard: Heard) -> None:
    session.load_module(digits_artifact, progress=heard)
    assert heard.phases == ["upload", "load"]


def test_an_upload_that_is_stopped_leaves_the_session_usable(session: Session) -> None:
    with pytest.raises(KeyboardInterrupt):
        session.upload(bytes(4 * MIB), "a.bin", progress=raising("upload", MIB))
    session.upload(b"x", "a.bin")
    assert session.download("a.bin") == b"x"


def test_tensors_travel_in_parts(session: Session, heard: Heard) -> None:
    x = np.random.default_rng(3).random((1024, 1024))
    y = np.empty_like(x)
    there = session.tensor(x, progress=heard)
    copied = session.empty(x.shape, "float64")
    session.copy(there, copied, progress=heard)
    session.copy(copied, y, progress=heard)
    np.testing.assert_array_equal(y, x)
    assert len(heard) > 9 and heard[0].message == "float64[1024, 1024]"
    assert heard[-1].total == x.nbytes


def test_what_has_no_parts_travels_whole(session: Session, heard: Heard) -> None:
    x = np.arange(24.0).reshape(4, 6)
    there = session.tensor(x[:, ::2], progress=heard)
    np.testing.assert_array_equal(there.numpy(), x[:, ::2])
    session.tensor(np.empty((0, 3), "int8"), progress=heard)
    assert [event.done for event in heard] == [0, 96, 0, 0]


@pytest.mark.parametrize("target", [np.empty(3), np.empty((2, 2), "float32")])
def test_a_copy_with_progress_refuses_what_a_copy_refuses(
    session: Session, target: np.ndarray, heard: Heard
) -> None:
    there = session.tensor(np.zeros((2, 2)))
    with pytest.raises(ValueError) as plain:
        session.copy(there, target)
    with pytest.raises(ValueError, match=r".+") as reported:
        session.copy(there, target, progress=heard)
    assert type(reported.value) is type(plain.value)


def test_parts_grow_while_they_are_fast(session: Session, heard: Heard) -> None:
    times = iter(range(1000))
    slow, fast = Heard(), heard
    x, there = np.zeros(8 * MIB, "uint8"), session.empty(8 * MIB, "uint8")
    copying.copy(x, there, slow, lambda: float(next(times)))  # each part takes a second
    copying.copy(x, there, fast, lambda: 0.0)
    assert [event.done // MIB for event in slow] == [*range(9)]
    assert [event.done // MIB for event in fast] == [0, 1, 3, 7, 8]


# ---- measurements


def test_each_repeat_of_a_measurement_is_reported(session: Session, heard: Heard) -> None:
    assert len(fc.benchmark(lambda: None, repeat=3, progress=heard).results) == 3
    session.benchmark("test.nop", repeat=2, progress=heard)
    assert [(event.done, event.total) for event in heard if event.unit == "repeats"] == [
        *((n, 3) for n in range(4)),
        *((n, 2) for n in range(3)),
    ]


# ---- the terminal


def test_a_pipe_gets_a_line_for_each_phase(cli: Cli, digits: Path) -> None:
    built = cli("build", digits, "-o", "m.so")
    words = [line.split()[0] for line in built.err.splitlines()]
    assert words[:5] == ["read", "partition", "generate", "compile", "link"]
    assert "\x1b" not in built.err
    quiet = cli("build", digits, "-o", "m.so", "--quiet")
    assert not quiet.err.startswith("read") and quiet.out == built.out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def one_transfer(monkeypatch: pytest.MonkeyPatch, size: int, **environment: str) -> str:
    """What a terminal shows of a transfer at 4 MiB/s."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(_talk, "_quiet", False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    times = iter([0.0, 0.0, 2.0, 4.0])
    with shown() as show:
        phase = Phase(show, "upload", size, "bytes", "model.so", lambda: next(times))
        phase.step("model.so", size // 2)
        phase.end("model.so")
    return terminal.getvalue()


def test_a_terminal_shows_a_bar_with_rate_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    text = one_transfer(monkeypatch, 16 * MIB)
    assert "\x1b[" in text and "model.so, 16.0 MiB, 4.0 MiB/s, 4.0 s" in text


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"CI": "true"}])
def test_a_plain_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    text = one_transfer(monkeypatch, 16 * MIB, **environment)
    assert text == "upload     model.so, 16.0 MiB, 4.0 MiB/s, 4.0 s\n"


def test_a_terminal_without_rich_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setattr("farcall.cli._progress.find_spec", lambda name: None)
    assert one_transfer(monkeypatch, 16 * MIB) == "upload     model.so, 16.0 MiB, 4.0 MiB/s, 4.0 s\n"


def test_short_transfers_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert one_transfer(monkeypatch, MIB, CI="true") == ""


def test_the_time_left_is_shown() -> None:
    half = fc.Progress("copy", 8 * MIB, 16 * MIB, "bytes", 2.0, "x")
    assert _text(half) == "x, 8.0 MiB of 16.0 MiB, 4.0 MiB/s, 2 s left"
