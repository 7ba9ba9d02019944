"""The site builds without a warning. Each link in it and in the README has a page, a section or a file."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import zlib
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import click
import pytest
import yaml

from farcall import errors
from farcall.cli import cli

from .test_docs import DOCS, PROJECT
from .test_house import public_modules
from .tree import ROOT

pytestmark = pytest.mark.long  # builds the site
DOCUMENTATION = PROJECT["urls"]["Documentation"]
SOURCE = PROJECT["urls"]["Source"]


class Page(HTMLParser):
    """The links and the anchors of a built page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors.add(found.get("id") or "")
        if tag == "a" and (link := found.get("href")):
            self.links.add(link)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make docs` builds it."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-W", "--keep-going", "docs", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {file: Page(file) for file in site.rglob("*.html")}


def lost(links: Iterable[str], base: Path, pages: dict[Path, Page]) -> list[str]:
    """Those links of a page of the site that lead nowhere. Other sites are not visited."""
    return [link for link in sorted(links) if not leads_somewhere(link, base, pages)]


def leads_somewhere(link: str, base: Path, pages: dict[Path, Page]) -> bool:
    if found := re.match(re.escape(SOURCE) + r"/(?:blob|tree|edit)/main/([^#?]*)", link):
        return (ROOT / found[1]).exists()
    if re.match(r"\w+:", link):
        return not link.startswith(DOCUMENTATION)  # a page links to its neighbours by their files
    path, _, anchor = unquote(link).partition("#")
    file = (base.parent / path).resolve() if path else base
    return file.exists() and (not anchor or anchor in pages[file].anchors)


def test_every_link_of_the_site_leads_somewhere(pages: dict[Path, Page]) -> None:
    bad = {file.name: lost(page.links, file, pages) for file, page in pages.items()}
    assert {name: links for name, links in bad.items() if links} == {}


def test_every_link_of_the_readme_leads_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    """Its links to pages of docs/, or to their public addresses, count as links of the site's index."""
    prose = re.sub(r"^```.*?^```", "", (ROOT / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", prose))
    assert links
    assert lost(map(from_the_index, links), site / "index.html", pages) == []


def from_the_index(link: str) -> str:
    if link.startswith(DOCUMENTATION):
        return link.removeprefix(DOCUMENTATION) or "index.html"
    if re.match(r"\w+:", link):
        return link
    if not link.startswith("docs/"):
        return f"{SOURCE}/blob/main/{link}"
    return re.sub(r"^docs/(.*)\.md", r"\1.html", link)


@pytest.mark.parametrize(
    ("link", "right"),
    [
        ("docs/rpc.md#run-a-server", True),
        (f"{DOCUMENTATION}rpc.html#run-a-server", True),
        (f"{SOURCE}/tree/main/src", True),
        ("https://example.org", True),
        ("docs/nowhere.md", False),
        ("docs/rpc.md#nowhere", False),
        (f"{DOCUMENTATION}nowhere.html", False),
        (f"{SOURCE}/blob/main/nowhere", False),
    ],
)
def test_a_link_needs_its_page_and_its_section(
    link: str, right: bool, site: Path, pages: dict[Path, Page]
) -> None:
    assert (lost([from_the_index(link)], site / "index.html", pages) == []) is right


@pytest.mark.parametrize("module", sorted(public_modules() - {"farcall.cli", "farcall.backends.ckit"}))
def test_every_public_name_is_described(module: str, site: Path) -> None:
    described = {name for kind in inventory(site).values() for name in kind}
    names = getattr(importlib.import_module(module), "__all__", ())
    last = {name.rpartition(".")[2] for name in described}
    assert {name for name in names if not name.startswith("_")} <= last
    assert module in described


def inventory(site: Path) -> dict[str, set[str]]:
    """The names that the site describes, by kind, such as `py:class`."""
    content = (site / "objects.inv").read_bytes()
    found: dict[str, set[str]] = {}
    for line in zlib.decompress(content.split(b"\n", 4)[4]).decode().splitlines():
        name, kind, *_ = line.split(" ")
        found.setdefault(kind, set()).add(name)
    return found


def test_every_error_leads_to_its_section(site: Path, pages: dict[Path, Page]) -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "url")]
    assert len(kinds) > 20
    links = [from_the_index(kind.url) for kind in kinds]
    assert lost(links, site / "index.html", pages) == []


def commands_below(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            if (below := command.get_command(context, name)) and not below.hidden:
                yield from commands_below(below, f"{path} {name}")


def test_every_command_and_option_is_described(site: Path, pages: dict[Path, Page]) -> None:
    text = (site / "cli.html").read_text()
    for path, command in commands_below(cli, "farcall"):
        assert path.replace(" ", "-") in pages[site / "cli.html"].anchors
        for option in command.params:
            if not getattr(option, "hidden", False) and isinstance(option, click.Option):
                assert option.opts[-1] in text, (path, option)


def test_every_page_is_in_the_site(site: Path) -> None:
    """Sphinx warns about a page that no table of contents lists."""
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS).with_suffix(".html")).is_file(), page


def test_the_public_site_is_built_as_here() -> None:
    hosted = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text())
    assert (ROOT / hosted["sphinx"]["configuration"]).is_file() and hosted["sphinx"]["fail_on_warning"]
    assert hosted["build"]["jobs"]["install"][-1].endswith("--group docs")
