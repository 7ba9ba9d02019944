"""TfIdfVectorizer: how often each n-gram of a pool is in a sequence."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from farcall.backends._ctext import c_type
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import (
    Unsupported,
    int_attr,
    ints_attr,
    operand,
    rank,
    str_attr,
    want_dtypes,
)
from farcall.backends.c._registry import loops
from farcall.graph.dims import dims

_D = ir.DataType
_FARTHEST = 2**60  # a longer skip leaves any sequence


def _pool(node: ir.Node) -> dict[int, dict[tuple[int, ...], int]]:
    """Length -> n-gram -> its place in the output. Of equal n-grams, the last counts."""
    pool, starts = ints_attr(node, "pool_int64s", []), ints_attr(node, "ngram_counts", [])
    places, number = ints_attr(node, "ngram_indexes", []), 0
    ends = [*starts[1:], len(pool)]
    if (
        not places
        or min(places) < 0
        or starts != sorted(starts)
        or (starts and not 0 <= starts[0] <= starts[-1] <= len(pool))
    ):
        raise Unsupported("ngram_counts or ngram_indexes that do not fit the pool")
    low, high = int_attr(node, "min_gram_length", 1), int_attr(node, "max_gram_length", 1)
    found: dict[int, dict[tuple[int, ...], int]] = {}
    for length, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        for at in range(start, end - length + 1, length):
            if number >= len(places):
                raise Unsupported("fewer ngram_indexes than n-grams")
            if low <= length <= high:
                found.setdefault(length, {})[tuple(pool[at : at + length])] = places[number]
            number += 1
    return found


def _weights(node: ir.Node) -> list[float] | None:
    """A weight for each place of the output, as the reference and onnxruntime read them."""
    given = node.attributes.get("weights")
    if given is None or str_attr(node, "mode", "") == "TF":
        return None
    weights = [float(item) for item in given.as_floats()]
    if len(weights) < max(ints_attr(node, "ngram_indexes", [])) + 1:
        raise Unsupported("fewer weights than places in the output")
    return weights


def _check(node: ir.Node) -> None:
    want_dtypes(node, {_D.INT32, _D.INT64}, 0)
    if rank(operand(node, 0)) not in (1, 2):
        raise Unsupported(f"rank {rank(operand(node, 0))}")
    if str_attr(node, "mode", "") not in ("TF", "IDF", "TFIDF"):
        raise Unsupported(f"mode `{str_attr(node, 'mode', '')}`")
    _pool(node)
    _weights(node)


@loops("TfIdfVectorizer", check=_check)
def _vectorize(node: ir.Node) -> Iterator[Step]:
    x, out = operand(node, 0), node.outputs[0]
    kernel = Kernel()
    p, q = kernel.read(x), kernel.write(out)
    rows, length, size = (
        kernel.dim(dim) for dim in (*([1] if rank(x) == 1 else []), *dims(x), dims(out)[-1])
    )
    kernel.file_scope(_find(c_type(x.dtype)))
    skips = max(min(int_attr(node, "max_skip_count", 0), _FARTHEST), 0)
    with kernel.loop("r", rows):
        kernel.line(f"const {c_type(x.dtype)}* in = {p} + r * {length};\nfloat* out = {q} + r * {size};")
        with kernel.loop("i", size):
            kernel.line("out[i] = 0;")
        for n, grams in sorted(_pool(node).items()):
            _count(kernel, node, n, grams, length, skips)
        _weigh(kernel, node, size)
    yield kernel.step()


def _count(
    kernel: Kernel, node: ir.Node, n: int, grams: dict[tuple[int, ...], int], length: str, skips: int
) -> None:
    """Count the n-grams of one length, whose elements are 1 to ``skips`` + 1 apart. A 1-gram counts once."""
    names = sorted(grams)
    keys = np.array(names, np.int64).ravel()
    places = np.array([grams[name] for name in names], np.int64)
    pool = kernel.table(keys)
    place = kernel.table(places)
    apart = f"for (int64_t d = 1; d <= {skips + 1 if n > 1 else 1} && d * {n - 1} < {length}; ++d)"
    with kernel.block(apart), kernel.loop("i", f"{length} - d * {n - 1}"):
        find = f"farcall_find_{c_type(operand(node, 0).dtype)}"
        kernel.line(f"const int64_t found = {find}({pool}, {len(names)}, {n}, in + i, d);")
        kernel.line(f"if (found >= 0) out[{place}[found]] += 1;")


def _weigh(kernel: Kernel, node: ir.Node, size: str) -> None:
    """Truncate the counts to 1 (IDF), and scale them."""
    mode, weights = str_attr(node, "mode", ""), _weights(node)
    scale = "1"
    if weights is not None:
        scale = f"{kernel.table(np.array(weights, np.float32))}[i]"
    if mode == "IDF" or weights is not None:
        with kernel.loop("i", size):
            kernel.line(f"out[i] = {'(float)(out[i] > 0)' if mode == 'IDF' else 'out[i]'} * {scale};")


def _find(kind: str) -> str:
    """C source of a binary search for an n-gram whose elements are ``step`` apart; -1 if it is not there."""
    return f"""static int64_t farcall_find_{kind}(
    const int64_t* pool, int64_t count, int64_t n, const {kind}* in, int64_t step) {{
  for (int64_t low = 0; low < count;) {{
    const int64_t middle = low + (count - low) / 2;
    const int64_t* gram = pool + middle * n;
    int64_t i = 0;
    while (i < n && gram[i] == in[i * step]) ++i;
    if (i == n) return middle;
    if (gram[i] < in[i * step]) low = middle + 1;
    else count = middle;
  }}
  return -1;
}}"""
