"""``farcall doctor`` and ``farcall plugins``: what works here, and the cure for what does not."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from farcall import _plugins
from farcall.cli import _checks, doctor
from farcall.cli._checks import Check, Missing

from ..terminal import Cli

Install = Callable[..., None]


def test_a_machine_on_which_all_works(cli: Cli) -> None:
    outcome = cli("doctor", "--json")
    report = json.loads(outcome.out)
    found = {check["part"]: check for check in report["checks"]}
    assert report["ok"] is (outcome.code == 0)
    for part in ("farcall", "Python", "loopback", "session", "C compiler", "TLS"):
        assert found[part]["state"] == "ok", found[part]
        assert found[part]["cure"] == ""


def broken() -> str:
    raise OSError("it does not answer\nmore")


def absent() -> str:
    raise Missing("not installed", "pip install it")


@pytest.mark.parametrize(("needed", "code"), [(True, 1), (False, 0)])
def test_only_a_broken_part_that_is_needed_fails(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, needed: bool, code: int
) -> None:
    checks = (Check("one", broken, "turn it on", needed), Check("two", absent, "-", needed=True))
    monkeypatch.setattr(_checks, "CHECKS", checks)
    outcome = cli("doctor")
    assert outcome.code == code
    for line in ("one   broken   it does not answer\n", "one: turn it on\n", "two: pip install it\n"):
        assert line in outcome.out


def test_a_part_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = threading.Event()
    monkeypatch.setattr(doctor, "SECONDS", 0.01)
    outcome = doctor._outcome(Check("one", lambda: str(ends.wait()), "turn it on"))
    ends.set()
    assert (outcome.state, outcome.found) == ("broken", "no answer within 0.01 s")


def test_a_compiler_that_is_broken_has_a_cure(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    monkeypatch.setattr(_checks, "CHECKS", [c for c in _checks.CHECKS if c.part == "C compiler"])
    outcome = cli("doctor")
    assert outcome.code == 1
    assert "C compiler: unset CC, or set it to a compiler that works" in outcome.out


def test_backends_without_the_packages_that_read_models(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setattr(_checks, "CHECKS", [c for c in _checks.CHECKS if c.part in ("backends", "onnx")])
    outcome = cli("doctor")
    assert outcome.code == 0
    assert "backends  missing  reading models needs the package onnx\n" in outcome.out
    assert "onnx: pip install 'farcall[compile]'" in outcome.out


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package with one module and its backends, for this process."""

    def install(module: str, source: str, **backends: str) -> None:
        (tmp_path / f"{module}.py").write_text(source)
        about = tmp_path / f"{module}-2.5.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 2.5\n")
        lines = "".join(f"{name} = {module}:{value}\n" for name, value in backends.items())
        (about / "entry_points.txt").write_text(f"[farcall.backends]\n{lines}")
        _plugins._found.cache_clear()

    monkeypatch.syspath_prepend(tmp_path)
    yield install
    monkeypatch.undo()
    _plugins._found.cache_clear()


PLUGIN = "from farcall.backends.c import CBackend\nclass Npu(CBackend):\n    name = 'npu'\n"


def test_plugins_show_package_version_and_state(
    cli: Cli, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("acme_npu", PLUGIN, acme="Npu")
    install("acme_old", "import acme_gone\n", old="Old")
    listed = json.loads(cli("plugins", "list", "--json").out)["plugins"]
    rows = {row["name"]: row for row in listed}
    assert rows["c"]["package"] == "farcall"
    assert rows["acme"] == {
        "kind": "backend", "name": "acme", "package": "acme_npu", "version": "2.5",
        "object": "acme_npu:Npu", "state": "ok",
    }  # fmt: skip
    assert rows["old"]["state"].endswith("ModuleNotFoundError: No module named 'acme_gone'")
    assert rows["tls"]["kind"] == "channel"
    monkeypatch.setenv("FARCALL_PLUGINS", "0")
    outcome = cli("plugins", "list")
    assert "turned off by FARCALL_PLUGINS" in outcome.out
    assert "acme" not in outcome.out


def test_broken_metadata_warns_and_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**query: str) -> None:
        raise ValueError("half a file")

    _plugins._found.cache_clear()
    monkeypatch.setattr("importlib.metadata.entry_points", broken)
    with pytest.warns(UserWarning, match=r"cannot look for backends of other packages: .*half a file"):
        assert _plugins.installed("backend") == {}
    monkeypatch.undo()
    _plugins._found.cache_clear()
