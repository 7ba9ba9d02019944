"""The errors that farcall defines.

They form two families, by the side that is at fault (as in h11's ``_util.py``):

* :class:`UsageError`: this side made a request that cannot succeed: a missing file, a model that is not ONNX,
  an operator that no backend takes. Change the call, the file or the environment.
* :class:`RemoteError`: the other side of a connection misbehaved, refused or went away.

An argument of the wrong dtype, rank or shape raises Python's own ``TypeError`` or ``ValueError``, in local
and remote calls. Every message names the problem, its place, the expected value, the actual value, and the
cure.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "AccessDeniedError",
    "ArgumentError",
    "ArtifactError",
    "BackendError",
    "CertificateError",
    "ConnectError",
    "ConnectTimeoutError",
    "ConnectionLostError",
    "DeadlineExceededError",
    "FarcallError",
    "IdlError",
    "InvalidHandleError",
    "MissingDataError",
    "MissingExtraError",
    "MissingFileError",
    "MissingFunctionError",
    "ModelError",
    "PermissionDeniedError",
    "ProtocolError",
    "RemoteError",
    "ResultError",
    "ServerBusyError",
    "SignatureError",
    "StatusError",
    "ToolchainError",
    "UnsupportedOperatorError",
    "UsageError",
    "WorkerCrashedError",
]
__dir__ = __all__.copy


_PAGE = "https://farcall.readthedocs.io/en/latest/errors.html"


class FarcallError(Exception):
    """The base class of all errors that farcall defines. Catch it to catch all of them.

    Attributes:
        url: the page that explains this class of errors: cause, example and cure. Tracebacks show it.
    """

    url = _PAGE

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__:  # a subclass of a user has the page of its base class
            cls.url = f"{_PAGE}#{cls.__name__.lower()}"

    # Tracebacks read an error's notes (PEP 678). Made only then, they cost nothing where an error is caught.
    @property
    def __notes__(self) -> list[str]:
        notes: list[str] = self.__dict__.setdefault("__notes__", [f"see: {self.url}"])
        return notes

    @__notes__.setter
    def __notes__(self, notes: list[str]) -> None:
        self.__dict__["__notes__"] = notes


def help_url(error: BaseException) -> str | None:
    """The page that explains an error; None for an error that farcall does not define."""
    return error.url if isinstance(error, FarcallError) else None


class UsageError(FarcallError):
    """The cause is on this side; the message names the cure."""


class MissingFileError(UsageError, FileNotFoundError):
    """A file does not exist on this machine. The message names it, and the kind of file that is expected."""


class ModelError(UsageError):
    """The model cannot be read or is not valid ONNX. Check it with ``python -m onnx.checker MODEL``."""


class MissingDataError(ModelError, MissingFileError):
    """A file with the weights of a model does not exist. It is also a ``FileNotFoundError``.

    The message names the tensor and the file. Copy the file beside the model.
    """


class UnsupportedOperatorError(ModelError):
    """No backend takes a node. The message lists the node, its dtypes and each backend's reason.

    Add a backend that takes it (``backends=[..., "c"]``), or change the model.
    """


class BackendError(UsageError):
    """A backend is not installed, or the code that it generated breaks its contract."""


class IdlError(UsageError):
    """A file of the interface language is not valid.

    The message shows the place, the line, and the cure.

    Attributes:
        path: of the file.
        line: 1 is the first.
        column: 1 is the first.
    """

    def __init__(self, message: str, path: str, line: int, column: int) -> None:
        self.path, self.line, self.column = path, line, column
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.path, self.line, self.column)


class ToolchainError(UsageError):
    """No C compiler was found, or it refused the generated code. The message has the compiler's output."""


class ArtifactError(UsageError):
    """A file is not an artifact that can run here: truncated, corrupted, or built for another machine.

    Build it again with ``farcall build``, for this target.
    """


class SignatureError(UsageError, ValueError):
    """The description of a function (an encoded Signature, or annotations) is broken or inconsistent.

    The message has the position in the description, and the expected text. Wrong values in a call raise
    :class:`ArgumentError` instead.
    """


