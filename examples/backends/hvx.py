"""An example backend for the vector unit of Hexagon (HVX): products of uint8 activations and int8 weights.

Its instruction vrmpy multiplies 128 unsigned bytes by 128 signed ones, and adds each four neighbours to one
of 32 sums. Use it with ``backends=[HvxBackend(), "c"]`` and ``target="hexagon-linux-musl:hexagonv67"``.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from farcall.backends.c_backend_kit import CBackendKit, RegionWriter
from farcall.graph import Match
from farcall.graph.dims import dims

# y[row][j] sums, over k, the four bytes of words[row][k] times those of vectors[k][j]. The macro's arguments
# say which of the two is unsigned (activations), which signed (weights). Windows lie as [k][pixel][4].
CODE = """typedef long hvx __attribute__((vector_size(128)));
#define FARCALL_HVX(name, UNSIGNED, SIGNED) \\
static void name(int rows, int n, int depth, const uint8_t* words, const uint8_t* vectors, int32_t* y) { \\
  for (int row = 0; row < rows; ++row) for (int j = 0; j < n; j += 32) { \\
    hvx sum = {0}; for (int k = 0; k < depth; ++k) { \\
      int32_t four; memcpy(&four, words + (row * depth + k) * 4, 4); \\
      const hvx word = __builtin_HEXAGON_V6_lvsplatw_128B(four); \\
      hvx vector; memcpy(&vector, vectors + (k * ((n + 31) / 32 * 32) + j) * 4, sizeof vector); \\
      sum = __builtin_HEXAGON_V6_vrmpybusv_acc_128B(sum, UNSIGNED, SIGNED); \\
    } \\
    memcpy(y + row * n + j, &sum, (n - j < 32 ? n - j : 32) * sizeof *y); \\
  } \\
}
FARCALL_HVX(farcall_hvx_dense, word, vector) FARCALL_HVX(farcall_hvx_conv, vector, word)
static void farcall_hvx_windows(int h, int w, int rows, int columns, const int16_t* taps, int count,
    int wide, int sy, int sx, const uint8_t* x, uint8_t* to) {
  for (int k = 0; k < count; ++k) for (int i = 0; i < rows; ++i) for (int j = 0; j < columns; ++j) {
    const int a = i * sy + taps[3 * k + 1], b = j * sx + taps[3 * k + 2], at = k / 4 * wide + i * columns + j;
    to[at * 4 + k % 4] = a < 0 || a >= h || b < 0 || b >= w ? 0 : x[(taps[3 * k] * h + a) * w + b];
  }
}"""


def padded(data: np.ndarray, *steps: int) -> np.ndarray:
    """``data`` with zeros behind each axis, up to a multiple of its step."""
    return np.pad(data, [(0, -size % step) for size, step in zip(data.shape, steps, strict=True)])


class HvxBackend(CBackendKit):
    """Takes MatMulInteger and ConvInteger with constant int8 weights, no zero points, and fixed sizes."""

    name = "hvx"
    compile_flags = ("-mcpu=hexagonv67+hvx+hvxv67+hvx_length128b",)

    def check(self, node: ir.Node) -> str | None:
        if node.op_type not in ("MatMulInteger", "ConvInteger"):
            return "only MatMulInteger and ConvInteger"
        (x, w), given = node.inputs[:2], node.attributes
        if x.dtype != ir.DataType.UINT8 or w.dtype != ir.DataType.INT8 or w.const_value is None:
            return "only uint8 times constant int8"
        if any(node.inputs[2:]) or not all(isinstance(d, int) for d in dims(x)[1:]):
            return "no zero points, and only the batch may vary"
        plain = given.get_int("group", 1) == 1 and set(given.get_ints("dilations", [1])) == {1}
        plain = plain and given.get_string("auto_pad", "NOTSET") == "NOTSET"
        rank = 2 if node.op_type == "MatMulInteger" else 4
        return None if len(dims(x)) == len(dims(w)) == rank and plain else "only matrices, and plain 2-d Conv"

    def emit(self, match: Match, out: RegionWriter) -> None:
        out.file_scope(CODE)
        (self.conv if match.root.op_type == "ConvInteger" else self.dense)(match.root, out)

    def dense(self, node: ir.Node, out: RegionWriter) -> None:
        """Words are four activations of a row; the weights lie as [depth][column][4]."""
        x, y, weight = node.inputs[0], node.outputs[0], node.inputs[1].const_value.numpy()
        (size, n), depth = weight.shape, -(-len(weight) // 4)
        quads = padded(weight, 4, 32).view(np.uint8).reshape(depth, 4, -1).transpose(0, 2, 1)
        row = out.scratch(ir.DataType.UINT8, depth * 4)
        with out.loop("i", dims(x)[0]):
            out.line(f"memset({row}, 0, {depth * 4});\nmemcpy({row}, {out.pointer(x)} + i * {size}, {size});")
            sums = f"1, {n}, {depth}, {row}, {out.constant(quads)}"
            out.line(f"farcall_hvx_dense({sums}, {out.pointer(y)} + i * {n});")

    def conv(self, node: ir.Node, out: RegionWriter) -> None:
        """Words are four weights of a filter; each pixel's window is one column of the vectors."""
        x, y, weight = node.inputs[0], node.outputs[0], node.inputs[1].const_value.numpy()
        (_, channels, height, width), (filters, rows, columns) = dims(x), dims(y)[1:]
        words = padded(weight.reshape(filters, -1), 1, 4).view(np.uint8)
        top, left = node.attributes.get_ints("pads", [0] * 4)[:2]
        sy, sx = node.attributes.get_ints("strides", [1, 1])
        taps = np.indices(weight.shape[1:], np.int16).reshape(3, -1).T - np.array([0, top, left], np.int16)
        wide = -(-rows * columns // 32) * 32
        windows = out.scratch(ir.DataType.UINT8, size := words.shape[1] * wide)
        at = f"{height}, {width}, {rows}, {columns}, {out.constant(taps)}, {len(taps)}, {wide}, {sy}, {sx}"
        with out.loop("n", dims(x)[0]):
            image = f"{out.pointer(x)} + n * {channels * height * width}, {windows}"
            out.line(f"memset({windows}, 0, {size});\nfarcall_hvx_windows({at}, {image});")
            sums = f"{filters}, {rows * columns}, {words.shape[1] // 4}, {out.constant(words)}, {windows}"
            out.line(f"farcall_hvx_conv({sums}, {out.pointer(y)} + n * {filters * rows * columns});")
