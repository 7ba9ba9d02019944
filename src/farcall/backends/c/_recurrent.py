"""LSTM, GRU and RNN.

One product computes ``X W`` plus biases for all steps. Each step then needs one product of the state of the
whole batch with R, and one loop over the gates. Threads share each product of a single direction; two
directions are computed one after the other in the same memory, or by two threads. Each writes its part of the
outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from itertools import pairwise

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, c_literal, c_type, itemsize
from farcall.backends.c._activation import Activation, activations
from farcall.backends.c._elements import verify_same, want_same
from farcall.backends.c._gemm import Right, call_gemm, packed_right, plain_left, plain_right
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import (
    Unsupported,
    constant,
    has_input,
    int_attr,
    operand,
    output_used,
    str_attr,
    want_dtypes,
)
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._registry import loops
from farcall.graph.dims import Dim, dims, product


@dataclass(frozen=True)
class _Cell:
    """What the three operators differ in: the number of gates, and the default activations."""

    gates: int
    functions: tuple[str, ...]


_CELLS = {
    "RNN": _Cell(1, ("Tanh",)),
    "GRU": _Cell(3, ("Sigmoid", "Tanh")),
    "LSTM": _Cell(4, ("Sigmoid", "Tanh", "Tanh")),
}
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def _directions(node: ir.Node) -> tuple[bool, ...]:
    """For each direction, whether it goes backwards."""
    name = str_attr(node, "direction", "forward")
    if name not in _DIRECTIONS:
        raise Unsupported(f"direction `{name}`")
    return _DIRECTIONS[name]


def _check(node: ir.Node) -> None:
    given = [i for i in (0, 1, 2, 3, 5, 6, 7) if has_input(node, i)]
    want_dtypes(node, FLOATS, *given)
    cell, count = _CELLS[node.op_type], len(_directions(node))
    activations(node, cell.functions, count)
    if int_attr(node, "layout", 0) not in (0, 1):
        raise Unsupported(f"layout {int_attr(node, 'layout', 0)}")
    for index, shape in _weight_dims(node, cell, count).items():
        want_same(f"input {index}", dims(operand(node, index)), shape)


def _weight_dims(node: ir.Node, cell: _Cell, directions: int) -> dict[int, tuple[Dim, ...]]:
    """The dims of the weights that are given."""
    hidden = dims(operand(node, 2))[-1]
    expected: dict[int, tuple[Dim, ...]] = {
        1: (directions, cell.gates * hidden, dims(operand(node, 0))[-1]),
        2: (directions, cell.gates * hidden, hidden),
        3: (directions, 2 * cell.gates * hidden),
        7: (directions, 3 * hidden),
    }
    return {index: shape for index, shape in expected.items() if has_input(node, index)}


@loops(*_CELLS, check=_check)
def _recurrent(node: ir.Node) -> Iterator[Step]:
    directions = _directions(node)
    functions = activations(node, _CELLS[node.op_type].functions, len(directions))
    each = len(functions) // len(directions)
    kernel, scratch = Kernel(), _Memory()
    with kernel.parallel("d", len(directions), _cost(node)) if len(directions) > 1 else nullcontext():
        for number, backwards in enumerate(directions):
            own = functions[number * each : (number + 1) * each]
            with kernel.block(f"if (d == {number})") if len(directions) > 1 else nullcontext():
                _Direction(kernel, scratch, node, number, backwards, own).write()
    yield kernel.step()


def _cost(node: ir.Node) -> Dim:
    """What a direction costs: the products, most of it."""
    *rows, inner = dims(operand(node, 0))
    hidden = dims(operand(node, 2))[-1]
    return product((*rows, _CELLS[node.op_type].gates, hidden, inner + hidden + ELEMENT))


class _Memory:
    """The scratch memory of a kernel, which the second direction uses again."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def get(self, kernel: Kernel, use: str, dtype: ir.DataType, count: Dim) -> str:
        """The parameter that points to the memory for one use."""
        if use not in self._names:
            self._names[use] = kernel.scratch(dtype, count)
        return self._names[use]


