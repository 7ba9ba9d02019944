"""Fixtures that the tests of all rooms share."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from .terminal import Cli, Outcome
from .tree import ROOT
from .waiting import SECONDS

if TYPE_CHECKING:
    from farcall.rpc import Server

pytest_plugins = ["pytester"]

# No deadline: the duration of an example depends on the load of the machine, not on farcall.
settings.register_profile("farcall", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("farcall")

# A shell starts a background job with SIGINT ignored, and nohup one with SIGHUP ignored.
# The programs that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_configure(config: pytest.Config) -> None:
    """Load farcall's plugin in a checkout that was set up before it had one, and so lacks its entry point."""
    if not config.pluginmanager.has_plugin("farcall"):
        from farcall import _pytest_plugin

        config.pluginmanager.register(_pytest_plugin, "farcall")


EMULATED = ("hexagon", "armv7", "thumb")  # machines for which zig takes a minute to make a C library, once


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on these machines belong to `make long`. In `make test`, aarch64 stands for emulated machines."""
    for item in items:
        names = getattr(getattr(item, "callspec", None), "id", "")
        if any(machine in names for machine in EMULATED):
            item.add_marker(pytest.mark.long)


MOST_WORKERS = 8  # each has torch, jax and onnxruntime in its memory


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """The workers for `-n auto`: one per usable processor; the default would count all of the machine."""
    return min(len(os.sched_getaffinity(0)), MOST_WORKERS)


@pytest.fixture(scope="module", autouse=True)
def _only_new_garbage() -> Iterator[None]:
    """The collector looks at objects that are newer than the module's first test: those of torch, jax and
    onnxruntime take it half a second each time.
    """
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def _object_cache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests use a separate object cache: an object from an older version cannot hide a fault."""
    folder = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):  # one cache for the workers of a run
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="fc-") as runtime:
        patch.setenv("XDG_RUNTIME_DIR", runtime)  # of launched servers: short, since a socket's path is
        patch.setenv("FARCALL_CACHE_DIR", str(folder / "farcall-cache"))
        yield


@pytest.fixture(scope="session")
def farcall_server_options() -> dict[str, Any]:
    """The server of the tests exports the functions of tests/rpc/exports.py."""
    from .rpc.servers import INIT

    return {"init": INIT, "key": "k"}


@pytest.fixture(scope="session")
def farcall_connect_options() -> dict[str, Any]:
    return {"key": "k", "timeout": SECONDS}


@pytest.fixture(scope="session")
def server(farcall_server: Server) -> Server:
    return farcall_server


@pytest.fixture(scope="session")
def digits() -> Path:
    """The demo's ONNX model."""
    return ROOT / "examples" / "digits" / "digits.onnx"


@pytest.fixture(scope="session")
def digits_artifact(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That model as an artifact for this machine. Tests must not write to the file."""
    import farcall

    path: Path = tmp_path_factory.mktemp("built") / "digits.so"
    farcall.partition(digits).build().save(path)
    return path


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    """``cli("build", ...)`` runs the command line in this process, in an empty folder."""
    import farcall.cli

    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["farcall", *map(str, words)])
        with pytest.raises(SystemExit) as exit_:
            farcall.cli.main()
        captured = capfd.readouterr()
        assert "Traceback" not in captured.err
        return Outcome(int(exit_.value.code or 0), captured.out, captured.err)

    return run
