"""Contracts that implementations can be held to, ours and yours.

::

    from farcall.testing import check_channel

    def test_my_channel():
        check_channel(my_pair)  # my_pair() is a context manager that gives two connected channels
"""

from __future__ import annotations

from farcall.testing._channel import CHANNEL_RULES, ByteChannel, check_channel

__all__ = ["CHANNEL_RULES", "ByteChannel", "check_channel"]
