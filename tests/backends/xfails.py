"""Which of ONNX's own tests do not pass through the backend ``c``, and why.

``python -m tests.backends.xfails`` writes the list (a minute): ``tests/onnx_node_xfails.txt``.
"""

from __future__ import annotations

from pathlib import Path

from .onnx_nodes import KINDS, run_in_processes

PATH = Path(__file__).resolve().parents[1] / "onnx_node_xfails.txt"
COMMAND = "python -m tests.backends.xfails"
_SHOWN = 50  # new cases that are printed

_HEAD = f"""\
# ONNX's own tests (node, simple, pytorch-converted, pytorch-operator) that the backend `c` does not pass.
#
# Each line: the case, then why. The list only shrinks: tests/backends/test_onnx_nodes.py fails when a listed
# case passes, and when one that is not listed does not. `{COMMAND}` writes this file.
"""


def listed() -> dict[str, str]:
    """Case -> reason."""
    lines = (line.partition("#")[::2] for line in PATH.read_text().splitlines() if line and line[0] != "#")
    return {name.strip(): reason.strip() for name, reason in lines}


def main() -> None:
    before = listed()
    reasons: dict[str, str] = {}
    for kind in KINDS:
        reasons |= run_in_processes(kind).reasons
    for name in sorted(reasons.keys() - before.keys())[:_SHOWN]:
        print(f"new: {name}: {reasons[name]}")
    PATH.write_text(_HEAD + "".join(f"{name}  # {why}\n" for name, why in sorted(reasons.items())))
    print(f"{len(reasons)} cases do not pass; {len(before)} were listed")


if __name__ == "__main__":
    main()
