"""Tensors of strings: numpy arrays here, and two Arrays in native code, which has no such tensors.

The raw form is ``[shape, texts]``: an Array with the sizes of the axes, and an Array with the strings in
row-major order. It travels in calls and on the wire like any Array.
"""

from __future__ import annotations

import math
from typing import Any

from farcall._extras import import_numpy
from farcall.abi.calls._values import is_numpy

_LARGEST = 2**63 - 1
_MOST_AXES = 32  # that every numpy has


def strings_of(value: Any) -> Any:
    """A numpy array of ``str`` objects: of such an array, of a ``str``, or of nested lists of them.

    Raises:
        TypeError: something in it is not a ``str``, or its lists have several lengths at one level.
        ValueError: a string has no UTF-8, which is what native code gets.
    """
    np = import_numpy("a tensor of strings")
    if is_numpy(value):
        array = value.astype(object)
    elif isinstance(value, str | list | tuple):
        array = np.array(value, dtype=object)
    else:
        raise TypeError("pass a str, a list of them, or an array of them")
    for item in array.ravel().tolist():
        if not isinstance(item, str):
            what = "bytes; decode them" if isinstance(item, bytes) else f"a {type(item).__name__}"
            raise TypeError(f"each element must be a str, and lists must have one length; one is {what}")
        _check_text(item)
    return array


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the string {text[:30]!r} has no UTF-8: {error.reason}") from None


def raw_strings(array: Any) -> list[list[Any]]:
    """The raw form of a numpy array of strings."""
    return [list(array.shape), [str(item) for item in array.ravel().tolist()]]


def strings_from_raw(value: Any) -> Any:
    """The numpy array of ``str`` objects that a raw value is.

    Raises:
        TypeError: it has another form, an element is no text in UTF-8, or there are not as many as its shape
            says.
    """
    np = import_numpy("a tensor of strings")
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise TypeError("expected two Arrays: a shape, and strings")
    shape, texts = value
    if not _is_shape(shape) or not isinstance(texts, list | tuple):
        raise TypeError(f"expected two Arrays: a shape of up to {_MOST_AXES} sizes from 0 on, and strings")
    if math.prod(shape) != len(texts):
        raise TypeError(f"expected as many strings as the shape {list(shape)} has, got {len(texts)}")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"expected a str at {index}, got {type(text).__name__}")
    array = np.empty(len(texts), dtype=object)
    array[:] = texts
    return array.reshape(shape)


def _is_shape(value: Any) -> bool:
    if not isinstance(value, list | tuple) or len(value) > _MOST_AXES:
        return False
    return all(
        isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= _LARGEST for size in value
    )
