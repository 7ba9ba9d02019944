"""Make the wheel `farcall-devices`: farcall-server, built for devices, so that they need no compiler.

Usage: make devices-wheel [DEVICES_FLAGS="--machine aarch64 hexagon --dest dist"]

The wheel has one program for each machine, stripped and static, and nothing else. farcall takes a program
only if it was built of the very sources that farcall has: the file's name tells their hash.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import zipfile
from pathlib import Path

from farcall import __version__
from farcall.launch import build_server
from farcall.launch._server_build import prebuilt_name, server_sources
from farcall.toolchain import MACHINES, static_target

ROOT = Path(__file__).resolve().parents[1]
_INFO = f"farcall_devices-{__version__}.dist-info"
_METADATA = f"""\
Metadata-Version: 2.4
Name: farcall-devices
Version: {__version__}
Summary: farcall-server, built for devices: pip install farcall[devices]
License-Expression: Apache-2.0
Requires-Python: >=3.11
"""
_WHEEL = "Wheel-Version: 1.0\nGenerator: farcall\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_MODULE = '"""Programs for devices, which farcall.launch finds here."""\n'


def main() -> None:
    names = [machine.name for machine in MACHINES]
    parser = argparse.ArgumentParser(description="Make the wheel farcall-devices.")
    parser.add_argument("--machine", nargs="+", default=names, choices=names)
    parser.add_argument("--dest", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    files = {"farcall_devices/__init__.py": _MODULE.encode()}
    for name in options.machine:
        target = static_target(name)
        file = prebuilt_name("farcall-server", target, server_sources())
        files[f"farcall_devices/{file}"] = build_server(target).read_bytes()
    options.dest.mkdir(parents=True, exist_ok=True)
    print(write_wheel(files, options.dest))


def write_wheel(files: dict[str, bytes], folder: Path) -> Path:
    """Write the wheel of these files. Equal files give equal bytes."""
    license_file = (ROOT / "LICENSE").read_bytes()
    texts = {"METADATA": _METADATA.encode(), "WHEEL": _WHEEL.encode(), "licenses/LICENSE": license_file}
    files = files | {f"{_INFO}/{name}": data for name, data in texts.items()}
    rows = [f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files.items()]
    files[f"{_INFO}/RECORD"] = "".join([*rows, f"{_INFO}/RECORD,,\n"]).encode()
    place = folder / f"farcall_devices-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)  # of 1980, the first time that the format knows
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if "farcall-server" in name else 0o644) << 16
            wheel.writestr(entry, data)
    return place


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    main()