class ArgumentError(UsageError, TypeError, ValueError):
    """The arguments of a call do not match the function's Signature. The function did not run.

    The message names every wrong leaf by its path. The error is both a ``TypeError`` and a ``ValueError``,
    since one call may have both faults. Change the values, or allow more casts with
    ``function.abi = farcall.abi.FunctionAbi(signature, casting="same_kind")``.

    Attributes:
        problems: one text for each wrong argument.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems, message = _listed(problems, "arguments")
        super().__init__(message)


class ResultError(FarcallError, ValueError):
    """The results of a function do not match its Signature: the function or the Signature is wrong.

    The message names every wrong leaf by its path.

    Attributes:
        problems: one text for each wrong result.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems, message = _listed(problems, "results")
        super().__init__(message)


def _listed(problems: Sequence[str], what: str) -> tuple[tuple[str, ...], str]:
    """Holds problems and their joint message. After a copy, a pickle or a remote call, only the message."""
    if isinstance(problems, str):
        head, *each = problems.split("\n  ")
        return tuple(each) if head == f"{len(each)} wrong {what}:" else (problems,), problems
    message = "\n  ".join([f"{len(problems)} wrong {what}:", *problems]) if len(problems) > 1 else problems[0]
    return tuple(problems), message


class RemoteError(FarcallError):
    """The other side of a connection refused, misbehaved or went away."""


class ConnectError(RemoteError):
    """No session could be opened: no server listens, the key is wrong, or the peer is not a server."""


class AccessDeniedError(ConnectError):
    """The server demands a token or a key, or does not accept the one passed. Ask its owner for one."""


class CertificateError(ConnectError):
    """One side of a TLS connection does not accept the certificate of the other.

    The message says which side, and why: an unknown authority, another name, an expired certificate. Name the
    authority with ``Tls(ca=...)`` or ``--ca``; ``farcall cert`` makes certificates for a trial.
    """


class ServerBusyError(ConnectError):
    """The server has as many sessions open as its limits allow. Retry later.

    ``farcall sessions URL`` lists them; ``farcall serve --sessions`` raises the limit.
    """


class ConnectionLostError(RemoteError):
    """The connection ended before the reply arrived. It is unknown whether the call took effect."""


class WorkerCrashedError(RemoteError):
    """The server's worker process of this session died, for example because a kernel crashed.

    The server still runs: connect again. The session's tensors, modules and files on the server are gone.
    """


class DeadlineExceededError(RemoteError, TimeoutError):
    """A call, a copy or a wait took longer than its limit. It is also a ``TimeoutError``.

    The message names what took too long (in a chain of servers, also the server), the limit, and whether the
    session goes on. Allow more time, or connect again.
    """


class ConnectTimeoutError(ConnectError, DeadlineExceededError):
    """A session could not be opened in the time that ``connect(timeout=...)`` allowed."""


class ProtocolError(RemoteError):
    """The other side sent bytes that the protocol does not allow."""


class InvalidHandleError(RemoteError):
    """A handle does not name an object of its session: it is freed, forged, or of another session."""


class PermissionDeniedError(RemoteError):
    """The session's token lacks the scope that a request needs. Connect with a token that has it."""


class MissingExtraError(UsageError, ImportError):
    """An optional dependency is not installed. The message has the exact ``pip install`` command."""


class MissingFunctionError(UsageError, AttributeError, KeyError):
    """A module or a server has no function of that name. The message suggests similar names.

    It is an ``AttributeError``, for ``module.name``, and a ``KeyError``, for ``module["name"]``.
    """

    __str__ = Exception.__str__  # a KeyError's would quote the message


class StatusError(RemoteError):
    """A method of an interface (:mod:`farcall.idl`) returned a status that is not 0.

    Attributes:
        status: the number. Those of the method's own are in its documentation.
    """

    def __init__(self, message: str, status: int = 1) -> None:
        self.status = status
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.status)
