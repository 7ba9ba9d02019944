"""torch's ONNX exporter, called quietly; its failures become :class:`ModelError`."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch

from farcall.errors import ModelError

# They log, as warnings, which packages are not installed, and what the optimizer leaves as it is.
_LOGGERS = ("torch.onnx._internal.exporter._registration", "onnx_ir", "onnxscript")
_LONGEST = 400  # characters of a message of torch


def export(
    model: torch.nn.Module | torch.export.ExportedProgram,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Mapping[str, Any] | Sequence[Any] | None = None,
) -> ir.Model:
    """Export a model for inference, as :func:`farcall.partition` takes it.

    ::

        model = farcall.torch.export(net, (image,), dynamic_shapes={"image": {0: "batch"}})
        fc.partition(model, backends=["c"]).build().save("net.so")

    Args:
        model: a module, which is exported as in its evaluation mode and stays in its own; or a program of
            ``torch.export.export``.
        args: example inputs. Their shapes and dtypes matter, their values do not.
        kwargs: example inputs by name.
        dynamic_shapes: the dims that vary, for each input: ``{"image": {0: "batch"}}``, or what else
            ``torch.onnx.export`` takes. All other dims are constants.

    Returns:
        The ONNX model. Its weights are those of ``model``, and are not copied yet.

    Raises:
        ModelError: torch cannot export the model; the message says why.
    """
    with _evaluating(model):
        return to_onnx(model, tuple(args), kwargs=kwargs, dynamic_shapes=dynamic_shapes, optimize=True)


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
    exported: ir.Model = program.model
    return exported


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
