"""A TVM client uploads objects and calls them: ``tvm_linked.py HOST PORT KEY ARCHIVE OBJECT``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import rpc
from tvm_client import caught


def loaded(remote: Any, path: str) -> dict[str, Any]:
    """The result of the file's kernel on the server."""
    name = Path(path).name
    remote.upload(path)
    module = remote.load_module(name)
    x = tvm.runtime.tensor(np.arange(3, dtype="float32"), remote.cpu(0))
    y = tvm.runtime.empty((3,), "float32", remote.cpu(0))
    module["add_one"](x, y)
    linked = bytes(remote.download_linked_module(name))
    return {"add_one": y.numpy().tolist(), "answer": module["answer"](), "linked": linked[:4].hex()}


def main(host: str, port: int, key: str, archive: str, one: str) -> dict[str, Any]:
    remote = rpc.connect(host, port, key=key)
    seen = {"tar": loaded(remote, archive), "o": loaded(remote, one)}
    remote.upload(bytearray(b"no objects"), "text.o")
    seen["no objects"] = caught(lambda: remote.load_module("text.o"))
    return seen


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])))
