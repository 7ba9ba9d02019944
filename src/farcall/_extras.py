"""Optional packages: an error names the missing package, and the command that installs it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from farcall.errors import MissingExtraError


def require(extra: str, purpose: str, *packages: str) -> None:
    """Check that optional packages are installed, before code imports them.

    Args:
        extra: the extra of farcall that installs them, such as ``"compile"``.
        purpose: what needs them; the message begins with it.
        packages: the names by which they are imported.

    Raises:
        MissingExtraError: a package is not installed.
    """
    for package in packages:
        if not is_installed(package):
            raise MissingExtraError(
                f"{purpose} needs the package {package}; run: pip install 'farcall[{extra}]'"
            )


def require_compile() -> None:
    """Check that the packages that read models are installed."""
    require("compile", "reading models", "onnx", "onnx_ir", "sympy", "numpy")


def import_numpy(purpose: str) -> Any:
    """The module numpy, which farcall's base works without.

    Args:
        purpose: what needs it; the message begins with it.

    Raises:
        MissingExtraError: numpy is not installed.
    """
    try:
        import numpy
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise MissingExtraError(f"{purpose} needs the package numpy; run: pip install numpy") from None
    return numpy


def is_installed(package: str) -> bool:
    """Whether a package can be imported, by the name with which it is imported."""
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # ValueError: sys.modules has None in its place
        return False
