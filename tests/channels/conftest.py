"""Pairs of channels of every kind: a client dials, and an event loop listens as a server does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from farcall.rpc.channels import Tls

from .places import Certificates, Loop, MakePlace, Place


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    running = Loop()
    yield running
    running.close()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


"""Of a kind, with the server's files for TLS where they matter."""


@pytest.fixture
def place(loop: Loop, certificates: Certificates, tmp_path: Path) -> Iterator[MakePlace]:
    with contextlib.ExitStack() as stack:

        def make(kind: str, server: Tls = certificates.server) -> Place:
            made = Place(kind, loop, certificates.client, server, tmp_path)
            stack.callback(lambda: loop.run(made.listener.end()))
            return made

        yield make
