"""Pairs of channels of every kind: a client dials, and an event loop listens as a server does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import trustme

from farcall._core import Channel, Mailbox
from farcall.rpc.channels import Accepted, Connection, Listener, Tls, channel_of, dial, listen

from ..waiting import SECONDS, soon

KINDS = ("tcp", "unix", "shm", "mailbox", "tls", "ws", "wss")
OF_A_FILE = ("unix", "shm", "mailbox")


class Loop:
    """An asyncio loop in a thread, like the supervisor's."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def start(self, work):  # type: ignore[no-untyped-def]
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work):  # type: ignore[no-untyped-def]
        return self.start(work).result(SECONDS)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(SECONDS)
        self.loop.close()


class Certificates:
    """A certificate authority, certificates of a server and a client, and one of another authority."""

    def __init__(self, folder: Path) -> None:
        authority, other = trustme.CA(), trustme.CA()
        self.ca = folder / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        self.server = self._write(folder / "server.pem", authority.issue_cert("localhost", "127.0.0.1"))
        self.client = self._write(folder / "client.pem", authority.issue_cert("client"))
        self.stranger = self._write(folder / "stranger.pem", other.issue_cert("client"))
        self.elsewhere = self._write(folder / "elsewhere.pem", authority.issue_cert("elsewhere.example"))

    def _write(self, path: Path, made: trustme.LeafCert) -> Tls:
        made.private_key_and_cert_chain_pem.write_to_path(str(path))
        return Tls(ca=self.ca, cert=path, key=path)


async def accept(listener: Listener) -> Accepted:
    return await listener.open(await listener.accept())


def take(accepted: Accepted) -> Channel:
    """The channel that a worker would make of an accepted connection."""
    channel = channel_of([os.dup(number) for number in accepted.descriptors])
    accepted.close()
    return channel


class Place:
    """A listener of one kind, and connections to it."""

    def __init__(self, kind: str, loop: Loop, client: Tls, server: Tls, folder: Path) -> None:
        self.loop = loop
        self.tls = client
        url = f"{kind}://{folder}/s" if kind in OF_A_FILE else f"{kind}://127.0.0.1:0"
        self.listener = listen(url, tls=server)

    def meet(self) -> tuple[Connection, Accepted]:
        """A new connection: the client's end and the server's end."""
        arriving: Future[Accepted] = self.loop.start(accept(self.listener))
        try:
            connection = dial(self.listener.url, soon(), tls=self.tls)
            return connection, arriving.result(SECONDS)
        except BaseException:
            arriving.cancel()
            raise

    @contextlib.contextmanager
    def pair(self) -> Iterator[tuple[Channel, Channel]]:
        connection, accepted = self.meet()
        theirs = take(accepted)
        try:
            yield connection.begin(), theirs
        finally:
            theirs.close()
            connection.close()


MakePlace = Callable[..., Place]


class Box:
    """A mailbox that a test serves, and its clients."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "box")
        self.server = Mailbox(self.path, serving=True)

    def meet(self) -> tuple[Channel, Channel]:
        """A new session: the client's end and the server's end."""
        with ThreadPoolExecutor(1) as pool:
            theirs = pool.submit(self.server.meet, soon())
            return Mailbox(self.path).meet(soon()), theirs.result()

    @contextlib.contextmanager
    def pair(self) -> Iterator[tuple[Channel, Channel]]:
        """A session, and its end."""
        ours, theirs = self.meet()
        with contextlib.closing(ours), contextlib.closing(theirs):
            yield ours, theirs


@contextlib.contextmanager
def socket_pair() -> Iterator[tuple[Channel, Channel]]:
    a, b = (Channel(end.detach()) for end in socket.socketpair())
    try:
        yield a, b
    finally:
        a.close()
        b.close()


@contextlib.contextmanager
def pipe_pair() -> Iterator[tuple[Channel, Channel]]:
    (a_in, b_out), (b_in, a_out) = os.pipe(), os.pipe()
    a, b = Channel(a_in, a_out), Channel(b_in, b_out)
    try:
        yield a, b
    finally:
        a.close()
        b.close()
