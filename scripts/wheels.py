"""Make the wheels and the source distribution of a release, in dist/.

Usage: make wheels [WHEELS_FLAGS="--python python3.12 /opt/python3.13/bin/python3 --arch x86_64"]

The wheels run on every Linux with glibc 2.28 or later (manylinux_2_28): zig compiles against the symbols of
that version, so that no container with an old system is needed. It also compiles for other architectures.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GLIBC = "2.28"  # Debian 10, RHEL 8, Ubuntu 18.10
ARCHES = ("x86_64", "aarch64")
VERSIONS = ("3.11", "3.12", "3.13", "3.14")

ABOUT = "import sys, sysconfig; print('%d.%d' % sys.version_info[:2], sysconfig.get_config_h_filename())"


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the wheels and the source distribution in dist/.")
    parser.add_argument("--python", nargs="+", default=found(), help="interpreters to build for")
    parser.add_argument("--arch", nargs="+", default=list(ARCHES), choices=ARCHES)
    parser.add_argument("--dest", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    options.dest.mkdir(parents=True, exist_ok=True)
    source = make_source(options.dest)
    for python in options.python:
        for arch in options.arch:
            make_wheel(source, python, arch, options.dest)
    print(*sorted(options.dest.glob("farcall-*")), sep="\n")


def found() -> list[str]:
    """The supported interpreters that are on the PATH; says which are missing."""
    paths = {version: shutil.which(f"python{version}") for version in VERSIONS}
    for version in (version for version, path in paths.items() if not path):
        print(f"wheels: no python{version} on the PATH: no wheel for it", file=sys.stderr)
    return [path for path in paths.values() if path]


def make_source(dest: Path) -> Path:
    """The source distribution, from which all wheels are built: edits meanwhile are in none of them."""
    with tempfile.TemporaryDirectory() as folder:
        run([sys.executable, "-m", "build", "-q", "--sdist", "--outdir", folder, ROOT])
        (made,) = Path(folder).iterdir()
        return Path(shutil.copy(made, dest))


def make_wheel(source: Path, python: str, arch: str, dest: Path) -> None:
    """Build one wheel, and let auditwheel check what it needs of a system and name it for that."""
    version, config = run([python, "-c", ABOUT]).split()
    print(f"wheels: CPython {version}, {arch}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | environment(version, arch, Path(config), Path(folder))
        run([python, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", folder, source], env)
        (wheel,) = Path(folder).glob("*.whl")
        run([sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", dest, wheel])


def environment(version: str, arch: str, config: Path, folder: Path) -> dict[str, str]:
    """The variables by which the build uses zig, and by which Python and CMake know the architecture."""
    import ziglang

    # Debian's pyconfig.h includes that of the architecture, from a folder that zig does not search. The
    # contents are the same for all 64-bit Linux, as far as Python's headers use them.
    ours, theirs = (f"{name}-linux-gnu/python{version}/pyconfig.h" for name in (platform.machine(), arch))
    real = config.parents[1] / ours
    (folder / theirs).parent.mkdir(parents=True)
    shutil.copy(real if real.exists() else config, folder / theirs)
    return {
        "CFLAGS": f"-I{folder}",
        "CMAKE_TOOLCHAIN_FILE": str(ROOT / "scripts/zig.cmake"),
        "FARCALL_ZIG": str(Path(ziglang.__file__).with_name("zig")),
        "FARCALL_ZIG_TARGET": f"{arch}-linux-gnu.{GLIBC}",
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{version.replace('.', '')}-{arch}-linux-gnu.so",
    }


def run(words: list[str | Path], env: dict[str, str] | None = None) -> str:
    """The output of a command; if it fails, this program ends with that output."""
    text = list(map(str, words))
    done = subprocess.run(
        text, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nwheels: failed: {' '.join(text)}")
    return done.stdout


if __name__ == "__main__":
    main()
