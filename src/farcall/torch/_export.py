"""torch's ONNX exporter, called quietly; its failures become :class:`ModelError`."""

from __future__ import annotations

import functools
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

from farcall.errors import ModelError, UsageError
from farcall.torch._dynamic import check_dims, shapes
from farcall.torch._mending import (
    mend_names,
    mend_results,
    mend_weights,
    refuse_wrong,
    with_bfloat16,
)

# They log, as warnings, which packages are not installed, and what the optimizer leaves as it is.
# A failure is in the exception, too.
_LOGGERS = (
    "torch.onnx._internal.exporter._registration",
    "torch.onnx._internal.exporter._core",
    "torch._subclasses.fake_tensor",
    "torch.export._trace",
    "torch.fx.experimental.symbolic_shapes",
    "onnx_ir",
    "onnxscript",
)
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
        The ONNX model. Its weights are those of ``model``, and are not copied yet. It has the results that
        are tensors, in the order in which the model returns them; numbers and None are left out.

    Raises:
        ModelError: torch cannot export the model, the model writes to an input or a buffer, or torch fixed a
            dim that ``dynamic`` names; the message says why.
        UsageError: ``args`` is no sequence, ``dynamic`` names no input of the model, or the model is a
            program, whose dims are fixed.
    """
    if isinstance(args, torch.Tensor):
        raise UsageError("args is a Tensor; expected a tuple of the inputs, such as (x,)")
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    args, named = _split(model, tuple(args), dict(kwargs or {}))
    dims = shapes(model, args, named, dynamic)
    with _evaluating(model):
        exported = to_onnx(model, args, kwargs=named, dynamic_shapes=dims, optimize=True)
    check_dims(exported, args, named, dims, model)
    return exported


def _split(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs with a dict at the end by its name: ``torch.onnx.export`` takes such a dict for kwargs."""
    if not kwargs and args and isinstance(args[-1], dict) and isinstance(model, torch.nn.Module):
        parameters = [*inspect.signature(model.forward).parameters.values()][: len(args)]
        if len(parameters) == len(args) and parameters[-1].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
            return args[:-1], {parameters[-1].name: args[-1]}
    return args, kwargs


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
        _refuse_writes(program.exported_program.graph_signature)
        refuse_wrong(program.exported_program)
        mend_results(program.model, program.exported_program)
        mend_names(program.model)
        mend_weights(program.model)
        return with_bfloat16(program.model)


def _refuse_writes(signature: torch.export.graph_signature.ExportGraphSignature) -> None:
    for name in signature.user_inputs_to_mutate.values():
        raise ModelError(
            f"the model writes to its input `{name}`, and artifacts write to no input; "
            "copy it first, as in x = x.clone(), and return what else the caller needs"
        )
    for name in signature.buffers_to_mutate.values():
        raise ModelError(
            f"the model writes to its buffer `{name}`, and artifacts keep nothing between calls; "
            "make it an input and a result, or export a module in evaluation mode"
        )


@contextmanager
def exporting(problem: str) -> Iterator[None]:
    """Turn an exception of torch into a ModelError with its first cause, and keep the exporter quiet."""
    try:
        with quiet():
            yield
    except ModelError:
        raise
    except Exception as error:  # exporters raise whatever the code that they trace raises
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
        raise ModelError(f"{problem}: {type(cause).__name__}: {' '.join(lines[:2])[:_LONGEST]}") from error


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """The module in evaluation mode, with a ``forward`` that returns its tensors only."""
    if not isinstance(model, torch.nn.Module) or isinstance(model, torch.jit.ScriptModule):
        yield
        return
    training = [part for part in model.modules() if part.training]
    forward, own = model.forward, vars(model).get("forward")

    @functools.wraps(forward)
    def tensors(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        leaves = pytree.tree_leaves(forward(*args, **kwargs))
        return tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))

    for part in training:
        part.training = False
    model.forward = tensors
    try:
        yield
    finally:
        del model.forward
        if own is not None:
            model.forward = own
        for part in training:
            part.training = True


@contextmanager
def quiet() -> Iterator[None]:
    """Without warnings of the exporter and its optimizer about themselves."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
