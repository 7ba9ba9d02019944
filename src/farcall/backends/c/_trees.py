"""TreeEnsemble, TreeEnsembleClassifier and TreeEnsembleRegressor: the votes of decision trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from farcall.backends._ctext import FLOATS, c_type
from farcall.backends.c._forest import Forest, forest_of
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import Unsupported, label, operand, rank, want_dtypes
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._registry import loops
from farcall.backends.c._scores import transform, transform_of
from farcall.graph.dims import dims

_D = ir.DataType
NUMBERS = FLOATS | {_D.INT64, _D.INT32}
_COMPARE = ("<=", "<", ">=", ">", "==", "!=")
_MEMBER = 6


def _check(node: ir.Node) -> None:
    want_dtypes(node, NUMBERS, 0)
    if rank(operand(node, 0)) not in (1, 2):
        raise Unsupported(f"rank {rank(operand(node, 0))}; expected rows of features")
    transform_of(node)
    forest = forest_of(node)
    features = dims(operand(node, 0))[-1]
    if isinstance(features, int) and forest.most_features > features:
        raise Unsupported(f"trees of {forest.most_features} features, for {features} of the input")


@dataclass
class _Writer:
    """Writes the loops over rows and trees; the sums are in ``score``."""

    kernel: Kernel
    node: ir.Node
    forest: Forest

    def table(self, name: str, data: np.ndarray) -> str:
        """A pointer to constants. Places fit in 32 bits."""
        data = data.astype(np.int32) if data.dtype == np.int64 and name != "labels" else data
        return self.kernel.table(data)

    @property
    def cost(self) -> int:
        """What a row costs: of each tree, some steps, whose memory is not in order."""
        return (len(self.forest.roots) * 8 + self.forest.targets) * ELEMENT

    def reserve(self) -> None:
        """Declare memory for the sums of a row, ``score``, and for its results, ``out``."""
        kernel, forest = self.kernel, self.forest
        sums = kernel.scratch(_D.DOUBLE if forest.kind == "double" else _D.FLOAT, forest.targets)
        kernel.line(f"{forest.kind}* const score = {sums};")
        kernel.line(f"double* const out = {kernel.scratch(_D.DOUBLE, forest.targets)};")

    def sum_up(self, x: str) -> None:
        """Follow every tree for the row at ``x``, and aggregate the weights of its leaves."""
        kernel, forest = self.kernel, self.forest
        start = {"MIN": "INFINITY", "MAX": "-INFINITY"}.get(forest.aggregate, "0")
        kernel.line(f"for (int64_t k = 0; k < {forest.targets}; ++k) score[k] = {start};")
        with kernel.loop("tree", str(len(forest.roots))):
            kernel.line(f"int64_t at = {self.table('roots', forest.roots)}[tree];")
            if len(forest.features):
                with kernel.block("while (at >= 0)"):
                    self._step(x)
            offsets = self.table("offsets", forest.offsets)
            with kernel.loop("k", f"{offsets}[-at]", start=f"{offsets}[-1 - at]"):
                target = f"score[{self.table('targets', forest.target_ids)}[k]]"
                kernel.line(f"const {forest.kind} w = {self.table('weights', forest.weights)}[k];")
                kernel.line(f"{target} = {self._combined(target)};")

    def _step(self, x: str) -> None:
        kernel, forest = self.kernel, self.forest
        kernel.line(
            f"const {forest.kind} v = ({forest.kind}){x}[{self.table('features', forest.features)}[at]];"
        )
        split = self.table("splits", forest.splits)
        modes = sorted(set(forest.modes.tolist()))
        tests = [self._test(mode, split) for mode in modes]
        if len(modes) == 1:
            kernel.line(f"_Bool yes = {tests[0]};")
        else:
            kernel.line("_Bool yes = 0;")
            with kernel.block(f"switch ({self.table('modes', forest.modes)}[at])"):
                for mode, test in zip(modes, tests, strict=True):
                    kernel.line(f"case {mode}: yes = {test}; break;")
        if forest.missing.any():
            kernel.line(f"if (v != v && {self.table('missing', forest.missing)}[at]) yes = 1;")
        kernel.line(f"at = yes ? {self.table('yes', forest.yes)}[at] : {self.table('no', forest.no)}[at];")

    def _test(self, mode: int, split: str) -> str:
        if mode != _MEMBER:
            return f"v {_COMPARE[mode]} {split}[at]"
        self.kernel.file_scope(_member_text(self.forest.kind))
        bounds = self.table("sets", self.forest.sets)
        members = self.table("members", self.forest.members)
        return f"farcall_is_member_{self.forest.kind}(v, {members}, {bounds}[2 * at], {bounds}[2 * at + 1])"

    def _combined(self, target: str) -> str:
        if self.forest.aggregate in ("MIN", "MAX"):
            sign = "<" if self.forest.aggregate == "MIN" else ">"
            return f"w {sign} {target} ? w : {target}"
        return f"{target} + w"

    def finish(self) -> None:
        """Set ``out``: the aggregated scores with the base values, in double."""
        kernel, forest = self.kernel, self.forest
        with kernel.loop("k", str(forest.targets)):
            value = "score[k]"
            if forest.aggregate in ("MIN", "MAX"):
                value = "(isinf(score[k]) ? 0 : score[k])"  # a target that no leaf has
            elif forest.aggregate == "AVERAGE":
                value = f"score[k] / {len(forest.roots)}"
            if forest.base is not None:
                value = f"({value} + {self.table('base', forest.base)}[k])"
            kernel.line(f"out[k] = {value};")


def _member_text(kind: str) -> str:
    return f"""static inline int farcall_is_member_{kind}(
    {kind} v, const {kind}* set, int64_t from, int64_t to) {{
  while (from < to && set[from] != v) ++from;
  return from < to;
}}"""


def _begin(node: ir.Node) -> tuple[_Writer, str, str]:
    """The writer, and expressions for the number of rows and the current row."""
    kernel, forest, x = Kernel(), forest_of(node), operand(node, 0)
    features = kernel.dim(dims(x)[-1])
    if not isinstance(dims(x)[-1], int):
        parts = (f"{label(node)}: trees of {forest.most_features} features, for ", features, " of the input")
        kernel.line(f"if ({features} < {forest.most_features}) {kernel.fail_with('ValueError', *parts)}")
    rows = kernel.dim(dims(x)[0]) if rank(x) == 2 else "1"
    return _Writer(kernel, node, forest), rows, f"({kernel.read(x)} + i * {features})"


@loops("ai.onnx.ml::TreeEnsemble", "ai.onnx.ml::TreeEnsembleRegressor", check=_check)
def _regressor(node: ir.Node) -> Iterator[Step]:
    out, (writer, rows, x) = node.outputs[0], _begin(node)
    kernel, count = writer.kernel, writer.forest.targets
    q = kernel.write(out)
    writer.reserve()
    with kernel.parallel("i", rows, writer.cost):
        writer.sum_up(x)
        writer.finish()
        transform(kernel, transform_of(node), "out", str(count))
        with kernel.loop("k", str(count)):
            kernel.line(f"{q}[i * {count} + k] = ({c_type(out.dtype)})out[k];")
    yield kernel.step()


def _check_classifier(node: ir.Node) -> None:
    _check(node)
    labels = node.attributes.get("classlabels_int64s")
    if labels is None or len(labels.as_ints()) < 2:
        raise Unsupported(
            "classlabels_int64s has fewer than two labels; train the model with two classes or more"
        )


@loops("ai.onnx.ml::TreeEnsembleClassifier", check=_check_classifier)
def _classifier(node: ir.Node) -> Iterator[Step]:
    """The class of the largest score. Trees that vote for one of two classes give the score of the second."""
    writer, rows, x = _begin(node)
    kernel, forest = writer.kernel, writer.forest
    labels = writer.table("labels", np.array(node.attributes["classlabels_int64s"].as_ints(), np.int64))
    chosen, scores = kernel.write(node.outputs[0]), kernel.write(node.outputs[1])
    name, count = transform_of(node), forest.targets
    writer.reserve()
    with kernel.parallel("i", rows, writer.cost):
        writer.sum_up(x)
        writer.finish()
        kernel.line("int64_t best = 0;")
        if forest.is_binary:
            is_share = name in ("NONE", "PROBIT") and bool((forest.weights >= 0).all())
            kernel.line(f"best = out[0] > {0.5 if is_share else 0};")
            kernel.line(f"out[1] = out[0], out[0] = {'1 - out[1]' if is_share else '-out[1]'};")
        else:
            kernel.line(f"for (int64_t k = 1; k < {count}; ++k) best = out[k] > out[best] ? k : best;")
        transform(kernel, name, "out", str(count))
        kernel.line(f"{chosen}[i] = {labels}[best];")
        with kernel.loop("k", str(count)):
            kernel.line(f"{scores}[i * {count} + k] = (float)out[k];")
    yield kernel.step()
