"""What an installed wheel must do on its machine, without a compiler: convert values, and hold a session."""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path

import numpy as np

import farcall as fc

package = Path(fc.__file__).parent
assert "src" not in package.parts, f"{package} is not an installation"

x = fc.from_dlpack(np.arange(4.0))
assert x.numpy().tolist() == [0, 1, 2, 3]
fc.register_global_func("try.add", lambda a, b: a + b)
assert fc.get_global_func("try.add")(20, 22) == 42
ctypes.CDLL(str(package / "libfarcall_cxx.so"), os.RTLD_NOW)  # finds all of its C++ runtime

with fc.rpc.Server() as server, fc.connect(server.url, timeout=300) as session:
    far = session.tensor(np.arange(6.0).reshape(2, 3))
    assert far.numpy().sum() == 15

print(f"farcall {fc.__version__} works: CPython {platform.python_version()}, {platform.machine()}")