class _Direction:
    """The part of the kernel for one direction.

    Names in C: ``gates`` (X W and biases, for each row of X), ``turn`` (state times R, for each batch),
    ``state`` and ``cell`` (for each batch).
    """

    def __init__(
        self,
        kernel: Kernel,
        scratch: _Memory,
        node: ir.Node,
        number: int,
        backwards: bool,
        functions: Sequence[Activation],
    ) -> None:
        self.kernel, self._memory = kernel, scratch
        self.node, self.number, self.backwards, self.functions = node, number, backwards, functions
        dtype = operand(node, 0).dtype
        assert dtype is not None  # noqa: S101 - checked before
        self.dtype, self.kind = dtype, c_type(dtype)
        self.by_batch = bool(int_attr(node, "layout", 0))
        rows = dims(operand(node, 0))[:2]
        self.batch_dim, self.steps_dim = rows if self.by_batch else rows[::-1]
        self.hidden_dim = dims(operand(node, 2))[-1]
        self.width_dim = _CELLS[node.op_type].gates * self.hidden_dim
        self.steps, self.batch = kernel.dim(self.steps_dim), kernel.dim(self.batch_dim)
        self.hidden, self.width = kernel.dim(self.hidden_dim), kernel.dim(self.width_dim)
        self.count = len(_directions(node))
        self.linear = node.op_type == "GRU" and int_attr(node, "linear_before_reset", 0) != 0

    def write(self) -> None:
        kernel, node = self.kernel, self.node
        for index, shape in _weight_dims(node, _CELLS[node.op_type], self.count).items():
            verify_same(kernel, node, f"input {index}", dims(operand(node, index)), shape)
        self.reset = self._reset()
        gates = _CELLS[node.op_type].gates
        self.r = self._weights(2, self.hidden_dim, [2, 3] if self.reset else [gates])
        self.turn = self._scratch("turn", self.batch_dim, self.width_dim)
        self.state = self._state(5)
        self.cell = self._state(6) if node.op_type == "LSTM" else ""
        self.lengths = self._lengths()
        self.gates = self._all_products()
        self.y = kernel.write(node.outputs[0]) if output_used(node, 0) else ""
        with kernel.loop("s", self.steps):
            self._products_of_step()
            if self.reset:
                self._gru_first_half()
            with kernel.loop("b", self.batch):
                self._row()
                self._compute()
        for index, source in ((1, self.state), (2, self.cell)):
            if output_used(node, index):
                self._final(index, source)

    def _scratch(self, use: str, *counts: Dim) -> str:
        return self._memory.get(self.kernel, use, self.dtype, product(counts))

    def _slice(self, index: int, size: Dim) -> str:
        """A pointer to this direction's part of an operand, which has ``size`` elements."""
        return f"{self.kernel.read(operand(self.node, index))} + {self._part(size)}"

    def _part(self, size: Dim) -> str:
        return "0" if self.number == 0 else f"{self.number} * {self.kernel.dim(size)}"

    def _weights(self, index: int, inner: Dim, ends: Sequence[int]) -> list[Right]:
        """A weight matrix with one column for each unit of each gate, in parts that end behind some gates.

        A constant is packed now.
        """
        kernel, value = self.kernel, operand(self.node, index)
        size = product((self.width_dim, inner))
        parts = pairwise((0, *ends))
        data = constant(value)
        if data is not None:
            columns, units = data[self.number].T, int(self.hidden_dim)
            return [packed_right(kernel, columns[:, first * units : end * units]) for first, end in parts]
        copy = self._scratch(f"columns {index}", size)
        source = self._slice(index, size)
        with kernel.loop("i", kernel.dim(inner)), kernel.loop("j", self.width):
            kernel.line(f"{copy}[i * {self.width} + j] = ({source})[j * {kernel.dim(inner)} + i];")
        return [
            plain_right(self.dtype, f"{copy} + {first} * {self.hidden}", self.width) for first, _ in parts
        ]

    def _state(self, index: int) -> str:
        """A state for each batch, with its initial value, or 0."""
        kernel = self.kernel
        size = product((self.batch_dim, self.hidden_dim))
        state = self._scratch(f"state {index}", size)
        if not has_input(self.node, index):
            kernel.line(f"memset({state}, 0, (size_t){kernel.dim(size)} * {itemsize(self.dtype)});")
            return state
        source = kernel.read(operand(self.node, index))
        with kernel.loop("b", self.batch), kernel.loop("j", self.hidden):
            kernel.line(f"{state}[b * {self.hidden} + j] = {source}[{self._state_row()} + j];")
        return state

    def _state_row(self) -> str:
        """The offset of batch ``b`` in an initial or final state."""
        if self.by_batch:
            return f"(b * {self.count} + {self.number}) * {self.hidden}"
        return f"({self.number} * {self.batch} + b) * {self.hidden}"

    def _final(self, index: int, source: str) -> None:
        target = self.kernel.write(self.node.outputs[index])
        with self.kernel.loop("b", self.batch), self.kernel.loop("j", self.hidden):
            self.kernel.line(f"{target}[{self._state_row()} + j] = {source}[b * {self.hidden} + j];")

    def _reset(self) -> str:
        """For a GRU, the states times their reset gates, which R multiplies."""
        if self.node.op_type != "GRU" or self.linear:
            return ""
        return self._scratch("reset", self.batch_dim, self.hidden_dim)

    def _lengths(self) -> str:
        """The lengths of the sequences, checked; empty if all are as long as X."""
        if not has_input(self.node, 4):
            return ""
        kernel = self.kernel
        lengths = kernel.read(operand(self.node, 4))
        what = f"{self.node.op_type} `{self.node.name or self.node.outputs[0].name}`"
        refusal = kernel.fail("ValueError", f"{what}: a sequence is longer than its input, or negative")
        with kernel.loop("b", self.batch):
            kernel.line(f"if ({lengths}[b] < 0 || {lengths}[b] > {self.steps}) {refusal}")
        return lengths

    def _all_products(self) -> str:
        kernel, x = self.kernel, operand(self.node, 0)
        inner = dims(x)[2]
        (weights,) = self._weights(1, inner, [_CELLS[self.node.op_type].gates])
        rows = product((self.steps_dim, self.batch_dim))
        gates = self._scratch("gates", rows, self.width_dim)
        with kernel.loop("i", kernel.dim(rows)), kernel.loop("j", self.width):
            kernel.line(f"{gates}[i * {self.width} + j] = {self._bias()};")
        a = plain_left(kernel.read(x), kernel.dim(inner))
        sizes = [kernel.dim(rows), self.width, kernel.dim(inner)]
        call_gemm(kernel, self.dtype, sizes, a, weights, (gates, self.width), is_shared=True)
        return gates

    def _bias(self) -> str:
        """The biases of W and R; a linear GRU multiplies the last of R before it adds it."""
        if not has_input(self.node, 3):
            return "0"
        bias = self._slice(3, 2 * self.width_dim)
        both = f"({bias})[j] + ({bias})[{self.width} + j]"
        if self.linear:
            return f"j < 2 * {self.hidden} ? {both} : ({bias})[j]"
        return both

    def _products_of_step(self) -> None:
        kernel = self.kernel
        size = kernel.dim(product((self.batch_dim, self.width_dim)))
        kernel.line(f"memset({self.turn}, 0, (size_t){size} * {itemsize(self.dtype)});")
        self._turn(self.state, self.r[0], "0", f"2 * {self.hidden}" if self.reset else self.width)

    def _turn(self, state: str, r: Right, first: str, columns: str) -> None:
        """Add ``state`` times R, or a part of it, to ``columns`` columns of ``turn``, from ``first`` on."""
        a, c = plain_left(state, self.hidden), (f"{self.turn} + {first}", self.width)
        sizes = [self.batch, columns, self.hidden]
        call_gemm(self.kernel, self.dtype, sizes, a, r, c, is_shared=True)

    def _row(self) -> None:
        """Declare ``x`` (gates), ``u`` (turn), ``h`` (state), ``y``; skip a sequence that has ended."""
        kernel = self.kernel
        length = f"(int64_t){self.lengths}[b]" if self.lengths else self.steps
        if self.lengths:
            with kernel.block(f"if (s >= {length})"):
                if self.y:
                    kernel.line(f"{self.kind}* y = {self.y} + {self._output_row('s')};")
                    kernel.line(f"memset(y, 0, (size_t){self.hidden} * {itemsize(self.dtype)});")
                kernel.line("continue;")
        self._pointers(length)
        if self.y:
            kernel.line(f"{self.kind}* y = {self.y} + {self._output_row('at')};")

    def _pointers(self, length: str) -> None:
        kernel = self.kernel
        kernel.line(f"const int64_t at = {f'{length} - 1 - s' if self.backwards else 's'};")
        row = f"b * {self.steps} + at" if self.by_batch else f"at * {self.batch} + b"
        kernel.line(f"const {self.kind}* restrict x = {self.gates} + ({row}) * {self.width};")
        kernel.line(f"const {self.kind}* restrict u = {self.turn} + b * {self.width};")
        kernel.line(f"{self.kind}* restrict h = {self.state} + b * {self.hidden};")

    def _output_row(self, step: str) -> str:
        if self.by_batch:
            return f"((b * {self.steps} + {step}) * {self.count} + {self.number}) * {self.hidden}"
        return f"(({step} * {self.count} + {self.number}) * {self.batch} + b) * {self.hidden}"

    def _compute(self) -> None:
        {"RNN": self._rnn, "GRU": self._gru, "LSTM": self._lstm}[self.node.op_type]()

    def _apply(self, name: str, function: int, text: str, clipped: bool = True) -> None:
        """Declare ``name``: an activation of ``text``, which is clipped before."""
        kernel = self.kernel
        if clipped and "clip" in self.node.attributes:
            bound = c_literal(float(self.node.attributes["clip"].as_float()), self.dtype)
            kernel.line(f"const {self.kind} wide_{name} = {text};")
            text = f"wide_{name} > {bound} ? {bound} : wide_{name} < -{bound} ? -{bound} : wide_{name}"
        kernel.line(f"const {self.kind} raw_{name} = {text};")
        result = self.functions[function].text(f"raw_{name}", self.dtype)
        kernel.line(f"const {self.kind} {name} = {result};")

    def _gate(self, number: int) -> str:
        place = "j" if number == 0 else f"{number} * {self.hidden} + j"
        return f"x[{place}] + u[{place}]"

    def _emit(self, value: str) -> None:
        self.kernel.line(f"h[j] = {value};")
        if self.y:
            self.kernel.line("y[j] = h[j];")

    def _rnn(self) -> None:
        with self.kernel.loop("j", self.hidden):
            self._apply("n", 0, self._gate(0))
            self._emit("n")

    def _gru_first_half(self) -> None:
        """The reset gate of each batch, and the product of what it leaves of the state."""
        kernel = self.kernel
        with kernel.loop("b", self.batch), ExitStack() as stack:
            length = f"(int64_t){self.lengths}[b]" if self.lengths else self.steps
            if self.lengths:
                kernel.line(f"if (s >= {length}) continue;")
            self._pointers(length)
            stack.enter_context(kernel.loop("j", self.hidden))
            self._apply("r", 0, self._gate(1))
            kernel.line(f"{self.reset}[b * {self.hidden} + j] = r * h[j];")
        self._turn(self.reset, self.r[1], f"2 * {self.hidden}", self.hidden)

    def _gru(self) -> None:
        with self.kernel.loop("j", self.hidden):
            self._apply("z", 0, self._gate(0))
            text = self._gate(2)
            if self.linear:
                self._apply("r", 0, self._gate(1))
                place = f"2 * {self.hidden} + j"
                bias = ""
                if has_input(self.node, 3):
                    bias = f" + ({self._slice(3, 2 * self.width_dim)})[{self.width} + {place}]"
                text = f"x[{place}] + r * (u[{place}]{bias})"
            self._apply("n", 1, text)
            self._emit("(1 - z) * n + z * h[j]")

    def _lstm(self) -> None:
        kernel = self.kernel
        kernel.line(f"{self.kind}* restrict c = {self.cell} + b * {self.hidden};")
        with kernel.loop("j", self.hidden):
            self._apply("i", 0, self._gate(0) + self._peephole(0, "c[j]"))
            if int_attr(self.node, "input_forget", 0):
                kernel.line(f"const {self.kind} f = 1 - i;")
            else:
                self._apply("f", 0, self._gate(2) + self._peephole(2, "c[j]"))
            self._apply("g", 1, self._gate(3))
            kernel.line("c[j] = f * c[j] + i * g;")
            self._apply("o", 0, self._gate(1) + self._peephole(1, "c[j]"))
            # ONNX clips "the input of activations"; onnxruntime, which alone does, leaves the cell as it is.
            self._apply("m", 2, "c[j]", clipped=False)
            self._emit("o * m")

    def _peephole(self, number: int, cell: str) -> str:
        if not has_input(self.node, 7):
            return ""
        weights = self._slice(7, 3 * self.hidden_dim)
        return f" + ({weights})[{number} * {self.hidden} + j] * {cell}"
