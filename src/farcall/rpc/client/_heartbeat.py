"""What keeps a session that is idle, with a server that ends silent ones (``farcall serve --lease``).

The server counts bytes, whatever they are. An empty packet means nothing to it, nor to a TVM server. A
process that is stopped sends none, and that is the point.
"""

from __future__ import annotations

import threading

from farcall import _core

_SHORTEST, _LONGEST = 0.02, 3600.0  # seconds


def keep(endpoint: _core.Endpoint, lease: object) -> threading.Event | None:
    """Send empty packets on a line until it is closed or lost, or nothing holds it any more: a session does,
    and so does everything that came from it.

    Args:
        endpoint: of the session to keep.
        lease: seconds of silence that its server allows; anything but a positive number means no limit.

    Returns:
        What to set when the session is closed.
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
