"""C source that splits the loop of a kernel over the threads of the runtime that loaded the artifact.

The kernel's function gets the first and the last iteration; a second function calls it for parts of the loop,
through the runtime's pool. Without one (another runtime, a board), it is called once, for all.

The cost of an iteration is in units: a vectorized product of float32 with its sum is one, an element that an
elementwise loop reads and writes is eight, an exponential 32.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

ELEMENT = 8  # the cost of an element that is read, used and written
FUNCTION = 32  # the cost of an element of exp, tanh and their like
_WAKE = 1 << 18  # what it pays to wake a thread for: some 10 microseconds
UNITS = _WAKE // 4  # what is worth the time of a thread that is awake: QUARTERS in native/runtime/pool.c

HELPER = f"""static int farcall_parallel(int64_t count, double cost, int at_once, int64_t scratch,
    int (*body)(void* context, int64_t begin, int64_t end, void* scratch), void* context) {{
  const struct FarcallRuntime* runtime = __farcall_runtime;
  if (count <= 0) return 0;
  const int64_t grain = cost < {_WAKE} ? (int64_t)({_WAKE} / (cost < 1 ? 1 : cost)) : 1;
  if (count == 1 || (double)count * cost < {2 * UNITS} || !runtime ||
      runtime->struct_size < offsetof(struct FarcallRuntime, parallel) + sizeof runtime->parallel ||
      !runtime->parallel)
    return body(context, 0, count, 0);
  return runtime->parallel(&(struct FarcallLoop){{count, at_once ? -grain : grain, scratch, context, body}});
}}"""


@dataclass(frozen=True)
class Split:
    """The loop of a kernel: its number of iterations and the cost of one, in C of the kernel's parameters.

    ``at_once``: a thread takes its share in one part.
    """

    count: str
    cost: str
    at_once: bool = False

    def text(self, parameters: Sequence[str], scratch: Mapping[str, str], can_fail: bool) -> str:
        """The functions that split it; ``@`` stands for the kernel's name.

        Args:
            parameters: The declarations of the kernel's parameters.
            scratch: The names of those that point to memory of one thread, with their sizes in bytes.
            can_fail: Whether the kernel returns a status.
        """
        kinds = dict(map(_declared, parameters))
        offsets = [f"{name}_at" for name in scratch]
        fields = [f"{kind} {name};" for name, kind in kinds.items()]
        fields += [f"int64_t {offset};" for offset in offsets]
        arguments = [_own(name, kind) if name in scratch else f"o->{name}" for name, kind in kinds.items()]
        call = f"@_loop({', '.join(arguments)}, begin, end);"
        places = [f"const int64_t {name}_at = {place};" for name, place in _places(scratch).items()]
        values = ", ".join([*kinds, *offsets])
        total = " + ".join(_aligned(size) for size in scratch.values()) or "0"
        return (
            f"struct @_operands {{\n{_lines(fields)}}};\n"
            "static int @_part(void* context, int64_t begin, int64_t end, void* scratch) {\n"
            "  const struct @_operands* o = context;\n  (void)scratch;\n"
            f"  {f'return {call}' if can_fail else f'{call} return 0;'}\n}}\n"
            f"static __attribute__((noinline)) int @({', '.join(parameters)}) {{\n{_lines(places)}"
            f"  struct @_operands operands = {{{values}}};\n"
            f"  return farcall_parallel({self.count}, (double)({self.cost}), {int(self.at_once)}, {total}, "
            "@_part, &operands);\n}"
        )


def _declared(parameter: str) -> tuple[str, str]:
    """The name and the type of a parameter. Members of structs are not restricted."""
    kind, _, name = parameter.rpartition(" ")
    return name, kind.removesuffix(" restrict")


def _own(name: str, kind: str) -> str:
    """A pointer to the memory of the thread."""
    return f"scratch ? ({kind})(void*)((char*)scratch + o->{name}_at) : o->{name}"


def _places(scratch: Mapping[str, str]) -> dict[str, str]:
    """The offset of each block in the memory of a thread."""
    found: dict[str, str] = {}
    place = "0"
    for name, size in scratch.items():
        found[name] = place
        place = f"{name}_at + {_aligned(size)}"
    return found


def _aligned(size: str) -> str:
    return f"({size} + 63) / 64 * 64"


def _lines(texts: Iterable[str]) -> str:
    return "".join(f"  {text}\n" for text in texts)
