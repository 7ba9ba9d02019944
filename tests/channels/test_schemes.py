"""Channels of other packages: found by entry point, insecure unless they say otherwise."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import farcall as fc
from farcall import _plugins
from farcall.errors import ConnectError, PermissionDeniedError, UsageError
from farcall.rpc import Limits
from farcall.rpc.channels import _schemes, check_exposure, parse_address
from farcall.rpc.server._relay import open_hop
from farcall.rpc.shared._hops import Hop

from ..programs import blocks_of

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package with one module and one channel, for this process and those that it starts."""

    def install(module: str, source: str, **channels: str) -> None:
        (tmp_path / f"{module}.py").write_text(source)
        about = tmp_path / f"{module}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        lines = (f"{name} = {module}:{value}" for name, value in channels.items())
        (about / "entry_points.txt").write_text("[farcall.channels]\n" + "\n".join(lines) + "\n")
        forget()

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    yield install
    monkeypatch.undo()
    forget()


def forget() -> None:
    """Entry points that were cached before are looked up again."""
    importlib.invalidate_caches()
    _plugins._found.cache_clear()
    _schemes._installed_scheme.cache_clear()
    parse_address.cache_clear()


PLAIN = """
from farcall.rpc.channels import Scheme

def dial(address, deadline, tls):
    raise NotImplementedError

SCHEME = Scheme(example="radio://HOST:PORT", form="host", dial=dial, listen=dial)
"""


def test_a_session_over_the_channel_of_a_package(install: Install) -> None:
    install("acme_abstract", "import farcall as fc\n" + blocks_of("channels.md")[-1], abstract="SCHEME")
    url = f"abstract://farcall-{os.getpid()}"
    with fc.rpc.Server(urls=[url]) as server:
        assert server.url == url
        with fc.connect(url) as session:
            assert session.tensor(np.arange(3.0)).numpy().tolist() == [0, 1, 2]
    with pytest.raises(ConnectError, match="is the server running"):
        fc.connect(url)


def test_a_channel_that_promises_nothing_is_not_trusted(install: Install) -> None:
    install("acme_radio", PLAIN, radio="SCHEME")
    address = parse_address("radio://field:7")
    assert not address.secret
    assert not address.local
    with pytest.raises(UsageError, match="the token would travel in plain text"):
        fc.connect("radio://field:7", token="name.secret")
    with pytest.raises(UsageError, match=r"in plain text\. Listen on tls://field:7"):
        check_exposure("radio://field:7", insecure=False)
    with pytest.raises(PermissionDeniedError, match="does not go on to radio://field:7"):
        open_hop(Hop("radio://field:7"), Limits(relay="any"), {})


def test_a_host_and_a_port_are_those_of_tcp_whatever_is_installed(install: Install) -> None:
    install("acme_radio", PLAIN, radio="SCHEME")
    assert parse_address("radio:7").scheme == "tcp"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import no_such_module", "cannot be imported: ModuleNotFoundError"),
        ("SCHEME = dict", "expected a farcall.rpc.channels.Scheme, got type"),
    ],
)
def test_a_package_that_is_broken_is_named(install: Install, source: str, problem: str) -> None:
    install("acme_broken", source, broken="SCHEME")
    with pytest.raises(UsageError, match=rf"channel `broken` \(acme_broken:SCHEME\).* ?{problem}"):
        parse_address("broken://somewhere")


def test_a_typing_mistake_in_the_scheme_of_a_package_is_seen(install: Install) -> None:
    install("acme_radio", PLAIN, radio="SCHEME")
    with pytest.raises(UsageError, match="no channel 'radoi'; did you mean `radio`"):
        parse_address("radoi://field:7")
