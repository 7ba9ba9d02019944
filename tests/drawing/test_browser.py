"""Pictures in a browser: a headless Chromium measures them, in both themes, folds, opens and searches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farcall.drawing._diagram import Diagram
from farcall.drawing._svg import svg

from .chromium import Chromium, program, running
from .samples import alternating, dag, demo, transformer

pytestmark = pytest.mark.skipif(
    program() is None, reason="Chromium is not installed: apt-get install chromium"
)

SHOW = (Path(__file__).parent / "measure.js").read_text()
DIAGRAMS = {
    "demo": demo,
    "transformer": lambda: transformer(12),
    "random": lambda: dag(60),
    "400 nodes": lambda: dag(400),
    "many regions": lambda: alternating(400, foreign=50),
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with running(tmp_path_factory.mktemp("chromium")) as chromium:
        yield chromium


def saved(folder: Path, diagram: Diagram) -> Path:
    path = folder / "picture.svg"
    path.write_text(svg(diagram), encoding="utf-8")
    return path


def numbers(path: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?[\d.]+", path)]


def check(seen: dict[str, Any]) -> None:
    """Nothing overlaps, texts fit, and arrowheads continue their lines."""
    assert seen["boxes"] and seen["lines"] and seen["texts"] >= seen["boxes"]
    assert seen["overlapping"] == 0
    assert seen["outside"] == []
    assert seen["hidden"] == 0, "the type on a line is behind a box"
    assert seen["crooked"] == 0


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_picture_is_readable_also_when_all_groups_are_open(
    name: str, browser: Chromium, tmp_path: Path
) -> None:
    browser.open(saved(tmp_path, DIAGRAMS[name]()))
    # Without a view that is smaller or larger than the picture, positions are exact.
    as_is = "document.querySelector('.world').removeAttribute('transform')"
    browser.run(as_is)
    seen = browser.run(SHOW)
    check(seen)
    browser.run(f"document.querySelector('[title=\"Open all groups\"]').click(), {as_is}")
    opened = browser.run(SHOW)
    check(opened)
    assert opened["boxes"] >= seen["boxes"]
    assert browser.errors == []


def test_without_scripts_the_picture_is_the_same(browser: Chromium, tmp_path: Path) -> None:
    path = saved(tmp_path, transformer(12))
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><body>{path.read_text()}</body>")
    browser.open(page)
    live = browser.run(SHOW)
    page.write_text(page.read_text().replace("<script>", "<script type='text/none'>"))
    browser.open(page)
    static = browser.run(SHOW)
    assert (live.pop("tools"), static.pop("tools")) == (1, 0)
    assert live.pop("world") and not static.pop("world")
    assert live == static
    paths = "[...document.querySelectorAll('.line')].map((line) => line.getAttribute('d')).join()"
    drawn = browser.run(paths)
    page.write_text(page.read_text().replace("<script type='text/none'>", "<script>"))
    browser.open(page)
    computed = browser.run(paths)  # by the script, from numbers that are rounded to a tenth
    assert numbers(computed) == pytest.approx(numbers(drawn), abs=0.25)


def test_an_image_in_a_page_is_drawn(browser: Chromium, tmp_path: Path) -> None:
    saved(tmp_path, demo())
    page = tmp_path / "page.html"
    page.write_text("<!doctype html><img src='picture.svg'>")
    browser.open(page)
    assert browser.run("document.images[0].naturalWidth") > 300
    assert browser.errors == []


def test_colours_follow_the_theme_of_the_system(browser: Chromium, tmp_path: Path) -> None:
    path = saved(tmp_path, demo())
    seen = []
    for dark in (False, True):
        browser.open(path, dark=dark)
        seen.append(browser.run(SHOW))
    light, dark_ = seen
    assert (light["paper"], dark_["paper"]) == ("rgb(255, 255, 255)", "rgb(13, 17, 23)")
    assert light["ink"] != dark_["ink"]


def test_colours_follow_the_page_around_and_can_be_overridden(browser: Chromium, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    body = "<!doctype html><body data-jp-theme-light='{light}' style='{style}'>"
    page.write_text(body.format(light="false", style="") + svg(demo()))
    browser.open(page, dark=False)
    assert browser.run(SHOW)["paper"] == "rgb(13, 17, 23)"
    page.write_text(body.format(light="true", style="--farcall-page: rgb(1, 2, 3)") + svg(demo()))
    browser.open(page, dark=True)
    assert browser.run(SHOW)["paper"] == "rgb(1, 2, 3)"


def test_a_click_folds_a_group_and_another_opens_it(browser: Chromium, tmp_path: Path) -> None:
    browser.open(saved(tmp_path, demo()))
    before = browser.run(SHOW)
    click = "document.querySelector('.region .bar').dispatchEvent(new MouseEvent('click'))"
    browser.run(click)
    folded = browser.run(SHOW)
    assert folded["boxes"] == before["boxes"] - 2  # npu_0 has two boxes
    assert folded["overlapping"] == folded["crooked"] == 0
    browser.run(click)
    again = browser.run(SHOW)
    assert again["boxes"] == before["boxes"] and again["lines"] == before["lines"]


def test_the_keyboard_folds_a_group_too(browser: Chromium, tmp_path: Path) -> None:
    browser.open(saved(tmp_path, demo()))
    bar = "document.querySelector('.region .bar')"
    assert browser.run(f"{bar}.getAttribute('aria-expanded')") == "true"
    browser.run(f"{bar}.dispatchEvent(new KeyboardEvent('keydown', {{key: 'Enter'}}))")
    assert browser.run(f"{bar}.getAttribute('aria-expanded')") == "false"


def test_search_finds_nodes_and_opens_the_group_of_the_next_hit(browser: Chromium, tmp_path: Path) -> None:
    browser.open(saved(tmp_path, transformer(12)))
    shown = browser.run(SHOW)["boxes"]
    browser.run(
        "((box) => { box.value = 'softmax'; box.dispatchEvent(new Event('input')); })"
        "(document.querySelector('.tools input'))"
    )
    assert browser.run("document.querySelector('.tools .count').textContent") == "12"
    enter = (
        "document.querySelector('.tools input').dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}))"
    )
    browser.run(enter)
    assert browser.run(SHOW)["boxes"] == shown  # the first hit is visible already
    browser.run(enter)
    seen = browser.run(SHOW)
    assert seen["boxes"] == shown + 9
    hit = "document.querySelectorAll('.found rect')[1].getBoundingClientRect()"
    assert abs(browser.run(f"{hit}.top") - 400) < 100  # in the middle of a window of 800
    assert browser.errors == []


def test_zoom_and_pan_change_the_view(browser: Chromium, tmp_path: Path) -> None:
    browser.open(saved(tmp_path, demo()))
    start = browser.run(SHOW)["world"]
    browser.run("document.querySelector('[title=\"Larger (+)\"]').click()")
    larger = browser.run(SHOW)["world"]
    assert "scale(1.25)" in larger and larger != start
    browser.run(
        "document.documentElement.dispatchEvent(new WheelEvent('wheel', {deltaY: 100, cancelable: true}))"
    )
    assert browser.run(SHOW)["world"] != larger
    browser.run("document.querySelector('[title=\"The whole width (0)\"]').click()")
    assert browser.run(SHOW)["world"] == start


def test_a_part_of_a_long_region_opens_and_moves_others_aside(browser: Chromium, tmp_path: Path) -> None:
    browser.open(saved(tmp_path, dag(1000, foreign=0.0)))
    before = browser.run(SHOW)
    browser.run("document.querySelector('.section > .bar').dispatchEvent(new MouseEvent('click'))")
    browser.run("document.querySelector('.world').removeAttribute('transform')")
    seen = browser.run(SHOW)
    assert seen["boxes"] > before["boxes"] + 50
    check(seen)
    assert browser.errors == []
