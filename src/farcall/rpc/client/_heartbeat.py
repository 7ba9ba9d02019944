"""Keeps an idle session alive on a server that ends silent sessions (``farcall serve --lease``).

The server counts all bytes. farcall's and TVM's servers ignore an empty packet. A stopped process sends none,
so its sessions end, as they should.
"""

from __future__ import annotations

import threading

from farcall import _core

_SHORTEST, _LONGEST = 0.02, 3600.0  # seconds


def keep(endpoint: _core.Endpoint, lease: object) -> threading.Event | None:
    """Send empty packets until the connection is closed or lost, or its last reference is gone: the session
    and all objects that came from it hold one.

    Args:
        endpoint: of the session to keep alive.
        lease: seconds of silence that its server allows; anything but a positive number means no limit.

    Returns:
        The event to set when the session is closed; None if the server has no limit.
    """
    if not isinstance(lease, int | float) or not lease > 0:
        return None
    seconds = min(max(lease / 3, _SHORTEST), _LONGEST)
    over = threading.Event()
    arguments = (endpoint.serial, over, seconds)
    threading.Thread(target=_beat, args=arguments, name="farcall-heartbeat", daemon=True).start()
    return over


def _beat(serial: int, over: threading.Event, seconds: float) -> None:
    while not over.wait(seconds) and _core.beat_if_held(serial):
        pass
