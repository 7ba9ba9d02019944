"""How Sphinx builds the site: ``make docs`` writes it to build/docs, and warnings are errors."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

import farcall

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCE = PROJECT["urls"]["Source"]

project = "farcall"
author = PROJECT["authors"][0]["name"]
copyright = author
release = version = farcall.__version__

sys.path.insert(0, str(Path(__file__).parent))
extensions = ["myst_parser", "sphinx.ext.autodoc", "_api", "_commands", "_docstrings"]
nitpicky = True
# Types without a page: those of other packages (the build uses no network), and names for unions of types.
OTHERS = (
    "asyncio collections concurrent ir jax msgspec numpy np npt onnx onnx_ir os pathlib socket ssl sympy "
    "torch typing"
)
UNIONS = (
    "C Callable DTypeLike DeviceLike Diagram Form Future Hop MakeSession Mode ModelLike Opener Remote "
    "RemoteRef Report Rights TorchOps Answer Mapping Measured Meter Operator Outcome Path PathLike "
    "Propose Row StepInfo dict tuple"
)
nitpick_ignore_regex = [
    ("py:.*", rf"({OTHERS.replace(' ', '|')})\..*"),
    ("py:.*", rf"(.*\.)?({UNIONS.replace(' ', '|')})(\[.*)?"),
    ("py:.*", r"(.*\.)?_\w+"),
]

autodoc_typehints_format = "short"
autodoc_member_order = "groupwise"
python_maximum_signature_line_length = 80
add_module_names = False

myst_enable_extensions = ["deflist", "fieldlist", "colon_fence"]
myst_heading_anchors = 4  # pages link to each other's sections by GitHub's anchors
suppress_warnings = ["myst.header"]  # a page's Python blocks may show headings of one level

html_theme = "furo"
html_title = f"farcall {release}"
html_theme_options = {"source_repository": SOURCE, "source_branch": "main", "source_directory": "docs/"}
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]


def mend_links(app: Sphinx, page: str, source: list[str]) -> None:
    """Links out of docs/ lead to the public repository. A page is called by its title, not by its file."""
    folder = Path(app.srcdir, page).parent

    def public(link: re.Match[str]) -> str:
        file = (folder / link[1]).resolve()
        if file.is_relative_to(ROOT / "docs"):
            return link[0]
        kind = "tree" if file.is_dir() else "blob"
        return f"]({SOURCE}/{kind}/main/{file.relative_to(ROOT).as_posix()})"

    text = re.sub(r"\]\((\.\./[^)#\s]+)\)", public, source[0])
    source[0] = re.sub(r"\[[\w/]+\.md\]\((?!http)", "[](", text)


def setup(app: Sphinx) -> None:
    app.connect("source-read", mend_links)
