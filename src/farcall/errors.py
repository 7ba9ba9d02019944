"""Every error that farcall raises by its own name.

Two families, split by who is wrong (the rule of h11's ``_util.py``):

* :class:`UsageError` - this side asked for something that cannot be: a missing file, a model that is not
  ONNX, an operator that no backend takes. Change the call, the file or the environment.
* :class:`RemoteError` - the other side of a connection misbehaved, refused or went away.

An argument of the wrong dtype, rank or shape is Python's own ``TypeError`` or ``ValueError``, here and on a
remote Function alike. Every message says what, where, what was expected, what came, and the cure.
"""

from __future__ import annotations

from collections.abc import Sequence


class FarcallError(Exception):
    """Base of all errors that farcall defines. Catch it to catch them all."""


class UsageError(FarcallError):
    """Something on this side is wrong; the message names the cure."""


class ModelError(UsageError):
    """The model cannot be read or is not valid ONNX. Check it with ``python -m onnx.checker MODEL``."""


class UnsupportedOperatorError(ModelError):
    """No backend takes a node. The message lists the node, its dtypes and each backend's reason.

    Add a backend that takes it (``backends=[..., "c"]``), or change the model.
    """


class BackendError(UsageError):
    """A backend is not installed, or what it generated breaks its contract."""


class ToolchainError(UsageError):
    """No C compiler was found, or it refused the generated code. The message holds the compiler's words."""


class ArtifactError(UsageError):
    """A file is not an artifact that can run here: truncated, corrupted, or built for another machine.

    Build it again with ``farcall build``, for this target.
    """


class SignatureError(UsageError, ValueError):
    """What describes a function (a signature in one of its encodings, annotations) is broken or inconsistent.

    The message says where in it, and what was expected there. Nothing is wrong with the values of a call:
    those get :class:`ArgumentError`.
    """


class ArgumentError(UsageError, TypeError, ValueError):
    """The arguments of a call are not what the function's Signature says. Nothing was packed, nothing ran.

    The message names every wrong leaf by its path; :attr:`problems` has them one by one. It is a
    ``TypeError`` and a ``ValueError``, for a call may have both faults. Change the values, or allow casts by
    ``function.abi = farcall.abi.FunctionAbi(signature, casting="same_kind")``.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems, message = _listed(problems, "arguments")
        super().__init__(message)


class ResultError(FarcallError, ValueError):
    """A function's results are not what its Signature says: the function or the Signature is wrong.

    The message names every wrong leaf by its path; :attr:`problems` has them one by one.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems, message = _listed(problems, "results")
        super().__init__(message)


def _listed(problems: Sequence[str], what: str) -> tuple[tuple[str, ...], str]:
    """The problems, and one message of them. From another machine, a copy or a pickle comes the message."""
    if isinstance(problems, str):
        head, *each = problems.split("\n  ")
        return tuple(each) if head == f"{len(each)} wrong {what}:" else (problems,), problems
    message = "\n  ".join([f"{len(problems)} wrong {what}:", *problems]) if len(problems) > 1 else problems[0]
    return tuple(problems), message


class RemoteError(FarcallError):
    """The other side of a connection refused, misbehaved or went away."""


class ConnectError(RemoteError):
    """No session could be opened: nobody listens, the key is wrong, or the peer is no farcall server."""


class AccessDeniedError(ConnectError):
    """The server wants a token, or does not accept the one that was passed. Ask who runs it for one."""


class ConnectionLostError(RemoteError):
    """The connection ended while an answer was awaited. Whether the call took effect is not known."""


class WorkerCrashedError(RemoteError):
    """The server's worker process of this session died (a crash in a kernel, say).

    The server lives on: connect again. What the session held on the server is gone.
    """


class DeadlineExceededError(RemoteError, TimeoutError):
    """Something took longer than it was allowed to: a call, a copy, a wait. It is a ``TimeoutError``.

    The message says who took too long (which server, where a session goes through several), how long it was
    given, and whether the session goes on. Allow more time, or connect again.
    """


class ConnectTimeoutError(ConnectError, DeadlineExceededError):
    """A session could not be opened in the time that ``connect(timeout=...)`` allowed."""


class ProtocolError(RemoteError):
    """The other side sent bytes that the protocol does not allow."""


class InvalidHandleError(RemoteError):
    """A handle names nothing in its session: freed, forged, or of another session."""


class PermissionDeniedError(RemoteError):
    """The session's token lacks the scope that a request needs. Connect with a token that has it."""


class MissingExtraError(UsageError, ImportError):
    """An optional dependency is not installed. The message holds the exact ``pip install``."""
