"""SVMRegressor and SVMClassifier: sums over support vectors, and their votes and probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from farcall.backends._ctext import c_literal, c_type
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import Unsupported, int_attr, ints_attr, operand, rank, str_attr, want_dtypes
from farcall.backends.c._registry import loops
from farcall.backends.c._scores import LOGISTIC
from farcall.backends.c._trees import NUMBERS
from farcall.graph.dims import dims, product

_DOUBLE = ir.DataType.DOUBLE
_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")

# The probabilities p of classes whose pairwise ones are r, by Wu, Lin and Weng (2004), algorithm 2. `q` and
# `qp` are memory for k * k and k numbers.
_COUPLING = """static void farcall_couple(int64_t k, const double* r, double* p, double* q, double* qp) {
  for (int64_t t = 0; t < k; ++t) {
    p[t] = 1.0 / (double)k, q[t * k + t] = 0;
    for (int64_t j = 0; j < k; ++j) {
      if (j == t) continue;
      q[t * k + t] += r[j * k + t] * r[j * k + t];
      q[t * k + j] = -r[j * k + t] * r[t * k + j];
    }
  }
  for (int64_t step = 0; step < (k > 100 ? k : 100); ++step) {
    double all = 0, error = 0;
    for (int64_t t = 0; t < k; ++t) {
      qp[t] = 0;
      for (int64_t j = 0; j < k; ++j) qp[t] += q[t * k + j] * p[j];
      all += p[t] * qp[t];
    }
    for (int64_t t = 0; t < k; ++t) error = fabs(qp[t] - all) > error ? fabs(qp[t] - all) : error;
    if (error < 0.005 / (double)k) return;
    for (int64_t t = 0; t < k; ++t) {
      const double d = (all - qp[t]) / q[t * k + t], scale = 1 / (1 + d);
      p[t] += d;
      all = (all + d * (d * q[t * k + t] + 2 * qp[t])) * scale * scale;
      for (int64_t j = 0; j < k; ++j) qp[j] = (qp[j] + d * q[t * k + j]) * scale, p[j] *= scale;
    }
  }
}"""


def _floats(node: ir.Node, name: str) -> np.ndarray:
    given = node.attributes[name].as_floats() if name in node.attributes else []
    return np.array(given, np.float32)


@dataclass(frozen=True)
class _Machine:
    """The vectors of a node, and the kernel function that compares a row with one."""

    vectors: np.ndarray  # (count, features)
    coefficients: np.ndarray  # (sums, count)
    function: str
    gamma: float
    offset: float
    degree: float


def _machine(node: ir.Node, sums: int, count: int) -> _Machine:
    """The machine of a node that adds up ``count`` vectors ``sums`` times; without vectors, it is linear."""
    features = dims(operand(node, 0))[-1]
    coefficients, vectors = _floats(node, "coefficients"), _floats(node, "support_vectors")
    function = str_attr(node, "kernel_type", "LINEAR").upper()
    if not isinstance(features, int):
        raise Unsupported("the number of features is known only at run time")
    if count == 0:
        function, count, vectors, coefficients = "LINEAR", 1, coefficients, np.ones(1, np.float32)
    if function not in _KERNELS:
        raise Unsupported(f"kernel_type={function}; expected {', '.join(_KERNELS)}")
    if len(vectors) != count * features or len(coefficients) != sums * count:
        raise Unsupported(
            f"{len(vectors)} numbers in vectors and {len(coefficients)} coefficients, for {count} vectors of "
            f"{features} features and {sums} sums"
        )
    gamma, offset, degree = (*_floats(node, "kernel_params").tolist(), 0.0, 0.0, 0.0)[:3]
    return _Machine(
        vectors.reshape(count, features), coefficients.reshape(sums, count), function, gamma, offset, degree
    )


def _compare(kernel: Kernel, node: ir.Node, machine: _Machine, target: str) -> None:
    """Write what the kernel function gives for row ``i`` and every vector to ``target``."""
    x, (count, features) = operand(node, 0), machine.vectors.shape
    vectors = kernel.table(machine.vectors)
    kernel.line(f"const {c_type(x.dtype)}* const row = {kernel.read(x)} + i * {features};")
    with kernel.loop("v", str(count)):
        kernel.line("double sum = 0;")
        with kernel.loop("j", str(features)):
            pair = f"(double)row[j], b = (double){vectors}[v * {features} + j]"
            term = "(a - b) * (a - b)" if machine.function == "RBF" else "a * b"
            kernel.line(f"const double a = {pair};\nsum += {term};")
        kernel.line(f"{target}[v] = {_function(machine)};")


def _function(machine: _Machine) -> str:
    """The kernel function of ``sum``, a product or, for RBF, a squared distance."""
    gamma, offset, degree = (c_literal(v, _DOUBLE) for v in (machine.gamma, machine.offset, machine.degree))
    return {
        "LINEAR": "sum",
        "RBF": f"exp(-{gamma} * sum)",
        "SIGMOID": f"tanh({gamma} * sum + {offset})",
        "POLY": f"pow({gamma} * sum + {offset}, {degree})",
    }[machine.function]


def _check(node: ir.Node) -> None:
    want_dtypes(node, NUMBERS, 0)
    if rank(operand(node, 0)) not in (1, 2):
        raise Unsupported(f"rank {rank(operand(node, 0))}; expected rows of features")
    if str_attr(node, "post_transform", "NONE") != "NONE":
        raise Unsupported(f"post_transform={str_attr(node, 'post_transform', 'NONE')}; expected NONE")


def _check_regressor(node: ir.Node) -> None:
    _check(node)
    _machine(node, 1, int_attr(node, "n_supports", 0))
    if len(_floats(node, "rho")) != 1:
        raise Unsupported(f"rho has {len(_floats(node, 'rho'))} elements; expected 1")


@loops("ai.onnx.ml::SVMRegressor", check=_check_regressor)
def _regressor(node: ir.Node) -> Iterator[Step]:
    machine, kernel = _machine(node, 1, int_attr(node, "n_supports", 0)), Kernel()
    q, count = kernel.write(node.outputs[0]), len(machine.vectors)
    found = kernel.scratch(_DOUBLE, count)
    coefficients = kernel.table(machine.coefficients)
    with kernel.loop("i", product(dims(operand(node, 0))[:-1])):
        _compare(kernel, node, machine, found)
        kernel.line(f"double total = {c_literal(_floats(node, 'rho')[0], _DOUBLE)};")
        with kernel.loop("v", str(count)):
            kernel.line(f"total += (double){coefficients}[v] * {found}[v];")
        value = "total > 0 ? 1 : -1" if int_attr(node, "one_class", 0) else "(float)total"
        kernel.line(f"{q}[i] = {value};")
    yield kernel.step()


def _check_classifier(node: ir.Node) -> None:
    _check(node)
    labels, counts = ints_attr(node, "classlabels_ints", []), ints_attr(node, "vectors_per_class", [])
    if len(labels) < 2:
        raise Unsupported("classlabels_ints has fewer than two labels; train the model with integer labels")
    if not counts or len(counts) != len(labels) or min(counts) < 0 or sum(counts) < 1:
        raise Unsupported(f"vectors_per_class={counts} for {len(labels)} classes")
    _machine(node, len(labels) - 1, sum(counts))
    pairs = len(labels) * (len(labels) - 1) // 2
    lengths = {name: len(_floats(node, name)) for name in ("rho", "prob_a", "prob_b")}
    if (
        lengths["rho"] != pairs
        or lengths["prob_a"] != lengths["prob_b"]
        or lengths["prob_a"] not in (0, pairs)
    ):
        raise Unsupported(f"{lengths} elements for {pairs} pairs of classes")


@loops("ai.onnx.ml::SVMClassifier", check=_check_classifier)
def _classifier(node: ir.Node) -> Iterator[Step]:
    """Each pair of classes has a vote. The scores are those of pairs, or the probabilities of classes."""
    labels, counts = ints_attr(node, "classlabels_ints", []), ints_attr(node, "vectors_per_class", [])
    machine, kernel, k = _machine(node, len(labels) - 1, sum(counts)), Kernel(), len(labels)
    chosen, scores = kernel.write(node.outputs[0]), kernel.write(node.outputs[1])
    found, votes = kernel.scratch(_DOUBLE, sum(counts)), kernel.scratch(_DOUBLE, k)
    pairs = kernel.scratch(_DOUBLE, k * (k - 1) // 2)
    names = kernel.table(np.array(labels, np.int64))
    has_shares = len(_floats(node, "prob_a")) > 0
    couple = _couple(kernel, node, k) if has_shares else ()
    with kernel.loop("i", product(dims(operand(node, 0))[:-1])):
        _compare(kernel, node, machine, found)
        _vote(kernel, node, machine, (found, votes, pairs), k)
        kernel.line("int64_t best = 0;")
        kernel.line(f"for (int64_t a = 1; a < {k}; ++a) best = {votes}[a] > {votes}[best] ? a : best;")
        kernel.line(f"{chosen}[i] = {names}[best];")
        if has_shares:
            _write_shares(kernel, couple, pairs, k)
            with kernel.loop("a", str(k)):
                kernel.line(f"{scores}[i * {k} + a] = (float){couple[1]}[a];")
        elif k == 2:
            kernel.line(f"{scores}[i * 2] = (float)-{pairs}[0], {scores}[i * 2 + 1] = (float){pairs}[0];")
        else:
            with kernel.loop("a", str(k * (k - 1) // 2)):
                kernel.line(f"{scores}[i * {k * (k - 1) // 2} + a] = (float){pairs}[a];")
    yield kernel.step()


def _vote(kernel: Kernel, node: ir.Node, machine: _Machine, memory: tuple[str, str, str], k: int) -> None:
    """Write the score of each pair of classes, and a vote for one of the two."""
    found, votes, pairs = memory
    starts = np.cumsum([0, *ints_attr(node, "vectors_per_class", [])])
    first = kernel.table(starts.astype(np.int64))
    rho = kernel.table(_floats(node, "rho"))
    w, total = kernel.table(machine.coefficients), int(starts[-1])
    kernel.line(f"for (int64_t a = 0; a < {k}; ++a) {votes}[a] = 0;\nint64_t pair = 0;")
    with kernel.loop("a", str(k)), kernel.loop("b", str(k), start="a + 1"):
        kernel.line(f"double sum = {rho}[pair];")
        for one, other in (("a", "b - 1"), ("b", "a")):
            with kernel.loop("v", f"{first}[{one} + 1]", start=f"{first}[{one}]"):
                kernel.line(f"sum += (double){w}[({other}) * {total} + v] * {found}[v];")
        kernel.line(f"{pairs}[pair++] = sum;\n{votes}[sum > 0 ? a : b] += 1;")


def _couple(kernel: Kernel, node: ir.Node, k: int) -> tuple[str, ...]:
    """Memory for the probabilities of pairs and classes, and the tables of slopes and offsets of sigmoids."""
    kernel.file_scope(LOGISTIC)
    kernel.file_scope(_COUPLING)
    memory = [kernel.scratch(_DOUBLE, count) for count in (k * k, k, k * k, k)]
    tables = [kernel.table(_floats(node, name)) for name in ("prob_a", "prob_b")]
    return (*memory, *tables)


def _write_shares(kernel: Kernel, couple: tuple[str, ...], pairs: str, k: int) -> None:
    """Write the probabilities of the classes, from those of pairs."""
    r, p, q, qp, slopes, offsets = couple
    kernel.line("pair = 0;")
    with kernel.loop("a", str(k)), kernel.loop("b", str(k), start="a + 1"):
        value = f"{pairs}[pair] * {slopes}[pair] + {offsets}[pair]"
        kernel.line(f"double share = 1 - farcall_logistic({value});\n++pair;")
        kernel.line("share = share > 1e-7 ? (share < 1 - 1e-7 ? share : 1 - 1e-7) : 1e-7;")
        kernel.line(f"{r}[a * {k} + b] = share, {r}[b * {k} + a] = 1 - share;")
    kernel.line(f"farcall_couple({k}, {r}, {p}, {q}, {qp});")
