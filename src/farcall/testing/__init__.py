"""Contract tests for channels, devices and backends, farcall's and yours.

::

    from farcall.testing import check_backend, check_channel, check_device

    def test_my_channel():
        check_channel(my_pair)  # my_pair() is a context manager that gives two connected channels

    def test_my_accelerator():
        check_device(lambda: farcall.connect(url), "ext_dev:0")

    def test_my_backend():
        check_backend(MyBackend())
"""

from __future__ import annotations

from farcall.testing._backend import BACKEND_RULES, check_backend
from farcall.testing._backend_report import BackendReport
from farcall.testing._channel import CHANNEL_RULES, ByteChannel, check_channel
from farcall.testing._device import DEVICE_RULES, check_device
from farcall.testing._null_device import NullDevice

__all__ = [
    "BACKEND_RULES",
    "CHANNEL_RULES",
    "DEVICE_RULES",
    "BackendReport",
    "ByteChannel",
    "NullDevice",
    "check_backend",
    "check_channel",
    "check_device",
]
__dir__ = __all__.copy
