"""torch's ONNX exporter, called quietly; its failures become :class:`ModelError`."""

from __future__ import annotations

import inspect
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
import torch.utils._pytree as pytree

from farcall._suggest import did_you_mean
from farcall.errors import ModelError, UsageError
from farcall.torch._mending import mend_results, mend_weights, with_bfloat16

# They log, as warnings, which packages are not installed, and what the optimizer leaves as it is.
_LOGGERS = ("torch.onnx._internal.exporter._registration", "onnx_ir", "onnxscript")
_LONGEST = 400  # characters of a message of torch


def export(
    model: torch.nn.Module | torch.export.ExportedProgram,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic: bool | Mapping[str, Any] | Sequence[Any] = False,
) -> ir.Model:
    """Export a model for inference, as :func:`farcall.partition` takes it.

    ::

        model = farcall.torch.export(net, (image,), dynamic={"image": {0: "batch"}})
        fc.partition(model, backends=["c"]).build().save("net.so")

    Args:
        model: a module, which is exported as in its evaluation mode and stays in its own; or a program of
            ``torch.export.export``.
        args: example inputs. Their shapes and dtypes matter, their values do not.
        kwargs: example inputs by name.
        dynamic: the dims that vary. ``{"image": {0: "batch"}}`` names those of some inputs, as
            ``dynamic_shapes`` of ``torch.export.export`` does, and dims of the same name have the same size.
            True: all dims above 1 that the model lets vary, with names that torch chooses. False: none.

    Returns:
        The ONNX model. Its weights are those of ``model``, and are not copied yet.

    Raises:
        ModelError: torch cannot export the model; the message says why.
        UsageError: ``dynamic`` names no input of the model, or the model is a program, whose dims are fixed.
    """
    options = {"kwargs": kwargs, "dynamic_shapes": _shapes(model, args, kwargs or {}, dynamic)}
    with _evaluating(model):
        return to_onnx(model, tuple(args), optimize=True, **options)


def _shapes(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic: Any) -> Any:
    """``dynamic`` as torch takes it: with an entry for each input."""
    if dynamic is False or dynamic is None:
        return None
    if not isinstance(model, torch.nn.Module):
        raise UsageError(
            "dynamic is for modules, and this is a program, whose dims are fixed; "
            "give dynamic_shapes to torch.export.export"
        )
    if dynamic is not True and not isinstance(dynamic, Mapping):
        return dynamic
    try:
        given = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    except TypeError as error:
        raise UsageError(f"the example inputs are not those of the model: {error}") from error
    if dynamic is True:
        return {name: pytree.tree_map(_all_dims, value) for name, value in given.items()}
    for name in dynamic:
        if name not in given:
            raise UsageError(
                f"dynamic names `{name}`{did_you_mean(name, given)}; the inputs are {', '.join(given)}"
            )
    return {name: dynamic.get(name) for name in given}


def _all_dims(value: Any) -> Any:
    """The dims of an example that may vary: torch takes one of 1 for broadcasting."""
    if not isinstance(value, torch.Tensor):
        return None
    return {axis: torch.export.Dim.AUTO for axis, size in enumerate(value.shape) if size > 1}


def load_program(path: str | os.PathLike[str]) -> ir.Model:
    """Read what ``torch.export.save`` wrote (``.pt2``), and export it as :func:`export` does.

    Load only files that you trust: torch makes objects of a program's metadata.

    Args:
        path: the file.

    Returns:
        The ONNX model, named after the file. Dims that vary in the program are symbols.

    Raises:
        ModelError: torch cannot read the file, or cannot export the program.
    """
    with exporting(f"torch cannot read the program `{path}`"):
        program = torch.export.load(path)
    model = export(program)
    model.graph.name = Path(path).stem
    return model


def to_onnx(model: Any, args: tuple[Any, ...] = (), **options: Any) -> ir.Model:
    """Call ``torch.onnx.export``, and return the model that it makes.

    Raises:
        ModelError: torch cannot export the model.
    """
    with exporting("torch.onnx cannot export the model"):
        program = torch.onnx.export(model, args, dynamo=True, verbose=False, **options)
        mend_results(program.model, program.exported_program)
        mend_weights(program.model)
        return with_bfloat16(program.model)


@contextmanager
def exporting(problem: str) -> Iterator[None]:
    """Turn an exception of torch into a ModelError with its first cause, and keep the exporter quiet."""
    try:
        with quiet():
            yield
    except Exception as error:  # exporters raise whatever the code that they trace raises
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
        raise ModelError(f"{problem}: {type(cause).__name__}: {' '.join(lines[:2])[:_LONGEST]}") from error


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    parts = model.modules() if isinstance(model, torch.nn.Module) else ()
    training = [part for part in parts if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


@contextmanager
def quiet() -> Iterator[None]:
    """Without warnings of the exporter and its optimizer about themselves."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
