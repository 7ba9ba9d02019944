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
            UsageError: there is no such option, or a value is of another type.
        """
        from farcall.rpc import Session

        names = [field.name for field in fields(cls)]
        if not isinstance(given, Mapping | None):
            raise UsageError(f"options: expected a dict, got {type(given).__name__}")
        for name in given or ():
            if name not in names:
                meant = did_you_mean(str(name), names)
                raise UsageError(f"options: there is no option {name!r}{meant}; expected {', '.join(names)}")
        options = cls(**(given or {}))
        for name in ("freeze", "strict"):
            _expect(name, getattr(options, name), bool, "True or False")
        _expect("backends", options.backends, Sequence, 'a list, such as ["c"]')
        if not isinstance(options.on, Session | None):
            raise UsageError(
                f"options: on={options.on!r}: expected a Session, got {type(options.on).__name__}; "
                "open one with farcall.connect(url)"
            )
        return options


def _expect(name: str, value: object, kind: type, meant: str) -> None:
    if not isinstance(value, kind):
        raise UsageError(f"options: {name}={value!r}: expected {meant}, got {type(value).__name__}")
