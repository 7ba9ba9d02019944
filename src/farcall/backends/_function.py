"""Writes a region's exported function: prologue and body. A long body is split into parts.

The time that compilers take grows faster than the length of a function. So a body of thousands of calls is
split into static functions. Each takes the addresses of the tensors, the workspace and all sizes, and
declares the variables that it uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources

from farcall.backends._ctext import c_string

_NAME = re.compile(r"\b(?:[avwd]\d+|s_\w+|farcall_k\d+)\b")

UNPACK = """static const DLTensor* farcall_unpack(const TVMFFIAny* arg) {
  if (arg->type_index == kTVMFFIDLTensorPtr) return (const DLTensor*)arg->v_ptr;
  if (arg->type_index == kTVMFFITensor) return (const DLTensor*)(const void*)(arg->v_obj + 1);
  return 0;
}
static void* farcall_data(const DLTensor* tensor) { return (char*)tensor->data + tensor->byte_offset; }
"""

FLOORDIV = """static inline int64_t farcall_floordiv(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t farcall_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t farcall_max(int64_t a, int64_t b) { return a > b ? a : b; }
"""

# farcall sets the pointer when it loads the library; another runtime of the same ABI defines the symbol.
# What raise_statement needs.
RAISE = """__attribute__((weak, visibility("default"))) const struct FarcallRuntime* __farcall_runtime;
#pragma weak TVMFFIErrorSetRaisedFromCStr
static int farcall_raise(const char* kind, const char* message) {
  if (__farcall_runtime) __farcall_runtime->error_set_raised_from_cstr(kind, message);
  else if (TVMFFIErrorSetRaisedFromCStr) TVMFFIErrorSetRaisedFromCStr(kind, message);
  return -1;
}
"""


# What the code of a region and farcall's own code (farcall/artifact/entry_late.c) share.
LATE = resources.files(__package__).joinpath("late.h").read_text(encoding="utf-8")


def raise_statement(kind: str, message: str) -> str:
    """A C statement that ends the call with an error of ``kind`` ("ValueError", ...)."""
    return f"return farcall_raise({c_string(kind)}, {c_string(message)});"


@dataclass(frozen=True)
class Pointer:
    """A typed pointer variable: to an argument's elements, to a constant, or into the workspace."""

    kind: str  # with its qualifiers, such as "const float* restrict"
    argument: int | None = None
    offset: str = "0"
    constant: int | None = None  # index of the table of constants

    @property
    def in_workspace(self) -> bool:
        """Whether it points into the workspace."""
        return self.argument is None and self.constant is None

    def declare(self, name: str, argument: str) -> str:
        """The declaration, where ``argument`` is the address of the argument's elements."""
        cast = self.kind.removesuffix(" restrict")
        source = f"(void*)(ws + {self.offset})"
        if self.constant is not None:
            source = f"__builtin_assume_aligned(farcall_table[{self.constant}], 64)"
        elif self.argument is not None:
            source = argument
        return f"{self.kind} {name} = ({cast}){source};"


@dataclass
class Function:
    """The parts of the function of one region."""

    name: str
    count: int  # number of tensor arguments
    workspace: bool
    shaped: Mapping[str, tuple[int, int]]  # symbol -> the argument and the axis that give its size
    unbound: Sequence[str]  # symbols whose sizes are passed as separate arguments
    sizes: Mapping[str, str]  # size variable -> the C expression that computes it from symbols
    pointers: Mapping[str, Pointer]
    symbol: Mapping[str, str]  # symbol -> its C variable
    parts: Sequence[Sequence[str]] = field(default_factory=tuple)  # lines
    late: Sequence[tuple[str, str, int]] = ()  # outputs that it allocates: the node, C of the dtype, the rank

    def text(self) -> str:
        """All functions, each defined before it is used."""
        if len(self.parts) == 1 and not self.late:
            return self._head() + self._pointers(self.pointers) + _lines(self.parts[0]) + "  return 0;\n}\n"
        return "\n".join([*map(self._part, range(len(self.parts))), self._driver()])

    def _head(self) -> str:
        wanted = self.count + self.workspace + len(self.unbound) + bool(self.late)
        text = f"expected {wanted} arguments, tensors first"
        refusal = raise_statement("TypeError", text)
        used = {item.argument for item in self.pointers.values()} | {item[0] for item in self.shaped.values()}
        lines = [f"if (num_args != {wanted}) {refusal}"]
        for i in sorted(item for item in used if item is not None):
            lines.append(f"const DLTensor* t{i} = farcall_unpack(&args[{i}]);\n  if (!t{i}) {refusal}")
        if self.workspace:
            lines.append(f"char* ws = (char*)args[{self.count}].v_ptr;\n  (void)ws;")
        elif any(item.in_workspace for item in self.pointers.values()):
            lines.append("_Alignas(64) char ws[64]; /* for buffers without elements */\n  (void)ws;")
        for symbol, (argument, axis) in self.shaped.items():
            lines.append(f"const int64_t {self.symbol[symbol]} = t{argument}->shape[{axis}];")
        for place, symbol in enumerate(self.unbound, start=self.count + self.workspace):
            lines.append(f"const int64_t {self.symbol[symbol]} = args[{place}].v_int64;")
        lines += [f"const int64_t {name} = {text};" for name, text in self.sizes.items()]
        if any(item.constant is not None for item in self.pointers.values()):
            lines.append("const void* const* farcall_table = (const void* const*)self;")
        lines.append("result->type_index = 0;\n  result->zero_padding = 0;\n  result->v_int64 = 0;")
        lines += self._late(wanted - 1)
        return f"FARCALL_KERNEL({self.name}) {{\n" + _lines(f"  {text}" for text in lines)

    def _late(self, argument: int) -> list[str]:
        """The table of the outputs that the region allocates; ``argument`` holds the bytes for them."""
        if not self.late:
            return []
        rows = (
            f"    {{{c_string(node)}, &farcall_made[{i}], &farcall_left, {dtype}, {rank}}},\n"
            for i, (node, dtype, rank) in enumerate(self.late)
        )
        return [
            f"TVMFFIAny farcall_made[{len(self.late)}] = {{{{0}}}};",
            f"int64_t farcall_left = args[{argument}].v_int64;",
            f"const struct farcall_late farcall_lates[] = {{\n{''.join(rows)}  }};",
        ]

    def _pointers(self, pointers: Mapping[str, Pointer]) -> str:
        return _lines(
            f"  {item.declare(name, f'farcall_data(t{item.argument})')}" for name, item in pointers.items()
        )

    def _part(self, number: int) -> str:
        """One part of the body; ``a`` holds the addresses of the arguments, ``d`` the sizes."""
        body = _lines(self.parts[number])
        named = set(_NAME.findall(body))
        pointers = {name: item for name, item in self.pointers.items() if name in named}
        for item in pointers.values():
            named.update(_NAME.findall(item.offset))
        text = [f"static __attribute__((noinline)) int {self.name}_part{number}(void* const* a, char* ws,"]
        late = ", const struct farcall_late* farcall_lates" if self.late else ""
        text += [f"    const int64_t* d, const void* const* farcall_table{late}) {{"]
        text += ["  (void)a, (void)ws, (void)d, (void)farcall_table;"]
        text += [f"  const int64_t {name} = d[{i}];" for i, name in enumerate(self._sizes()) if name in named]
        text += [f"  {item.declare(name, f'a[{item.argument}]')}" for name, item in pointers.items()]
        return _lines(text) + body + "  return 0;\n}\n"

    def _sizes(self) -> list[str]:
        return [*(self.symbol[name] for name in (*self.shaped, *self.unbound)), *self.sizes]

    def _driver(self) -> str:
        arguments = sorted({item.argument for item in self.pointers.values() if item.argument is not None})
        text = [
            f"  void* a[{self.count + 1}];\n  const int64_t d[] = {{{', '.join([*self._sizes(), '0'])}}};"
        ]
        text += [f"  a[{i}] = farcall_data(t{i});" for i in arguments]
        table = "farcall_table" if any(p.constant is not None for p in self.pointers.values()) else "0"
        late = ", farcall_lates" if self.late else ""
        calls = [f"{self.name}_part{i}(a, ws, d, {table}{late})" for i in range(len(self.parts))]
        if not self.late:
            text += [f"  if ({call}) return -1;" for call in calls]
        has_space = self.workspace or any(item.in_workspace for item in self.pointers.values())
        space = "" if has_space else "  char* ws = 0;\n"
        end = "  return 0;\n}\n"
        if self.late:
            end = f"  int status = {' || '.join(calls)};\n"
            end += f"  return farcall_give(farcall_made, {len(self.late)}, status, result);\n}}\n"
        return self._head() + space + _lines(text) + end


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
