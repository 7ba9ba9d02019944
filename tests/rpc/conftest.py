"""Servers and raw peers for the tests: on loopback only, and all are stopped at the end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from farcall.rpc import Server, Session, connect

from ..waiting import SECONDS
from .peers import Peer
from .servers import INIT
from .tvm_processes import tvm_server


@pytest.fixture(scope="session")
def servers(server: Server) -> Iterator[list[Server]]:
    """Three servers; the first is the one that all tests share."""
    with Server(init=INIT, key="second") as second, Server(init=INIT, key="third") as third:
        yield [server, second, third]


@pytest.fixture
def session(farcall_session: Session) -> Session:
    return farcall_session


@pytest.fixture(scope="session")
def tvm_url() -> Iterator[str]:
    """A server of Apache TVM."""
    with tvm_server() as url:
        yield url


@pytest.fixture
def tvm(tvm_url: str) -> Iterator[Session]:
    with connect(tvm_url, key="k", timeout=SECONDS) as opened:
        yield opened


@pytest.fixture
def peer(server: Server) -> Iterator[Peer]:
    with Peer(server) as raw:
        raw.shake()
        raw.start()
        yield raw


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = Path(__file__).parent
    include = here.parents[1] / "include"
    output = tmp_path_factory.mktemp("kernels") / "kernels.so"
    system = os.environ.get("CC") or shutil.which("cc")
    cc = system.split() if system else [sys.executable, "-m", "ziglang", "cc", "-fno-sanitize=undefined"]
    flags = ["-shared", "-fPIC", "-O1", f"-I{include}"]
    subprocess.run([*cc, *flags, str(here / "kernels.c"), "-o", str(output)], check=True)
    return output


# ---- bytes
