"""``farcall inspect``: says what a file is: an artifact, a kernel library or an ONNX model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from farcall._texts import counted
from farcall.cli import _show
from farcall.cli._settings import setting
from farcall.errors import MissingFileError, ModelError, UsageError

if TYPE_CHECKING:
    import onnx

    from farcall.abi import Signature
    from farcall.library import Manifest
    from farcall.library._elf import Elf

_EXPORT, _ABOUT = "__tvm_ffi_", "__tvm_ffi__"  # symbols: of functions, and of what describes them


@click.command("inspect")
@click.argument("file", type=click.Path(path_type=Path))
@setting("json", help="Print one JSON object; of an artifact, the whole manifest.")
def command(file: Path, json_: bool) -> None:
    """Show what FILE is: an artifact, a library of kernels or an ONNX model, with its functions or inputs.

    The command reads and checks the file, but never loads it. The file may be built for another machine.

    \b
    farcall inspect model.so
    farcall inspect model.a
    farcall inspect model.so --json | jq .functions
    farcall inspect model.onnx
    """
    data = _read(file)
    static = data.startswith(b"!<arch>\n")
    if not static and not data.startswith(b"\x7fELF"):
        _model(file, data, json_)
        return
    from farcall.library._loading import examine, examine_static

    elf, manifest = (examine_static if static else examine)(data, str(file))
    if manifest is None:
        _library(file, elf, _symbols(file, elf, data if static else None), json_, static=static)
    else:
        _artifact(file, manifest, json_, static=static)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise MissingFileError(
            f"no such file: {str(file)!r}; name an artifact, a kernel library or an ONNX model"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {str(file)!r}: {error.strerror}; expected a file") from None


# ---- an ONNX model


def _model(file: Path, data: bytes, json_: bool) -> None:
    from farcall._extras import require_compile

    require_compile()
    from farcall.graph._model import parse, what_is

    model = parse(data)
    if model is None:
        kinds = "neither an artifact nor a library of kernels nor an ONNX model"
        raise ModelError(f"{str(file)!r} is {kinds}: {what_is(data)}")
    facts = _model_facts(model, len(data))
    if json_:
        _show.as_json("inspect-model", facts)
        return
    click.echo(f"{file}: an ONNX model, {_show.size(len(data))}")
    opsets = ", ".join(f"{name or 'ai.onnx'} {version}" for name, version in facts["opsets"].items())
    made = " ".join(filter(None, (model.producer_name, model.producer_version)))
    _show.table(
        "Model",
        ("property", "value"),
        [
            ("graph", model.graph.name),
            ("made by", made),
            ("IR version", model.ir_version),
            ("opsets", opsets),
            ("nodes", facts["nodes"]),
            ("operators", counted(facts["operators"])),
            ("constants", len(model.graph.initializer)),
        ],
    )
    values = [("input", value) for value in facts["inputs"]] + [("output", v) for v in facts["outputs"]]
    _show.table(
        "Inputs and outputs", ("", "name", "type"), [(kind, v["name"], v["type"]) for kind, v in values]
    )
    _show.note(f"next: farcall build {file}")


def _model_facts(model: onnx.ModelProto, size: int) -> dict[str, Any]:
    graph = model.graph
    weights = {tensor.name for tensor in graph.initializer}
    return {
        "kind": "model",
        "bytes": size,
        "graph": graph.name,
        "producer": model.producer_name,
        "ir_version": model.ir_version,
        "opsets": {opset.domain: opset.version for opset in model.opset_import},
        "nodes": len(graph.node),
        "operators": dict(Counter(node.op_type for node in graph.node).most_common()),
        "constants": len(graph.initializer),
        "inputs": [_value(value) for value in graph.input if value.name not in weights],
        "outputs": [_value(value) for value in graph.output],
    }


def _value(value: onnx.ValueInfoProto) -> dict[str, str]:
    """The name and type of an input or output: ``float32[batch, 10]``."""
    import onnx

    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return {"name": value.name, "type": (kind or "unknown").removesuffix("_type")}
    tensor = value.type.tensor_type
    dtype = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    if not tensor.HasField("shape"):
        return {"name": value.name, "type": f"{dtype}[...]"}
    dims = [
        dim.dim_param or (str(dim.dim_value) if dim.HasField("dim_value") else "?")
        for dim in tensor.shape.dim
    ]
    return {"name": value.name, "type": f"{dtype}[{', '.join(dims)}]"}


# ---- a library of kernels


def _symbols(file: Path, elf: Elf, static: bytes | None) -> list[str]:
    """What a library defines; ``static``: the bytes of a static one."""
    if static is None:
        return [symbol.name for symbol in elf.dynamic_symbols() if symbol.defined]
    from farcall.library._static import symbols_of

    return symbols_of(static, str(file))


def _library(file: Path, elf: Elf, symbols: list[str], json_: bool, *, static: bool) -> None:
    functions = sorted(
        name.removeprefix(_EXPORT)
        for name in symbols
        if name.startswith(_EXPORT) and not name.startswith(_ABOUT)
    )
    described = [name for name in functions if f"{_ABOUT}metadata_{name}" in symbols]
    size = file.stat().st_size
    if json_:
        facts = {"kind": "library", "bytes": size, "machine": str(elf.header)}
        _show.as_json("inspect-library", facts | {"functions": functions, "described": described})
        return
    kind = "static library" if static else "library" if functions else "shared library"
    what = f"a {kind} of kernels" if functions else f"a {kind} without farcall functions"
    click.echo(f"{file}: {what}, {_show.size(size)}, for {elf.header}")
    if not functions:
        _show.note(
            f"a kernel library exports symbols that begin with {_EXPORT}; see FARCALL_EXPORT in kernel.hpp"
        )
        return
    rows = [(name, "yes" if name in described else "no") for name in functions]
    _show.table("Functions", ("name", "describes its arguments"), rows)
    if static:
        _note_linking(file)
    else:
        _show.note(f"next: farcall stubgen {file}, or farcall call {file} {functions[0]} ARGS")


def _note_linking(file: Path) -> None:
    _show.note(f"next: link it into a program, which includes {file.with_suffix('.h').name}")


# ---- an artifact


_LONGEST = 60  # characters of an expression that a table shows


def _memory_rows(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """The memory of a call: bytes, or expressions of the sizes of the arguments."""
    found = manifest.memory
    if found is None:
        return
    yield "workspace", f"{_amount(found.workspace)} in a call"
    yield "at least", f"{_amount(found.least)}, by any plan"
    yield "results", f"{_amount(found.results)} in a call"
    if found.scratch != 0:
        yield "threads", f"{_amount(found.scratch)} in each beyond the first"


def _amount(amount: int | str) -> str:
    if isinstance(amount, int):
        return _show.size(amount)
    return f"{amount} B" if len(amount) <= _LONGEST else "a formula of the sizes (--json)"


def _artifact(file: Path, manifest: Manifest, json_: bool, *, static: bool) -> None:
    if json_:
        import msgspec

        from farcall.library._manifest import encode

        plain = msgspec.json.decode(encode(manifest))
        _show.as_json(
            "inspect-artifact", {"kind": "artifact", "artifact_bytes": file.stat().st_size, **plain}
        )
        return
    click.echo(f"{file}: an artifact{', a static library' * static}, {_show.size(file.stat().st_size)}")
    facts = [
        ("made by", manifest.producer),
        ("target", " ".join(filter(None, (manifest.target.triple, manifest.target.cpu)))),
        *([("CPU levels", ", ".join(manifest.target.levels))] if manifest.target.levels else []),
        ("model", manifest.model.name),
        ("backends", ", ".join(manifest.backends)),
        ("constants", f"{manifest.constants.count}, {_show.size(manifest.constants.bytes)}"),
        *_memory_rows(manifest),
        ("format", manifest.format),
    ]
    _show.table("Artifact", ("property", "value"), facts)
    for name, function in manifest.functions.items():
        click.echo(f"{name}{function.signature}")
        _show.table(
            f"Function {name}",
            ("", "name", "type", "default", "description"),
            _leaf_rows(function.signature),
        )
    drawn = _drawn(manifest)
    inside = any(region.inside for region in manifest.regions)
    _show.table(
        "Regions",
        ("name", "backend", "nodes>", "operators", *(["inside"] if inside else [])),
        [
            (
                *(region.name, region.backend, region.nodes),
                counted(drawn.get(region.name, region.operators)),
                *([region.inside] if inside else []),
            )
            for region in manifest.regions
        ],
    )
    if static:
        _note_linking(file)
        return
    needed = " ".join(f"--input {name}=FILE.npy" for name in _input_names(manifest))
    _show.note(f"next: farcall run {file} {needed}".rstrip())


def _drawn(manifest: Manifest) -> dict[str, Counter[str]]:
    """How often each pattern and operator occurs in each region, as ``farcall build`` names them.

    They are in the diagram, which an artifact may lack.
    """
    import msgspec

    from farcall.drawing._diagram import Diagram

    try:
        diagram = msgspec.json.decode(manifest.diagram, type=Diagram | None)
    except msgspec.MsgspecError:
        return {}
    found: dict[str, Counter[str]] = {}
    if diagram is not None:
        names = dict(enumerate(region.name for region in diagram.regions))
        for box in diagram.boxes:
            found.setdefault(names.get(box.region, ""), Counter()).update(box.lines[:1])
    return found


def _input_names(manifest: Manifest) -> list[str]:
    main = manifest.functions.get("main")
    return [parameter.name for parameter in main.signature.parameters if parameter.required] if main else []


def _leaf_rows(signature: Signature) -> Iterator[tuple[str, ...]]:
    """One row for each leaf of the arguments and results."""
    import msgspec

    from farcall.abi import TensorSpec
    from farcall.abi._structure import slots

    for parameter in signature.parameters:
        default = "" if parameter.default is msgspec.UNSET else repr(parameter.default)
        leaves = list(slots(parameter.node))
        if not leaves:
            yield "argument", parameter.name, signature.parameter_type(parameter), default, parameter.doc
        for path, index in leaves:
            leaf = signature.inputs[index]
            access = leaf.access if isinstance(leaf, TensorSpec) else "in"
            kind = "argument" if access == "in" else f"argument ({access})"
            yield kind, parameter.name + path, leaf.type, default, parameter.doc
    for path, index in slots(signature.result_node):
        leaf = signature.outputs[index]
        yield "result", leaf.name or f"result{path}", leaf.type, "", ""
