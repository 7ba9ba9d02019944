"""The README's examples of Signatures and of sessions run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pytest

import farcall as fc
from farcall.errors import ArgumentError

from .programs import blocks_of

KERNEL = """
#include <farcall/kernel.hpp>
float total(farcall::ConstTensorView x) {
  float sum = 0;
  for (int64_t i = 0; i < x.numel(); ++i) sum += x.data_ptr<float>()[i];
  return sum;
}
float half(double x) { return x / 2; }
FARCALL_EXPORT(first, total);
FARCALL_EXPORT(second, half);
FARCALL_EXPORT(main, total);
"""


def block(word: str) -> str:
    """The one block with this word in it."""
    (found,) = [text for text in blocks_of("README.md") if word in text]
    return found


def run(text: str, **names: Any) -> None:
    exec(compile(text, "README.md", "exec", dont_inherit=True), {"fc": fc, **names})  # noqa: S102 - our own text


def test_signatures() -> None:
    fn = fc.Function(lambda ids, mask, scale: np.zeros((len(ids.numpy()), 10), "float32"))
    ids = np.zeros((4, 128), "int64")
    text = block("class Tokens")
    run(text, fn=fn, ids=ids, mask=ids, TypedDict=TypedDict)
    (promised,) = re.findall(r"ArgumentError: (.*?); \.\.\.", text)
    with pytest.raises(ArgumentError, match=re.escape(promised)):
        run(text, fn=fn, ids=ids, mask=ids[:3], TypedDict=TypedDict)


def test_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over unencrypted connections, and with a library that has functions of these names."""
    library = Path(fc.cpp.build_inline("model", cpp_sources=KERNEL))
    text, lines = re.subn(r"connect\(.*\) as", "connect(url, via=[gateway]) as", block("two hops"))
    assert lines == 1
    monkeypatch.chdir(tmp_path)
    Path("model.so").write_bytes(library.read_bytes())
    with fc.rpc.Server() as server, fc.rpc.Server() as gateway:
        run(text, url=server.url, gateway=gateway.url, image=np.ones(4, "float32"))
    assert Path("trace.json").stat().st_size > 0
