"""How notebooks and terminals show farcall's objects: tables without scripts, and one line as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

import farcall as fc
from farcall import _html
from farcall.rpc import Server, Session, Stats, Timing

EVIL = "<script>alert('farcall')</script>&amp;"
SIGNATURE = fc.Signature.of(
    {"ids": "int64[n]", "scale": fc.abi.Arg("float32", default=1.0)}, {"sum": "float32[n]"}
)


class Table(HTMLParser):
    """The tags of a view, and its cells as a reader sees them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.open.append(tag)
        assert {name for name, _ in attributes} <= {"style", "class"}
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] in ("td", "th"):
            self.cells[-1] += data


def cells(thing: object) -> list[str]:
    view = Table(thing._repr_html_())  # type: ignore[attr-defined]
    assert view.tags <= {"div", "strong", "table", "thead", "tbody", "tr", "th", "td", "pre"}
    assert "\n" not in repr(thing)
    return view.cells


def test_a_signature() -> None:
    assert cells(SIGNATURE) == [
        *("argument", "type", "default"),
        *("ids", "int64[n]", ""),
        *("scale", "float32", "1.0"),
        *("→ result", '{"sum": float32[n]}', ""),
    ]


def test_a_function_with_a_signature_and_one_without() -> None:
    function = fc.Function(abs)
    assert cells(function) == []
    assert "no Signature" in function._repr_html_()
    function.signature = SIGNATURE
    assert cells(function) == cells(SIGNATURE)


def test_a_module(digits_artifact: Path) -> None:
    module = fc.load_module(digits_artifact)
    shown = cells(module)
    assert shown[:2] == ["function", "signature"]
    assert shown[shown.index("main") + 1] == "(image: float32[batch, 1, 8, 8]) -> float32[batch, 10]"


def test_a_timing() -> None:
    timing = Timing((1e-6, 2e-6, 3e-6))
    assert cells(timing)[:4] == ["mean", "2 us", "median", "2 us"]
    assert repr(timing).startswith("<farcall timing: mean 2 us")


def test_counters() -> None:
    assert cells(Stats(1, 2, 3, 4567, 5, 6, 7))[6:8] == ["copied in", "4,567"]


@pytest.fixture
def session(server: Server) -> Iterator[Session]:
    with fc.connect(server.url, key="k") as session:
        yield session


def test_a_session_and_a_remote_module_ask_no_server(session: Session, digits_artifact: Path) -> None:
    module = session.load_module(digits_artifact)
    before = session.stats.round_trips
    for thing in (session, module):
        assert cells(thing)
        assert session.url in repr(thing)
    assert cells(session)[:4] == ["route", session.url, "state", "open"]
    assert "main" in cells(module)
    assert session.stats.round_trips == before
    session.close()
    assert "closed" in cells(session)
    assert "closed" in repr(session)


def test_names_are_text_wherever_they_come_from(session: Session) -> None:
    session.features = frozenset({EVIL})
    function = fc.Function(abs)
    function.signature = fc.Signature.of({EVIL: "float32[n]", "by": fc.abi.Arg("str", default=EVIL)}, None)
    module = fc.ffi.new_module(EVIL, {EVIL: function})
    for thing in (session, function, function.signature, module, module[EVIL]):
        assert EVIL in " ".join(cells(thing)) or EVIL in repr(thing)
        assert "<script" not in thing._repr_html_()


def test_a_long_table_says_how_many_rows_it_leaves_out() -> None:
    html = _html.table("many", ("name",), ((f"f{i}",) for i in range(250)))
    assert len(Table(html).cells) == 1 + 100
    assert re.search(r">\.\.\. and 150 more<", html)
