"""Modules of kinds of their own in sessions: the loader is on the server, or travels in the library."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

import farcall as fc
from farcall.errors import ArtifactError
from farcall.library import embed_modules
from farcall.rpc import Session, connect

from ..ffi.module_package import install
from ..tree import ROOT
from ..waiting import SECONDS
from .servers import COMMAND

ADDER = ROOT / "tests/ffi/adder.c"


def library(folder: Path, *modules: fc.Blob) -> str:
    (folder / "embedded.c").write_text(embed_modules(modules))
    return fc.cpp.build("far", sources=[ADDER, folder / "embedded.c"], build_directory=folder / "build")


def test_the_loader_is_on_the_server(session: Session, tmp_path: Path) -> None:
    far = session.load_module(library(tmp_path, fc.Blob("served", 1, b"from far")))
    assert far.get_function("text", query_imports=True)() == "from far"


def test_the_loader_travels_in_the_library(session: Session, tmp_path: Path) -> None:
    far = session.load_module(library(tmp_path, fc.Blob("adder", 1, b"40")))
    assert far.get_function("add", query_imports=True)(2) == 42
    assert far["living"]() == 1


def test_a_saved_module_is_uploaded_and_loaded(session: Session, tmp_path: Path) -> None:
    (tmp_path / "text.served").write_bytes(bytes(fc.Blob("served", 1, b"saved")))
    far = session.load_module(tmp_path / "text.served")
    assert (far.kind, far["text"](), far.inspect_source()) == ("served", "saved", "served")


def test_a_kind_that_the_server_lacks_fails_at_load(session: Session, tmp_path: Path) -> None:
    path = library(tmp_path, fc.Blob("adder", 1, b"1"), fc.Blob("npu", 3, b"", (), "farcall-npu 1.2"))
    with pytest.raises(ArtifactError) as caught:
        session.load_module(path)
    text = str(caught.value)
    assert "no loader for modules of kind `npu`; loaders are there for: " in text
    assert "`served`" in text
    assert "`pip install farcall-npu`" in text


def test_a_version_that_the_server_does_not_read_fails_at_load(session: Session, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"kind `served` \(version 9\): its loader reads versions 1"):
        session.load_module(library(tmp_path, fc.Blob("served", 9, b"")))


def test_the_loader_is_in_a_package_on_the_server(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "number").write_bytes(bytes(fc.Blob("npu", 1, b"42")))
    path = os.pathsep.join([str(install(tmp_path / "site")), *sys.path])
    command = ["env", f"PYTHONPATH={path}", *COMMAND, "--stdio"]
    with connect(f"pipe:{shlex.join(command)}", timeout=SECONDS) as session:
        assert session.load_module(tmp_path / "number")["value"]() == 42
