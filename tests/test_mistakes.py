"""Each likely mistake gives the message in tests/golden/mistakes, which names the cure."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .mistakes import GOLDEN, MISTAKES, World, golden, message


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("mistakes"))
    yield made
    made.close()


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_gives_its_message(world: World, name: str) -> None:
    assert message(MISTAKES[name], world) == golden(name).read_text()


@pytest.mark.parametrize("name", [name for name in MISTAKES if name.endswith(" missing")])
def test_a_missing_file_is_also_python_s_error(world: World, name: str) -> None:
    with pytest.raises(FileNotFoundError):
        MISTAKES[name](world)


def test_no_message_is_left_of_a_mistake_that_is_gone() -> None:
    assert set(GOLDEN.iterdir()) == {golden(name) for name in MISTAKES}
