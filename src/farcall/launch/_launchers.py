"""The launchers by the scheme of their URLs: farcall's own, and those of installed packages.

::

    [project.entry-points."farcall.launchers"]
    vsock = "acme_vsock:VsockLauncher"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from farcall._plugins import installed
from farcall._suggest import did_you_mean
from farcall.errors import UsageError
from farcall.launch._launcher import Launcher

_FORMS = "local, local:small, emulator:ARCH, ssh://[USER@]HOST[:PORT] or adb://SERIAL"


def launcher_names() -> list[str]:
    """The schemes of all launchers, farcall's first."""
    return [*BUILTIN, *sorted(installed("launcher").keys() - BUILTIN.keys())]


def is_launcher_url(url: str) -> bool:
    """Whether a URL names a device to start a server on, and not a server. ``HOST:PORT`` means a server."""
    scheme, _, rest = url.partition(":")
    return scheme in launcher_names() and not rest.isdigit()


def check_scheme(url: str) -> None:
    """Refuse ``emulatr:hexagon``, which is neither a device nor ``HOST:PORT``.

    Raises:
        UsageError: the scheme resembles that of a launcher.
    """
    scheme, colon, rest = url.partition(":")
    meant = did_you_mean(scheme, launcher_names())
    if colon and meant and not rest.startswith("//") and not rest.isdigit():
        raise UsageError(f"{url!r:.200}: there is no launcher {scheme!r}{meant}; expected {_FORMS}")


def find_launcher(url: str) -> Launcher:
    """The launcher of a URL.

    Raises:
        UsageError: there is no such launcher, or it cannot be used here; the message names the cure.
    """
    if not isinstance(url, str):
        raise UsageError(f"a device's URL is text, not {type(url).__name__}; expected {_FORMS}")
    scheme = url.partition(":")[0]
    if scheme not in launcher_names():
        raise UsageError(
            f"{url!r:.200}: there is no launcher {scheme!r}{did_you_mean(scheme, launcher_names())}; "
            f"expected {_FORMS}"
        )
    return load_launcher(scheme)(url)


@cache
def load_launcher(name: str) -> Callable[[str], Launcher]:
    """The maker of a launcher, by the scheme of its URLs.

    Raises:
        UsageError: the package's entry point cannot be imported, or is not callable.
    """
    if name in BUILTIN:
        return BUILTIN[name]
    point = installed("launcher")[name]
    try:
        made = point.load()
    except Exception as error:  # whatever the code of another package raises
        raise UsageError(
            f"launcher `{name}` ({point.value}) cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not callable(made):
        raise UsageError(
            f"launcher `{name}` ({point.value}): expected a class of farcall.launch.Launcher, "
            f"got {type(made).__name__}"
        )
    return made  # type: ignore[no-any-return]


# ---- the launchers of farcall; each is imported when it is used


def _local(url: str) -> Launcher:
    from farcall.launch._local import LocalLauncher

    return LocalLauncher(url)


def _emulator(url: str) -> Launcher:
    from farcall.launch._local import EmulatorLauncher

    return EmulatorLauncher(url)


def _ssh(url: str) -> Launcher:
    from farcall.launch._ssh import SshLauncher

    return SshLauncher(url)


def _adb(url: str) -> Launcher:
    from farcall.launch._adb import AdbLauncher

    return AdbLauncher(url)


BUILTIN: Mapping[str, Callable[[str], Launcher]] = {
    "local": _local,
    "emulator": _emulator,
    "ssh": _ssh,
    "adb": _adb,
}
