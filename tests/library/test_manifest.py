"""The manifest: its content, and that no damaged, newer or foreign file reaches dlopen."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from farcall.artifact import Artifact
from farcall.errors import ArtifactError, UsageError
from farcall.library import _loading as loading
from farcall.library._elf import Elf
from farcall.library._loading import check_machine, examine, inspect, load_module
from farcall.library._manifest import (
    CHECKSUM_SECTION,
    DIGEST_SECTION,
    FORMAT,
    MANIFEST_SECTION,
    compute_checksum,
    compute_digest,
    decode,
    encode,
)
from farcall.toolchain import Source, Target, compile_shared

from ..artifact.stub_backend import Stub, model, plan

Change = Callable[[bytearray, Elf], None]


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    """Two backends, two regions, one constant."""
    proto = model(
        [("Neg", "x", "a"), ("Add", "a w", "y")],
        {"x": ["batch", 2]},
        {"y": ["batch", 2]},
        {"w": np.array(1, np.float32)},
        name="tiny",
    )
    return plan(proto, Stub("npu", ["Neg"]), Stub("cpu")).build()


@pytest.fixture
def saved(artifact: Artifact, tmp_path: Path) -> Path:
    return artifact.save(tmp_path / "tiny.so")


def change(path: Path, edit: Change, seal: bool = True) -> None:
    """Edit the library at ``path``; with ``seal``, its checksum and digest are made to hold again."""
    data = bytearray(path.read_bytes())
    elf = Elf(bytes(data))
    edit(data, elf)
    if seal:
        digest, checksum = elf.section(DIGEST_SECTION), elf.section(CHECKSUM_SECTION)
        assert digest is not None
        assert checksum is not None
        data[checksum.offset : checksum.offset + 16] = compute_checksum(bytes(data), checksum, digest)
        data[digest.offset : digest.offset + 32] = compute_digest(bytes(data), digest.offset)
    path.write_bytes(data)


def replace(old: bytes, new: bytes) -> Change:
    """Overwrite a text of the manifest by one of the same length."""
    assert len(old) == len(new)

    def edit(data: bytearray, elf: Elf) -> None:
        section = elf.section(MANIFEST_SECTION)
        assert section is not None
        start = data.index(old, section.offset)
        data[start : start + len(old)] = new

    return edit


def test_what_it_says(saved: Path, artifact: Artifact) -> None:
    manifest = inspect(saved)
    assert manifest == artifact.manifest
    assert manifest.format == FORMAT
    assert manifest.producer.startswith("farcall ")
    assert Target(manifest.target.triple, manifest.target.cpu) == Target.host()
    assert manifest.backends == ("npu", "cpu")
    assert str(manifest.functions["main"].signature) == "(x: float32[batch, 2]) -> float32[batch, 2]"
    assert [(r.name, r.backend, r.nodes, r.operators) for r in manifest.regions] == [
        ("npu_0", "npu", 1, {"Neg": 1}),
        ("cpu_0", "cpu", 1, {"Add": 1}),
    ]
    assert (manifest.constants.count, manifest.constants.bytes) == (1, 4)
    assert (manifest.model.name, manifest.model.opsets, manifest.model.ir_version) == (
        "tiny",
        {"ai.onnx": 20},
        10,
    )
    assert len(manifest.model.sha256) == 64
    assert {"farcall", "onnx", "onnx-ir", "compiler"} <= manifest.versions.keys()


def test_json_goes_there_and_back(artifact: Artifact) -> None:
    assert decode(encode(artifact.manifest), "x") == artifact.manifest


def test_any_truncation_is_refused(saved: Path) -> None:
    data = saved.read_bytes()
    for size in [0, 1, 63, 64, 1000, len(data) // 2, len(data) - 64, len(data) - 1]:
        saved.write_bytes(data[:size])
        with pytest.raises(ArtifactError, match=r"tiny\.so: (truncated|not a shared library)"):
            load_module(saved)


@pytest.mark.parametrize("quickly", [True, False])
def test_any_flipped_bit_is_refused(saved: Path, quickly: bool) -> None:
    data = saved.read_bytes()
    rng = random.Random(7)  # noqa: S311 - which bits, not a secret
    bits = [*range(64 * 8), *(rng.randrange(len(data) * 8) for _ in range(1500))]
    bits += range(8 * (len(data) - 300), 8 * len(data))  # the end of the section table
    for bit in bits:
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ArtifactError):
            examine(bytes(changed), "tiny.so", quickly=quickly)


def test_a_load_reads_the_checksum_and_an_inspection_the_digest(saved: Path) -> None:
    data = saved.read_bytes()
    for name, reader, other in (
        (CHECKSUM_SECTION, load_module, "checksum"),
        (DIGEST_SECTION, inspect, "SHA-256 digest"),
    ):
        section = Elf(data).section(name)
        assert section is not None
        changed = bytearray(data)
        changed[section.offset] ^= 1
        saved.write_bytes(changed)
        with pytest.raises(ArtifactError, match=f"does not match its {other}"):
            reader(saved)
    load_module(saved)  # whose digest is wrong now, and whose checksum counts it as zeros


def test_an_artifact_without_a_checksum_is_checked_by_its_digest(saved: Path) -> None:
    def rename(data: bytearray, _: Elf) -> None:
        start = data.index(CHECKSUM_SECTION.encode())
        data[start : start + 4] = b".not"

    change(saved, rename)
    load_module(saved)
    change(saved, replace(b"cpu_0", b"cpu_1"), seal=False)
    with pytest.raises(ArtifactError, match="does not match its SHA-256 digest"):
        load_module(saved)


@pytest.mark.parametrize("name", [MANIFEST_SECTION, DIGEST_SECTION])
def test_a_lost_section_is_refused(saved: Path, name: str) -> None:
    data = saved.read_bytes()
    for names in ([name], [MANIFEST_SECTION, DIGEST_SECTION]):
        for one in names:
            data = data.replace(one.encode() + b"\0", one.replace("farcall", "forcall").encode() + b"\0")
        with pytest.raises(ArtifactError, match="its manifest is gone"):
            examine(data, "tiny.so")


@pytest.mark.skipif(shutil.which("objcopy") is None, reason="binutils are not installed")
def test_an_artifact_that_was_stripped_of_its_sections_is_refused(saved: Path) -> None:
    names = [flag for name in (MANIFEST_SECTION, DIGEST_SECTION) for flag in ("-R", name)]
    subprocess.run(["objcopy", *names, str(saved)], check=True)
    assert b'"producer":' not in saved.read_bytes()
    with pytest.raises(ArtifactError, match="its manifest is gone"):
        load_module(saved)


def test_a_newer_format_is_refused_with_both_versions(saved: Path) -> None:
    change(saved, replace(b'"format":1,', b'"format":9,'))
    with pytest.raises(ArtifactError, match=r"format 9 \(made by farcall .*\).* formats up to 1"):
        load_module(saved)


@pytest.mark.parametrize(
    ("old", "new"),
    [(b'"format":1', b'"format":x'), (b'"regions"', b'"rEgions"'), (b'"nodes":1', b'"nodes":[')],
)
def test_a_damaged_manifest_is_refused_even_if_the_digest_holds(saved: Path, old: bytes, new: bytes) -> None:
    change(saved, replace(old, new))
    with pytest.raises(ArtifactError, match="manifest is damaged"):
        load_module(saved)


def test_another_c_library_is_refused(saved: Path) -> None:
    here = Target.host().triple
    other = here.replace("-gnu", "-gnx").replace("-musl", "-mush")
    change(saved, replace(here.encode(), other.encode()))
    with pytest.raises(ArtifactError, match=f"built for {other}, this process runs on {here}"):
        load_module(saved)


def test_a_cpu_without_the_features_is_refused(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elf, manifest = examine(saved.read_bytes(), "tiny.so")
    assert manifest is not None
    target = msgspec.structs.replace(manifest.target, cpu="x86-64-v3")
    manifest = msgspec.structs.replace(manifest, target=target)
    monkeypatch.setattr(loading, "host_cpu_flags", lambda: frozenset({"sse2", "avx"}))
    with pytest.raises(ArtifactError, match=r"built for CPUs of level x86-64-v3, this CPU lacks .*avx2.*fma"):
        check_machine(elf.header, manifest, elf.what)


def foreign(data: bytearray, _: Elf) -> None:
    data[18:20] = (22).to_bytes(2, "little")  # s390x


def test_another_architecture_is_refused_with_both_named(saved: Path) -> None:
    here = loading.own_header().architecture
    triple = Target.host().triple
    change(saved, foreign)
    with pytest.raises(ArtifactError, match=f"built for {triple}, this machine is {here}"):
        load_module(saved)
    inspect(saved)  # looking is allowed


def test_a_plain_library_of_another_machine_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plain.so"
    compile_shared([Source("plain.c", "int f(void);\nint f(void) { return 1; }\n")], path)
    change(path, foreign, seal=False)
    with pytest.raises(ArtifactError, match=r"built for s390x, 64-bit, little-endian, this machine is"):
        load_module(path)


def test_no_such_file(tmp_path: Path) -> None:
    for read in (load_module, inspect):
        with pytest.raises(UsageError, match=r"no such file: .*nothing\.so"):
            read(tmp_path / "nothing.so")


def test_a_folder_is_no_library(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        load_module(tmp_path)


def test_an_object_file_is_no_library(tmp_path: Path) -> None:
    compile_shared([Source("plain.c", "int f(void);\nint f(void) { return 1; }\n")], tmp_path / "x.so")
    data = bytearray((tmp_path / "x.so").read_bytes())
    data[16] = 1  # ET_REL
    with pytest.raises(ArtifactError, match="not a shared library; link it with -shared"):
        examine(bytes(data), "x.so")


def test_a_library_without_a_manifest_cannot_be_inspected(tmp_path: Path) -> None:
    compile_shared([Source("plain.c", "int f(void);\nint f(void) { return 1; }\n")], tmp_path / "x.so")
    with pytest.raises(ArtifactError, match="without a manifest"):
        inspect(tmp_path / "x.so")
