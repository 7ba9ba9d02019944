"""The specifications have the numbers of the code. Their examples run in test_pages.py."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec.inspect
import pytest

from farcall import _core
from farcall.abi import ListSpec, RefSpec, ScalarSpec, TensorSpec
from farcall.drawing._diagram import Diagram
from farcall.library._manifest import DIGEST_SECTION, FORMAT, MANIFEST_SECTION, RUNTIME_SYMBOL, Manifest
from farcall.rpc import Limits, Server, connect
from farcall.rpc.shared._handshake import client_hello

from .library.test_format1 import structures
from .native.small_server import named, small_server
from .test_docs import DOCS
from .tree import ROOT
from .waiting import SECONDS

WIRE = (DOCS / "spec/wire.md").read_text()


def table(head: str) -> list[list[str]]:
    """The rows of the table of the wire page that begins with this head."""
    _, _, rest = WIRE.partition(f"\n{head}\n")
    assert rest, head
    rows = rest.partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def header(name: str) -> str:
    return (ROOT / "include/farcall" / name).read_text()


def test_packets_have_the_codes_of_the_codec() -> None:
    rows = table("| code | name | direction | body | reply |")
    shown = {
        name: int(code)
        for row in rows
        for code, name in zip(row[0].split(", "), row[1].split(", "), strict=True)
    }
    _, *names = re.findall(r'"(k[A-Z]\w+)"[,}]', header("wire.h"))
    assert shown == {name: code for code, name in enumerate(names, 1)}


def test_values_have_the_types_of_the_abi() -> None:
    names = {
        **{name.lower(): {name} for name in ("None", "Int", "Bool", "Float", "Device", "Function", "Module")},
        "pointer: a handle, a stream": {"OpaquePtr"},
        "dtype": {"DataType"},
        "tensor": {"DLTensorPtr"},
        "text": {"RawStr", "SmallStr", "Str"},
        "bytes": {"ByteArrayPtr", "SmallBytes", "Bytes"},
    }
    code_of = {name: int(code) for name, code in re.findall(r"kTVMFFI(\w+) = (\d+)", header("c_api.h"))}
    shown: dict[str, set[int]] = {}
    for codes, name, _ in table("| type | name | bytes |"):
        shown.setdefault(name, set()).update(map(int, codes.split(", ")))
    assert shown.pop("other object") == {115}
    assert shown == {name: {code_of[kind] for kind in kinds} for name, kinds in names.items()}


def test_the_handshake_is_that_of_the_code() -> None:
    codes = [int(row[0].strip("`"), 16) for row in table("| code | meaning |")]
    assert codes == [_core.HANDSHAKE[name] for name in ("magic", "duplicate", "mismatch")]
    sent = client_hello("board", "alice.secret", 2.5).decode("latin-1")
    for option, *_ in table("| option | meaning |"):
        assert re.search(rf" {option.strip('`').partition('=')[0]}=\S+", sent)


def test_the_version_and_the_limits_are_those_of_the_code() -> None:
    assert f"the version `{_core.PROTOCOL_VERSION}`" in WIRE
    limits = Limits()
    assert limits.control_bytes == 64 << 10 and limits.call_bytes == limits.string_bytes == 1 << 30
    assert limits.copy_bytes == 16 << 30
    assert f"{limits.values} values, {limits.rank} dims" in " ".join(WIRE.split())
    assert f"accepts n up to {limits.key_bytes} and waits {limits.handshake_seconds:g} s" in WIRE


def features_of_the_page() -> set[str]:
    return set(re.findall(r"^### Feature `(\w+)`", WIRE, re.MULTILINE))


def test_a_server_has_the_standard_functions_and_the_features_of_the_page() -> None:
    names = [row[0].strip("`") for row in table("| name | arguments and result |")]
    with Server() as server, connect(server.url, timeout=SECONDS) as session:
        for name in names:
            assert session.get_function(name)
        # `spans` needs OpenTelemetry in the server's process.
        assert session.features | {"spans"} == features_of_the_page() - {"packets"}


def test_the_small_server_has_features_of_the_page(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    program = " ".join([*small_server(named("x86_64"), tmp_path_factory), "--stdio"])
    basic = {"callbacks", "promises", "trace"}
    assert basic | {"files", "packets"} <= features_of_the_page()
    for option, more in (("", set()), (f"--workpath {tmp_path}", {"files"}), ("--packet 64K", {"packets"})):
        with connect(f"pipe:{program} {option}", timeout=SECONDS) as session:
            assert session.features == basic | more


# ---- the artifact

ARTIFACT = (DOCS / "spec/artifact.md").read_text()


def fields_on_the_page() -> dict[str, dict[str, str]]:
    """The fields of each structure, and how the page describes their types."""
    found: dict[str, dict[str, str]] = {}
    kind = ""
    for row in re.findall(r"^\|(.*)\|$", ARTIFACT, re.MULTILINE):
        cells = [cell.strip() for cell in row.split("|")]
        if len(cells) != 4 or cells[0] in ("structure", "`leaf`", "`node`", "---"):
            continue
        kind = cells[0].strip("`").removeprefix("(").removesuffix(")") or kind
        for field in re.findall(r"`(\w+)`", cells[1]) or [""]:
            found.setdefault(kind, {})[field] = cells[2]
    return found


def test_the_manifest_has_the_fields_of_the_page() -> None:
    shown = fields_on_the_page()
    leaves = [msgspec.inspect.type_info(kind) for kind in (TensorSpec, ScalarSpec, RefSpec, ListSpec)]
    today = structures(msgspec.inspect.type_info(Manifest), {}).values()
    drawing = structures(msgspec.inspect.type_info(Diagram), {}).values()
    for structure in (*today, *leaves, *drawing):
        tag = structure.tag or structure.cls.__name__
        described = shown["absent" if structure.cls is TensorSpec else tag]
        described.pop("", None)
        assert set(described) == {field.encode_name for field in structure.fields}, tag
        for field in structure.fields:
            assert ("default" in described[field.encode_name]) is not field.required, (tag, field.encode_name)


def test_the_sections_are_those_of_the_code() -> None:
    for name in (MANIFEST_SECTION, DIGEST_SECTION, RUNTIME_SYMBOL):
        assert f"| `{name}` |" in ARTIFACT
    assert f"specifies format {FORMAT} of it" in ARTIFACT
