"""Runs fuzz targets.

A target is a module ``tests/fuzz/fuzz_NAME.py`` with a function ``one_input(data: bytes) -> None``, which
fails (by an unexpected exception or a crash) only if it found a defect, and with seeds in
``tests/fuzz/corpus/fuzz_NAME/``. There are two ways to run targets:

* ``make test`` (``test_fuzz.py``) runs them briefly: every seed, then mutations of seeds, the same in every
  run, up to a number or a time. This does not use atheris, which has wheels for few versions and machines and
  takes seconds to instrument; and failures can be reproduced;
* ``make fuzz`` runs them for long: ``python -m tests.fuzz.fuzz_NAME -max_total_time=SECONDS`` uses atheris,
  guided by coverage, if it is installed (``pip install --group fuzz``), else (and with ``-atheris=0``)
  mutations.

Inputs that a long run found become seeds: ``tests/fuzz/corpus`` has the inputs that once failed, and a few
that together reach the coverage of the long runs. ``python -m tests.fuzz.fuzz_NAME -set_cover_merge=1`` adds
those of the last long run, with atheris.
"""

from __future__ import annotations

import importlib.util
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
FOUND = Path("build") / "fuzz"

OneInput = Callable[[bytes], object]


def corpus(name: str) -> list[bytes]:
    """The seeds of a target, in a fixed order."""
    return [path.read_bytes() for path in sorted((CORPUS / f"fuzz_{name}").iterdir())]


def _flip(data: bytearray, chance: random.Random) -> None:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _overwrite(data: bytearray, chance: random.Random) -> None:
    number = chance.choice((0, 1, -1, 4, 2**31, 2**31 - 1, 2**32, 2**62, 2**63 - 1, -(2**63), 255))
    size = chance.choice((1, 2, 4, 8))
    at = chance.randrange(len(data) + 1)
    data[at : at + size] = (number & (1 << 8 * size) - 1).to_bytes(size, "little")


def _insert(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    data[at:at] = chance.randbytes(chance.randint(1, 9))


def _remove(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    del data[at : at + chance.randint(1, 9)]


def _repeat(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    data[at:at] = data[at : at + chance.randint(1, 40)]


_MUTATIONS = (_flip, _overwrite, _insert, _remove, _repeat)


def mutants(seeds: list[bytes], chance: random.Random) -> Iterator[bytes]:
    """Damaged seeds and joined halves of two, without end."""
    while True:
        data = bytearray(chance.choice(seeds))
        if chance.random() < 0.2:
            other = chance.choice(seeds)
            data[chance.randrange(len(data) + 1) :] = other[chance.randrange(len(other) + 1) :]
        for _ in range(chance.randint(1, 4)):
            chance.choice(_MUTATIONS)(data, chance)
        yield bytes(data)


def briefly(
    name: str, one_input: OneInput, count: int, seconds: float, clock: Callable[[], float] = time.monotonic
) -> int:
    """Run every seed, then at most ``count`` mutants, the same ones each time, for at most ``seconds``.

    Returns:
        The number of mutants.
    """
    seeds = corpus(name)
    for seed in seeds:
        one_input(seed)
    source = mutants(seeds, random.Random(2026))  # noqa: S311
    until = clock() + seconds
    for done in range(count):
        if clock() >= until:
            return done
        one_input(next(source))
    return count


def _for_long(
    name: str, one_input: OneInput, seconds: float, clock: Callable[[], float] = time.monotonic
) -> int:
    source = mutants(corpus(name), random.Random())  # noqa: S311
    until, count = clock() + seconds, 0
    while clock() < until:
        data = next(source)
        try:
            one_input(data)
        except Exception:
            traceback.print_exc()
            FOUND.mkdir(parents=True, exist_ok=True)
            (FOUND / f"{name}-{count}").write_bytes(data)
            print(f"{name}: found {data!r}; it is in {FOUND}")
            return 1
        count += 1
    print(f"{name}: {count} inputs in {seconds:g} s, nothing found")
    return 0


def _atheris(name: str, one_input: OneInput, seconds: float, merging: list[str]) -> None:
    import atheris  # type: ignore[import-not-found]

    learned, seeds = FOUND / "corpus" / name, CORPUS / f"fuzz_{name}"
    learned.mkdir(parents=True, exist_ok=True)
    options = ["-max_len=4096", "-timeout=20", f"-artifact_prefix={FOUND / name}-"]
    options += merging or [f"-max_total_time={int(seconds)}"]
    folders = [seeds, learned] if merging else [learned, seeds]  # what is new goes into the first
    itself = f"{sys.executable} -m tests.fuzz.fuzz_{name}"  # a merge starts it again
    atheris.instrument_all()
    atheris.Setup([itself, *options, *map(str, folders)], one_input)
    atheris.Fuzz()  # ends the process


def main(name: str, one_input: OneInput) -> None:
    """Run a target as a program."""
    wishes = [word.partition("=")[2] for word in sys.argv[1:] if word.startswith("-max_total_time=")]
    seconds = float(wishes[-1]) if wishes else 60.0
    if "-atheris=0" not in sys.argv and importlib.util.find_spec("atheris"):
        _atheris(name, one_input, seconds, [word for word in sys.argv[1:] if "merge" in word])
    sys.exit(_for_long(name, one_input, seconds))
