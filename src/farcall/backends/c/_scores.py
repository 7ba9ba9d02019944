"""What operators of ``ai.onnx.ml`` do to the scores of classes: the attribute post_transform."""

from __future__ import annotations

import onnx_ir as ir

from farcall.backends.c._kernel import Kernel
from farcall.backends.c._node import Unsupported, int_attr, str_attr

TRANSFORMS = (
    "NONE",
    "SOFTMAX",
    "LOGISTIC",
    "SOFTMAX_ZERO",
    "PROBIT",
)  # in the order of TreeEnsemble's numbers

LOGISTIC = """static inline double farcall_logistic(double x) {
  const double y = 1 / (1 + exp(-fabs(x)));
  return x < 0 ? 1 - y : y;
}"""

# Of SOFTMAX_ZERO, a score of 0 stays one.
_SOFTMAX = """static inline void farcall_softmax_scores(double* s, int64_t n, int keeps_zero) {
  double most = n > 0 ? s[0] : 0, sum = 0;
  for (int64_t k = 1; k < n; ++k) most = s[k] > most ? s[k] : most;
  for (int64_t k = 0; k < n; ++k) {
    s[k] = keeps_zero && fabs(s[k]) <= 1e-7 ? s[k] * exp(-most) : exp(s[k] - most);
    sum += s[k];
  }
  for (int64_t k = 0; k < n; ++k) s[k] = sum == 0 ? 0.5 : s[k] / sum;
}"""

# The inverse of the normal distribution, by Winitzki's formula for the inverse of erf.
_PROBIT = """static inline double farcall_probit(double p) {
  const double x = 2 * p - 1, rest = (1 - x) * (1 + x);
  if (rest == 0) return 0;
  const double log_rest = log(rest), v = 2 / (3.14159265358979323846 * 0.147) + 0.5 * log_rest;
  const double y = sqrt(sqrt(v * v - log_rest / 0.147) - v);
  return 1.41421356 * (x < 0 ? -y : y);
}"""


def transform_of(node: ir.Node) -> str:
    """The name of the node's transform.

    Raises:
        Unsupported: There is none with this name.
    """
    if node.op_type == "TreeEnsemble":
        number = int_attr(node, "post_transform", 0)
        name = TRANSFORMS[number] if 0 <= number < len(TRANSFORMS) else str(number)
    else:
        name = str_attr(node, "post_transform", "NONE")
    if name not in TRANSFORMS:
        raise Unsupported(f"post_transform={name}; expected {', '.join(TRANSFORMS)}")
    return name


def transform(kernel: Kernel, name: str, scores: str, count: str) -> None:
    """Write the transform of ``count`` doubles at ``scores``."""
    if name in ("SOFTMAX", "SOFTMAX_ZERO"):
        kernel.file_scope(_SOFTMAX)
        kernel.line(f"farcall_softmax_scores({scores}, {count}, {int(name == 'SOFTMAX_ZERO')});")
    elif name != "NONE":
        kernel.file_scope(LOGISTIC if name == "LOGISTIC" else _PROBIT)
        with kernel.loop("k", count):
            kernel.line(f"{scores}[k] = farcall_{name.lower()}({scores}[k]);")
