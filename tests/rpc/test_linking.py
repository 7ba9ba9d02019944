"""Objects and archives that clients upload: they are linked on the server, in the session's process."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farcall.errors import ArtifactError, ToolchainError
from farcall.rpc import Limits, Server, Session, connect
from farcall.toolchain import Target, find_compiler

from ..programs import hiding_torch, output_of
from ..waiting import SECONDS
from .servers import INIT
from .tvm_processes import HERE, needs_tvm, seen_by


@pytest.fixture(scope="module")
def kernel_object(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """kernels.c, compiled and not linked."""
    output = tmp_path_factory.mktemp("objects") / "kernels.o"
    include = HERE.parents[1] / "include"
    command = find_compiler(Target.host()).command
    arguments = ["-c", "-fPIC", f"-I{include}", str(HERE / "kernels.c"), "-o", str(output)]
    subprocess.run([*command, *arguments], check=True)
    return output


def archive(mode: str, *members: tuple[str, bytes]) -> bytes:
    """A tar file."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as tar:  # type: ignore[call-overload]
        folder = tarfile.TarInfo("objects")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, content in members:
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
    return file.getvalue()


def add_one(session: Session, name: str) -> Any:
    module = session.get_function("tvm.rpc.server.load_module")(name)
    x, y = session.tensor(np.arange(3, dtype="float32")), session.empty((3,), "float32")
    module.get_function("add_one")(x, y)
    return y.numpy().tolist()


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_objects_are_linked_and_loaded(session: Session, kernel_object: Path, mode: str) -> None:
    content = kernel_object.read_bytes()
    session.upload(content, "lib.o")
    session.upload(archive(mode, ("../a/lib0.o", content)), "lib.tar")
    for name in ("lib.o", "lib.tar", "lib.tar"):
        assert add_one(session, name) == [1, 2, 3]
        linked = session.get_function("tvm.rpc.server.download_linked_module")(name)
        session.upload(linked, "linked.so")
        assert add_one(session, "linked.so") == [1, 2, 3]
    assert session.listdir() == ["lib.o", "lib.tar", "linked.so"]  # nothing is left of the linking


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (archive("w", ("lib0.c", b"int x;")), r"lib\.tar: it has 'lib0\.c'; a server links objects"),
        (archive("w"), "an archive without objects"),
        (archive("w:gz", ("a.o", bytes(100_000)))[:60], "not a complete tar archive"),
        (b"no archive", "not a complete tar archive"),
        (b"", "not a complete tar archive"),
    ],
    ids=["a source", "nothing in it", "cut", "text", "no bytes"],
)
def test_what_is_no_archive_of_objects(session: Session, content: bytes, complaint: str) -> None:
    session.upload(content, "lib.tar")
    for name in ("load_module", "download_linked_module"):
        with pytest.raises(ArtifactError, match=complaint):
            session.get_function(f"tvm.rpc.server.{name}")("lib.tar")
    assert session.listdir() == ["lib.tar"]


def test_what_the_linker_refuses(session: Session) -> None:
    session.upload(b"no object", "@lib.o")
    with pytest.raises(ToolchainError, match=r"(?s)could not link it: .*or link it on your side") as raised:
        session.get_function("tvm.rpc.server.load_module")("@lib.o")
    assert session.get_function("test.here")() not in str(raised.value)
    assert session.get_function("test.add")(20, 22) == 42


def test_a_server_without_a_compiler_says_what_to_do(
    kernel_object: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "/no/compiler")
    with Server(init=INIT) as server, connect(server.url, timeout=SECONDS) as session:
        session.upload(kernel_object, "lib.o")
        with pytest.raises(
            ToolchainError, match=r"'/no/compiler', which does not start.*link it on your side"
        ):
            session.get_function("tvm.rpc.server.load_module")("lib.o")


def test_objects_count_among_the_files_of_a_session(kernel_object: Path) -> None:
    content = archive("w:gz", ("a.o", bytes(10_000_000)))
    with (
        Server(init=INIT, limits=Limits(files_bytes=1 << 20)) as server,
        connect(server.url, timeout=SECONDS) as session,
    ):
        session.upload(content, "lib.tar")
        with pytest.raises(OSError, match=r"file 'a\.o' has 10000000 bytes"):
            session.get_function("tvm.rpc.server.load_module")("lib.tar")


# ---- with the real Apache TVM


@pytest.fixture(scope="module")
def tvm_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive that TVM's compiler exports for a device whose linker this machine lacks."""
    path = tmp_path_factory.mktemp("tvm") / "lib.tar"
    output_of(HERE / "tvm_build.py", path, env=hiding_torch())
    return path


@needs_tvm
def test_a_client_of_tvm_loads_what_it_exports_as_objects(server: Server, tvm_archive: Path) -> None:
    one = tvm_archive.with_name("lib0.o")
    with tarfile.open(tvm_archive) as tar:
        content = tar.extractfile("lib0.o")
        assert content is not None
        one.write_bytes(content.read())
    seen = seen_by("tvm_linked.py", server.host, server.port, "k", tvm_archive, one)
    for kind in ("tar", "o"):
        assert seen[kind] == {"add_one": [1, 2, 3], "answer": 42, "linked": b"\x7fELF".hex()}
    assert "could not link it" in seen["no objects"]
