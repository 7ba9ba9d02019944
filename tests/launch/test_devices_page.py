"""The program of the page on devices, by the launchers that the page itself cannot run: ssh and adb."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ..pages import BLOCK
from ..tree import ROOT
from .adb_server import AdbServer
from .conftest import Sshd

pytest.importorskip("onnx")
pytest.importorskip("ziglang")


def timed(url: str, folder: Path) -> list[str]:
    """What the page's program prints for a device, by line."""
    page = (ROOT / "docs/devices.md").read_text()
    (program,) = [block["text"] for block in BLOCK.finditer(page) if block["file"] == "timed.py"]
    words = [sys.executable, "-", url]
    done = subprocess.run(words, input=program, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_board_by_ssh(ssh: Sshd, tmp_path: Path) -> None:
    device, same, time = timed(ssh.url, tmp_path)
    assert device.startswith(f"{ssh.url} is ")
    assert same == "the same to 6 digits: True"
    assert time.endswith(" us")


def test_an_android_device_by_adb(adb: AdbServer, tmp_path: Path) -> None:
    assert timed("adb://fake-1", tmp_path)[:2] == [
        "adb://fake-1 is aarch64-linux-musl",
        "the same to 6 digits: True",
    ]
