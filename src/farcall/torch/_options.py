"""The ``options`` of ``torch.compile(model, backend="farcall", options={...})``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from farcall._suggest import did_you_mean
from farcall.errors import UsageError

if TYPE_CHECKING:
    from farcall.backends.base import Backend
    from farcall.rpc import Session
    from farcall.toolchain import Target


@dataclass(frozen=True)
class Options:
    """What a compiled model is made of, and where it runs. :func:`farcall.torch.backend` describes each."""

    backends: Sequence[str | Backend] | str = ("c",)
    on: Session | None = None
    target: str | Target | None = None
    freeze: bool = True
    strict: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Options:
        """The options that the user gave.

        Raises:
            UsageError: there is no such option, or ``on`` is not a session.
        """
        from farcall.rpc import Session

        names = [field.name for field in fields(cls)]
        for name in given or ():
            if name not in names:
                meant = did_you_mean(name, names)
                raise UsageError(f"options: there is no option {name!r}{meant}; expected {', '.join(names)}")
        options = cls(**(given or {}))
        if not isinstance(options.on, Session | None):
            raise UsageError(
                f"options: on={options.on!r}: expected a Session, got {type(options.on).__name__}; "
                "open one with farcall.connect(url)"
            )
        return options
