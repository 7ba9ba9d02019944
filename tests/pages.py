"""Runs a page as its reader would: in an empty folder, block by block, and compares what the blocks print.

Each ``python`` block is a program of its own; the files that it leaves are there for the next block. A
``text`` block right after it shows everything that it prints. A ``console`` block has commands (``$ ...``),
each with its output below; a command that ends in ``&`` runs until the page ends. In shown output, ``...``
stands for what differs from run to run. What a machine determines agrees with any other of its kind: times,
dates, sizes, versions, rounding errors, what a cache has, and the host's architecture (``26.4 us``,
``209.1 KiB``, ``3.11.7``, ``7.6e-06``, ``x86_64-linux-gnu:x86-64-v3``). Columns may be wider. A block after
"Save this as `NAME`:" becomes that file. Where a page says port 9090, the tests take a free one. Other blocks
are shown, and not run.

``python -m tests.pages PAGE...`` writes into the pages what they print now, where they show something else.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from farcall.toolchain._cache import user_cache

SAVED = r"(?:Save this as `(?P<file>[\w.]+)`:\s+)?"
BLOCK = re.compile(SAVED + r"^```(?P<language>[\w+]+)\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE)
SECONDS = 600  # until a command counts as one that hangs; the longest takes half a minute on a quiet machine
PORT = "9090"


@dataclass(frozen=True)
class Shown:
    """Output that a page shows and where in the page, and the output that the reader gets."""

    what: str
    shown: str
    printed: str
    start: int
    end: int

    @property
    def agrees(self) -> bool:
        """Whether the reader gets what is shown, where ``...`` matches anything."""
        pattern = ".*?".join(re.escape(part) for part in measureless(self.shown).split("..."))
        return re.fullmatch(pattern, measureless(self.printed), re.DOTALL) is not None


def tidy(text: str) -> str:
    """The text without spaces at the ends of its lines, and empty lines at its own."""
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE).strip("\n")


MEASURED = (
    (re.compile(r"(?<![\w.])\d[\d,.]* (?:ns|us|ms|s)\b"), "0 s"),
    (re.compile(r"(?<![\w.])\d[\d,.]* (?:B|KiB|MiB|GiB)\b"), "0 B"),
    (re.compile(r"(?<![\w.])\d+\.\d+\.\d+(?![\w.]*\.\d)\b"), "0.0.0"),
    (re.compile(r"(?<![\w.])\d\.\de-\d\d\b"), "0e-0"),
    (re.compile(r"\b(?:x86_64|aarch64)(?:-linux-gnu)?(?:[: ]x86-64-v\d)?"), "x86_64"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"), "DATE"),
    (re.compile(r", \d+ from the cache"), ""),
    (re.compile(r"(?<=\S) {2,}(?=\S)"), "  "),
    (re.compile(r"^ +", re.MULTILINE), ""),
)


def measureless(text: str) -> str:
    """The text, tidied, with the same number for each measured one, and the same gap between columns."""
    text = tidy(text)
    for pattern, same in MEASURED:
        text = pattern.sub(same, text)
    return text


def check(page: Path, folder: Path) -> None:
    """Run all blocks of a page in an empty folder.

    Raises:
        AssertionError: a block failed, or printed something else than the page shows.
    """
    for seen in walk(page.read_text(encoding="utf-8"), folder):
        assert seen.agrees, f"{page.name}: {seen.what}\nshows\n{seen.shown}\nand printed\n{seen.printed}"


def walk(text: str, folder: Path) -> Iterator[Shown]:
    """Run the blocks of a page, and say what each shows and prints."""
    reader = Reader(folder)
    try:
        for block in BLOCK.finditer(text):
            if block["file"]:
                (folder / block["file"]).write_text(block["text"], encoding="utf-8")
            elif block["language"] == "python":
                yield program(block, text, reader)
            elif block["language"] == "console":
                yield from commands(block, reader)
    finally:
        reader.leave()


def program(block: re.Match[str], text: str, reader: Reader) -> Shown:
    """Run a program; its output stands in the ``text`` block after it, if one follows at once."""
    printed = reader.run([sys.executable, "-"], block["text"])
    following = re.compile(r"\s*^```text\n(.*?)^```", re.DOTALL | re.MULTILINE).match(text, block.end())
    start, end = following.span(1) if following else (block.end(), block.end())
    return Shown(block["text"], text[start:end], printed, start, end)


def commands(block: re.Match[str], reader: Reader) -> Iterator[Shown]:
    """Run the commands of a ``console`` block."""
    for part in re.finditer(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block["text"], re.MULTILINE):
        command = re.sub(r"\\\n\s*", "", part[1])
        yield Shown(
            command, part[2], reader.type(command), *(block.start("text") + at for at in part.span(2))
        )


def free_port() -> str:
    """A port of this machine that nobody uses."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


class Reader:
    """Someone who types what a page says, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []
        self.port = free_port()
        plain = {"NO_COLOR": "1", "COLUMNS": "100", "HOME": str(folder)}
        # zig's own cache is the machine's: a reader's first build of a target's libc takes minutes.
        plain |= dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(user_cache("zig")))
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        self.environment = {**os.environ, **plain, "PATH": path}

    def run(self, command: list[str], text: str = "") -> str:
        """The output of a program that must succeed."""
        done = subprocess.run(
            [part.replace(PORT, self.port) for part in command],
            input=text.replace(PORT, self.port),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout.replace(self.port, PORT)

    def type(self, command: str) -> str:
        """What a terminal shows of a command, even of one that fails. Of one that ends in ``&``: a line."""
        if command.startswith("pip install "):
            return ""  # the tests of packaging do that
        if command.endswith("&"):
            return self.start(command.removesuffix("&"))
        return self.run(["bash", "-c", f"{{ {command}\n}} 2>&1 || true"])

    def start(self, command: str) -> str:
        """The first line that a command prints, which then goes on."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}".replace(PORT, self.port)],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        assert process.stdout is not None
        return process.stdout.readline().replace(self.port, PORT)

    def leave(self) -> None:
        """End what was started."""
        for process in self.started:
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate(timeout=SECONDS)


def update(page: Path) -> None:
    """Write into a page what its blocks print, where it shows something else."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for seen in reversed([*walk(text, Path(folder))]):
            if not seen.agrees:
                text = text[: seen.start] + tidy(seen.printed) + "\n" + text[seen.end :]
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        update(Path(name))
