"""The pytest plugin, tried by pytest runs of its own, as the files and outputs of docs/testing.md."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import entry_points

import pytest

from farcall import _pytest_plugin
from farcall.rpc import Server

from ..tree import ROOT

DOCS = ROOT / "docs"
PAGE = (DOCS / "testing.md").read_text()
FILES = dict(re.findall(r"^```python\n(?=# (\w+\.py)\n)(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
OUTPUTS = re.findall(r"^```console\n\$ pytest (.*?)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """An empty folder. Its pytest has the plugin as from an installation, by an entry point."""
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return pytester


def run(project: pytest.Pytester, *words: str) -> pytest.RunResult:
    editable = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"  # see pyproject.toml
    return project.runpytest_subprocess("-p", "no:cacheprovider", "-W", editable, *plugin(), *words)


def plugin() -> list[str]:
    """The words that load the plugin, if farcall was installed before it had one."""
    return [] if "farcall" in entry_points(group="pytest11").names else ["-p", _pytest_plugin.__name__]


def shown(output: str, url: str) -> list[str]:
    """The patterns that lines of the page stand for: the address, the time and the bars vary."""
    text = re.sub(r"tcp://(?:board:9090|127\.0\.0\.1:\d+)", url, output)
    lines = [re.sub(r" in [\d.]+s", " in *", line).strip("= ") for line in text.splitlines()]
    return [f"*{line.replace('[', '[[]')}*" for line in lines]


class TestThePage:
    @pytest.fixture
    def folder(self, project: pytest.Pytester) -> pytest.Pytester:
        for name, text in FILES.items():
            (project.path / name).write_text(text)
        return project

    def test_in_this_process(self, folder: pytest.Pytester) -> None:
        words, output = OUTPUTS[0]
        run(folder, *words.split()).stdout.fnmatch_lines(shown(output, "tcp://127.0.0.1:*"))

    def test_on_a_board(self, folder: pytest.Pytester) -> None:
        words, output = OUTPUTS[1]
        with Server(init="kernels:register") as board:
            line = words.replace("tcp://board:9090", board.url)
            run(folder, *line.split()).stdout.fnmatch_lines(shown(output, board.url))

    def test_it_lists_all_fixtures_options_and_markers(self) -> None:
        source = (ROOT / "src/farcall/_pytest_plugin.py").read_text()
        fixtures = re.findall(r"@pytest\.fixture.*\ndef (\w+)", source)
        rows = re.findall(r"^\| `(\w+)", PAGE, re.MULTILINE)
        assert set(rows) == {*fixtures, "farcall_remote", "farcall_needs"}
        assert "`--farcall-on`" in PAGE
        assert all(option in PAGE for option in re.findall(r'"(--farcall-[a-z-]+)"', source))


def test_a_target_without_a_compiler_is_the_reason(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest
        @pytest.mark.farcall_needs(target="host")
        def test_here(): pass
        @pytest.mark.farcall_needs(target="s390x-linux-musl")
        def test_there(): pass
        """
    )
    project.makepyfile(ziglang="raise ImportError")  # has no program zig
    out = run(project, "-rs").stdout
    out.fnmatch_lines(
        ["*no compiler for s390x-linux-musl found*pip install 'farcall[[]zig]'", "*1 passed, 1 skipped*"]
    )


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ('device="cuda:0"', "*farcall_needs(device='cuda:0'): the test does not use `farcall_session`*"),
        ('gpu="cuda:0"', "*farcall_needs: expected device, function, target by keyword, got *"),
        ('"cuda:0"', "*farcall_needs: expected device, function, target by keyword, got *"),
    ],
)
def test_a_mark_that_asks_for_nothing_is_a_mistake(project: pytest.Pytester, mark: str, message: str) -> None:
    project.makepyfile(f"import pytest\n@pytest.mark.farcall_needs({mark})\ndef test_it(): pass")
    result = run(project)
    assert result.ret != 0
    result.stdout.fnmatch_lines([message])


def test_memory_that_a_test_keeps_is_an_error_of_that_test(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import farcall as fc
        kept = []
        def test_keeps(farcall_device):
            kept.append(fc.ffi.empty((4,), "float32", "ext_dev:0"))
        def test_fails(farcall_device):
            x = fc.ffi.empty((4,), "float32", "ext_dev:0")
            assert 0
        """
    )
    result = run(project)
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines(["*AssertionError: never released: 16 bytes at * of device 0*"])


def test_the_plugin_imports_nothing_until_a_test_uses_it(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import sys
        def test_light():
            heavy = {"numpy", "onnx", "asyncio", "farcall.rpc", "farcall._core", "farcall.testing"}
            assert not heavy & set(sys.modules)
        """
    )
    run(project).assert_outcomes(passed=1)


def test_pip_tells_pytest_of_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"farcall": _pytest_plugin.__name__}


@pytest.mark.slow  # it asks about all of ONNX's node tests
def test_the_checks_of_a_backend(project: pytest.Pytester) -> None:
    (project.path / "acme.py").write_text((ROOT / "tests/testing/negating.py").read_text())
    words = ["--farcall-backend=acme:WantsAlignment", "--farcall-backend-sample=2"]
    words += ["--farcall-backend-report=acme.md", "-k", "not session"]
    lines = run(project, "-v", *words).stdout
    lines.fnmatch_lines_random(
        [
            "acme:WantsAlignment::Neg PASSED*",
            "acme:WantsAlignment::inputs are strided or not aligned FAILED*",
            "backend neg: * failed, *",
            "inputs are strided or not aligned: Neg, *",
        ]
    )
    report = (project.path / "acme.md").read_text()
    assert "| inputs are strided or not aligned | 0 | 2 | 0 |" in report
    assert re.search(r"^\| Neg \| [1-9]\d* \| 0 \| \d+ \|$", report, re.MULTILINE)


def test_a_backend_that_cannot_be_checked_is_told(project: pytest.Pytester) -> None:
    errors = run(project, "--farcall-backend=npv").stderr
    errors.fnmatch_lines(["ERROR: --farcall-backend: no backend is called `npv`*"])
