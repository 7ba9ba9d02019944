"""Errors lead to the page that explains them, and the page explains each of them."""

from __future__ import annotations

import copy
import pickle
import re
import traceback
from pathlib import Path

import pytest

import farcall as fc
from farcall import errors
from farcall.errors import ConnectError, FarcallError, help_url

from .pages import check
from .test_docs import DOCS, PROJECT

KINDS = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, FarcallError)}
PAGE = DOCS / "errors.md"
BASES = {"FarcallError", "RemoteError"}  # only subclasses are raised


def sections() -> dict[str, str]:
    _, *parts = re.split(r"^## (\w+)\n", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_each_class_has_its_section_and_each_section_its_class() -> None:
    assert set(sections()) == {kind.__name__ for kind in KINDS}


@pytest.mark.parametrize("name", sorted(kind.__name__ for kind in KINDS if kind.__name__ not in BASES))
def test_a_section_raises_the_error_and_has_the_cure(name: str) -> None:
    text = sections()[name]
    assert re.search(rf"^ *except fc\.(errors\.)?{name} as error:", text, re.MULTILINE)
    assert "```text\n" in text
    assert "Cure: " in text


def test_the_page_shows_the_messages_of_today(tmp_path: Path) -> None:
    check(PAGE, tmp_path)


@pytest.mark.parametrize(
    "kind", sorted(KINDS, key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__
)
def test_each_class_has_the_address_of_its_section(kind: type[FarcallError]) -> None:
    anchor = "" if kind is FarcallError else f"#{kind.__name__.lower()}"
    assert kind.url == f"{PROJECT['urls']['Documentation']}errors.html{anchor}"


def test_a_traceback_ends_with_the_address_and_the_message_does_not_have_it() -> None:
    error = ConnectError("nobody listens")
    assert str(error) == "nobody listens"
    assert traceback.format_exception(error)[-1] == f"see: {ConnectError.url}\n"
    assert help_url(error) == ConnectError.url


def test_an_error_keeps_notes_of_its_own() -> None:
    error, other = ConnectError("one"), ConnectError("two")
    error.add_note("on the third board")
    see = f"see: {ConnectError.url}"
    assert error.__notes__ == [see, "on the third board"]
    assert other.__notes__ == [see]
    assert copy.copy(error).__notes__ == pickle.loads(pickle.dumps(error)).__notes__ == error.__notes__  # noqa: S301
    group, rest = ExceptionGroup("boards", [error, ValueError("x")]).split(ConnectError)
    assert group is not None and group.exceptions == (error,) and rest is not None


def test_an_error_of_a_user_has_the_page_of_its_base() -> None:
    class BoardError(ConnectError):
        pass

    assert BoardError("gone").url == ConnectError.url


def test_other_errors_have_no_page() -> None:
    assert help_url(ValueError("x")) is None


def test_an_error_that_nobody_prints_carries_no_note() -> None:
    """Errors are control flow in places: the address costs nothing there."""
    with pytest.raises(FarcallError) as caught:
        fc.connect("tcq://board")
    assert vars(caught.value) == {}
