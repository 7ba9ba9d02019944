"""The pytest plugin ``farcall``: a server, a session and a device for tests, and checks of backends.

See docs/testing.md.

pytest imports this module in every project whose environment has farcall. So the module imports nothing of
farcall until a test uses it.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from farcall.rpc import Server, Session
    from farcall.testing import NullDevice

_failed = pytest.StashKey[bool]()
_checks = pytest.StashKey[Any]()  # BackendChecks
_NEEDS = ("device", "function", "target")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("farcall")
    group.addoption(
        "--farcall-backend",
        metavar="BACKEND",
        help="also check this backend, a name or pkg.mod:Class: a test for each operator that it takes and "
        "for each rule of its contract",
    )
    group.addoption(
        "--farcall-backend-sample",
        metavar="N",
        type=int,
        help="with --farcall-backend: at most N of ONNX's node tests for each operator",
    )
    group.addoption(
        "--farcall-backend-report",
        metavar="FILE",
        help="with --farcall-backend: write the tables of the checks that ran to this file, as Markdown (or "
        "as JSON, if it ends in .json)",
    )
    group.addoption(
        "--farcall-on",
        metavar="URL",
        help="open the sessions of tests at this server (tcp://board:9090), not at one of this process; "
        "or on a device, where a server is started (ssh://board, emulator:hexagon)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "farcall_remote: runs only with --farcall-on=URL, on that server")
    config.addinivalue_line(
        "markers",
        "farcall_needs(device=None, function=None, target=None): skipped if the server of farcall_session "
        "lacks the device or the function, or if no compiler here has the target",
    )


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [f"farcall: sessions at {url}"] if (url := _url(config)) else []


@pytest.hookimpl(tryfirst=True)  # before pytest selects by -k and -m
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    if backend := config.getoption("--farcall-backend", None):
        from farcall.testing._pytest_backend import BackendChecks

        sample = config.getoption("--farcall-backend-sample")
        config.stash[_checks] = BackendChecks.of(session, backend, sample)
        items.extend(config.stash[_checks].collect())


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--farcall-backend-report", None)
    if path and (checks := session.config.stash.get(_checks, None)):
        checks.write(path)


@pytest.hookimpl(tryfirst=True)  # before pytest looks for marks to skip
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("farcall_remote") and not _url(item.config):
        item.add_marker(pytest.mark.skip("runs on another machine: pytest --farcall-on=URL"))
    for name, value in _needs(item):
        if name == "target" and (reason := _no_compiler(value)):
            item.add_marker(pytest.mark.skip(reason))
        elif name != "target" and "farcall_session" not in getattr(item, "fixturenames", ()):
            raise pytest.UsageError(
                f"farcall_needs({name}={value!r}): the test does not use `farcall_session`"
            )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_failed] = item.stash.get(_failed, False) or report.failed
    return report


@pytest.fixture(scope="session")
def farcall_server_options() -> dict[str, Any]:
    """The arguments of the Server that `farcall_server` starts. Define this fixture anew to set them."""
    return {}


@pytest.fixture(scope="session")
def farcall_server(
    request: pytest.FixtureRequest, farcall_server_options: dict[str, Any]
) -> Iterator[Server]:
    """A server in the background of this process, which all tests share: a farcall.rpc.Server."""
    if url := _url(request.config):
        pytest.skip(f"starts a server of its own, and --farcall-on={url} names another")
    from farcall.rpc import Server

    with Server(**farcall_server_options) as server:
        yield server


@pytest.fixture(scope="session")
def farcall_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of the server under test: that of ``--farcall-on``, else of `farcall_server`.

    On a device that ``--farcall-on`` names, a server is started for the tests, and stopped after them.
    """
    from farcall.launch._launchers import is_launcher_url

    url = _url(request.config) or str(request.getfixturevalue("farcall_server").url)
    if not is_launcher_url(url):
        yield url
        return
    import farcall

    with farcall.launch(url) as device:
        yield device.server_url


@pytest.fixture(scope="session")
def farcall_connect_options(
    request: pytest.FixtureRequest, farcall_server_options: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of farcall.connect, after the URL. Define this fixture anew to set them.

    They are the key of `farcall_server`, and with ``--farcall-on`` the token in the environment variable
    FARCALL_TOKEN.
    """
    if _url(request.config):
        return {"token": os.environ.get("FARCALL_TOKEN")}
    return {"key": farcall_server_options.get("key", "")}


@pytest.fixture
def farcall_session(
    request: pytest.FixtureRequest, farcall_url: str, farcall_connect_options: dict[str, Any]
) -> Iterator[Session]:
    """A session for this test with the server at `farcall_url`."""
    import farcall

    with farcall.connect(farcall_url, **farcall_connect_options) as session:
        for name, value in _needs(request.node):
            if name == "device" and not session.device(value).exist:
                pytest.skip(f"the server at {farcall_url} has no device {value}")
            if name == "function" and value not in session.function_names():
                pytest.skip(f"the server at {farcall_url} has no function {value}")
        yield session


@pytest.fixture
def farcall_device(request: pytest.FixtureRequest) -> Iterator[NullDevice]:
    """Two fake accelerators, ``ext_dev:0`` and ``ext_dev:1``, in this process: a farcall.testing.NullDevice.

    If the test passes, it must have released all memory of the devices.
    """
    from farcall import ffi
    from farcall.testing import NullDevice

    device = NullDevice(count=2)
    ffi.register_device_memory("ext_dev", device)
    yield device
    ffi.register_device_memory("ext_dev", None)
    if not request.node.stash.get(_failed, False):  # the traceback of a failure holds the test's tensors
        device.check_empty()


def _url(config: pytest.Config) -> str | None:
    url: str | None = config.getoption("--farcall-on", None)
    return url


def _needs(item: pytest.Item) -> Iterator[tuple[str, str]]:
    """The needs of a test, by its marks."""
    for mark in item.iter_markers("farcall_needs"):
        if mark.args or not mark.kwargs.keys() <= set(_NEEDS):
            raise pytest.UsageError(f"farcall_needs: expected {', '.join(_NEEDS)} by keyword, got {mark}")
        yield from mark.kwargs.items()


def _no_compiler(target: str) -> str | None:
    """Why nothing can be compiled for a target, or None."""
    from farcall.errors import ToolchainError
    from farcall.toolchain import Target, find_compiler

    wanted = Target.parse(target)
    try:
        find_compiler(wanted)
    except ToolchainError as error:
        return str(error)
    return None
