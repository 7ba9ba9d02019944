"""Contract tests for channels and devices, farcall's and yours.

::

    from farcall.testing import check_channel, check_device

    def test_my_channel():
        check_channel(my_pair)  # my_pair() is a context manager that gives two connected channels

    def test_my_accelerator():
        check_device(lambda: farcall.connect(url), "ext_dev:0")
"""

from __future__ import annotations

from farcall.testing._channel import CHANNEL_RULES, ByteChannel, check_channel
from farcall.testing._device import DEVICE_RULES, check_device
from farcall.testing._null_device import NullDevice

__all__ = ["CHANNEL_RULES", "DEVICE_RULES", "ByteChannel", "NullDevice", "check_channel", "check_device"]
__dir__ = __all__.copy
