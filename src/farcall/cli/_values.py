"""Values on the command line: reads arguments, and shows results. Never evaluates code."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from farcall.cli import _show

if TYPE_CHECKING:
    import numpy as np

_SHOWN = 1000  # elements of a tensor in `--json`; `--output` writes all of them


def read(text: str) -> Any:
    """The value of an argument.

    ``@x.npy`` is the array in a file; ``3``, ``0.5``, ``true``, ``null``, ``[1, 2]`` and ``"text"`` are JSON;
    any other text is itself.

    Raises:
        click.BadParameter: the file is not an array.
    """
    if text.startswith("@"):
        return load_array(text[1:])
    try:
        return json.loads(text, parse_constant=float)
    except (ValueError, RecursionError):
        return text


def load_array(file: str) -> np.ndarray:
    """The array in a .npy file.

    Raises:
        click.BadParameter: there is no such file, or it holds no array.
    """
    import numpy as np

    try:
        array = np.load(file, allow_pickle=False)
    except FileNotFoundError:
        raise click.BadParameter(f"no such file: {file}; write an array into it with numpy.save") from None
    except OSError as error:
        raise click.BadParameter(f"{file}: {error.strerror or error}") from None
    except (ValueError, EOFError) as error:  # numpy advises to load it as a pickle, which could run code
        if str(error).startswith("Object arrays"):
            problem = "holds Python objects; save an array of numbers, such as x.astype('float32')"
        else:
            problem = "is not a .npy array; write it with numpy.save"
        raise click.BadParameter(f"{file} {problem}") from None
    if not isinstance(array, np.ndarray):
        raise click.BadParameter(f"{file} holds several arrays; save one array in it")
    return array


def _tensor(value: Any) -> Any:
    """The numpy array of a tensor; None for another value."""
    if hasattr(value, "numpy"):
        return value.numpy()
    return value if hasattr(value, "__array_interface__") else None


def plain(value: Any) -> Any:
    """A result as JSON has it. A tensor is an object with its dtype, shape and (if it is small) data."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes | bytearray):
        return {"base64": base64.b64encode(value).decode()}
    if (array := _tensor(value)) is not None:
        facts = {"dtype": str(array.dtype), "shape": list(array.shape)}
        return facts | ({"data": array.tolist()} if array.size <= _SHOWN else {})
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) or type(value).__name__ == "Shape":
        return [plain(item) for item in value]
    return repr(value)


def shown(value: Any) -> str:
    """A result for people."""
    if (array := _tensor(value)) is not None:
        return f"{array.dtype}[{', '.join(map(str, array.shape))}] {_show.size(array.nbytes)}\n{array}"
    return value if isinstance(value, str) else json.dumps(plain(value))


def save(path: Path, value: Any) -> None:
    """Write a tensor as a .npy file, bytes as they are, and any other value as JSON.

    Raises:
        UsageError: the file cannot be written.
    """
    from farcall._files import write_beside

    write_beside(path, _contents(value))


def _contents(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if (array := _tensor(value)) is None:
        return f"{json.dumps(plain(value))}\n".encode()
    import io

    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()
