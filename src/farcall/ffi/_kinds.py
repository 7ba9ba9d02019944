"""Kinds of modules that installed packages load: entry points of the group ``farcall.modules``."""

from __future__ import annotations

import importlib

from farcall._plugins import installed
from farcall.errors import ArtifactError

_OWN = {  # found without package metadata
    "farcall.onnxruntime": "farcall.library._host_modules",
    "farcall.reference": "farcall.library._host_modules",
    "farcall.remote": "farcall.rpc.client._far_regions",
}


def offered(kind: str) -> list[str]:
    """Import the package that offers a kind, which thereby registers its loader; the core calls this.

    Args:
        kind: the kind of a module that has no loader yet.

    Returns:
        All kinds that packages offer, sorted.

    Raises:
        ArtifactError: the package cannot be imported.
    """
    points = installed("module")
    if kind in _OWN:
        importlib.import_module(_OWN[kind])
    elif point := points.get(kind):
        try:
            point.load()
        except Exception as error:  # whatever the code of another package raises
            package = point.dist.name if point.dist else point.value
            raise ArtifactError(
                f"modules of kind `{kind}` are loaded by the package {package}, which cannot be imported: "
                f"{type(error).__name__}: {error}; install it again"
            ) from error
    return sorted(points)
