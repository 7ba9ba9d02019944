"""What keeps a session that is idle, with a server that ends silent ones (``farcall serve --lease``).

The server counts bytes, whatever they are. An empty packet means nothing to it, nor to a TVM server. A
process that is stopped sends none, and that is the point.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from farcall.rpc.session import Session

_SHORTEST, _LONGEST = 0.02, 3600.0  # seconds


def keep(session: Session, lease: object) -> threading.Event | None:
    """Send empty packets for ``session`` until it is closed, forgotten or lost.

    Args:
        session: the one to keep.
        lease: seconds of silence that its server allows; anything but a positive number means no limit.

    Returns:
        What to set when the session is closed.
    """
    if not isinstance(lease, int | float) or not lease > 0:
        return None
    seconds = min(max(lease / 3, _SHORTEST), _LONGEST)
    over = threading.Event()
    beating = threading.Thread(
        target=_beat, args=(weakref.ref(session), over, seconds), name="farcall-heartbeat", daemon=True
    )
    beating.start()
    return over


def _beat(reference: weakref.ref[Session], over: threading.Event, seconds: float) -> None:
    while not over.wait(seconds):
        session = reference()
        if session is None or not session.beat():
            return
        del session
