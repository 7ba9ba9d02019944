"""What pip and an index see: dependencies and their licences, versions, the source distribution."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import farcall

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/farcall"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

EXTRAS = {
    extra: [Requirement(text) for text in texts] for extra, texts in PROJECT["optional-dependencies"].items()
}
REQUIRED = [Requirement(text) for text in PROJECT["dependencies"]]
DECLARED = {
    canonicalize_name(requirement.name)
    for requirements in (REQUIRED, *EXTRAS.values())
    for requirement in requirements
    if requirement.name != "farcall"
}

# A user who passes an object of such a package to farcall has that package. No extra installs it.
FRAMEWORKS = {"torch", "ml_dtypes", "pytest"}


def imports(file: Path) -> Iterator[str]:
    """The first names of the modules that a file imports, also in functions; not those for type checkers."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            skipped.update(inner for statement in node.body for inner in ast.walk(statement))
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


def third_party() -> dict[str, set[str]]:
    """Each module that is neither farcall's nor Python's, with the files that import it."""
    found: dict[str, set[str]] = {}
    for file in SOURCE.rglob("*.py"):
        for name in set(imports(file)) - {"farcall", *sys.stdlib_module_names}:
            found.setdefault(name, set()).add(str(file.relative_to(ROOT / "src")))
    return found


@cache
def providers() -> Mapping[str, list[str]]:
    """The packages that install each module here. Finding them reads the records of all of them."""
    return importlib.metadata.packages_distributions()


def distribution(module: str) -> str:
    """The package that installs a module, by the name that pip knows."""
    return canonicalize_name(providers().get(module, [module])[0])


def test_every_import_is_a_dependency() -> None:
    for module, files in third_party().items():
        named = module in FRAMEWORKS or distribution(module) in DECLARED
        assert named, f"{module}, imported by {sorted(files)}, is not in pyproject.toml"


def test_every_dependency_is_imported() -> None:
    # Programs and libraries, which farcall finds; an API, which the user's program has imported.
    found = {"ziglang", "farcall-devices", "opentelemetry-api", "scipy-openblas32", "onednn-cpu-gomp"}
    assert {distribution(module) for module in third_party()} | found >= DECLARED


def test_all_extras_are_in_all() -> None:
    (everything,) = EXTRAS["all"]
    assert everything.extras == EXTRAS.keys() - {"all", "devices"}  # whose programs `zig` makes, too


# ---- licences ----

# Permissive: they ask for a notice only. farcall's own files stay under Apache-2.0 with any of them.
PERMISSIVE = {
    "0BSD",
    "Apache-2.0",
    "BSD",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "MIT",
    "MIT-0",
    "PSF-2.0",
    "Zlib",
}
OTHER_SPELLINGS = {
    "Apache 2.0": "Apache-2.0",
    "Apache v2.0": "Apache-2.0",
    "BSD 2-Clause License": "BSD-2-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD License": "BSD",
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
}


def licences(package: str) -> set[str]:
    about = importlib.metadata.metadata(package)
    classifiers = [
        line.rpartition(" :: ")[2] for line in about.get_all("Classifier", []) if line[:7] == "License"
    ]
    text = about["License-Expression"] or about["License"] or " AND ".join(classifiers)
    words = re.split(r" AND | OR ", text.partition("\n")[0])  # some packages give the whole licence
    return {OTHER_SPELLINGS.get(word.strip("() "), word.strip("() ")) for word in words}


def with_what_it_needs(package: str, seen: set[str]) -> set[str]:
    if package in seen:
        return seen
    seen.add(package)
    for text in importlib.metadata.requires(package) or []:
        requirement = Requirement(text)
        if not requirement.marker or requirement.marker.evaluate({"extra": ""}):
            with_what_it_needs(canonicalize_name(requirement.name), seen)
    return seen


@pytest.mark.parametrize("package", sorted(DECLARED))
def test_licences_are_permissive(package: str) -> None:
    """Of the dependency, of the extras, and of all that they bring."""
    try:
        everything = {name: licences(name) for name in with_what_it_needs(package, set())}
    except importlib.metadata.PackageNotFoundError as missing:
        pytest.skip(f"{missing} is not installed")
    assert {name: found - PERMISSIVE for name, found in everything.items() if found - PERMISSIVE} == {}


# ---- versions ----


def test_the_version_is_in_one_place() -> None:
    out = subprocess.run(
        ["git", "grep", "-lF", f'"{farcall.__version__}"', "--", "*.py", "*.toml", "*.cmake", "*.txt", "*.h"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert out.stdout.split() in ([], ["src/farcall/__init__.py"])  # none: this is no git checkout


def test_the_changelog_has_the_version() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    form = re.compile(r"(\d+\.\d+\.\d+) \((?:unreleased|\d{4}-\d\d-\d\d)\)")
    versions = [match[1] for heading in headings if (match := form.fullmatch(heading))]
    assert len(versions) == len(headings), headings
    assert versions[0] == farcall.__version__
    groups = re.findall(r"^### (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert set(groups) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_an_index_sees_where_farcall_runs_and_what_it_is_about() -> None:
    classifiers = PROJECT["classifiers"]
    for minor in (11, 12, 13, 14):
        assert f"Programming Language :: Python :: 3.{minor}" in classifiers
    assert "Operating System :: POSIX :: Linux" in classifiers
    assert any(line.startswith("Topic :: ") for line in classifiers)
    assert {"Documentation", "Source", "Changelog"} <= PROJECT["urls"].keys()


# ---- the source distribution ----


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, made by the build backend as pip would."""
    if importlib.util.find_spec("scikit_build_core") is None:
        pytest.skip("needs the package scikit-build-core")
    folder = tmp_path_factory.mktemp("sdist")
    make = "import build_backend, sys; print(build_backend.build_sdist(sys.argv[1]))"
    env = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    subprocess.run(
        [sys.executable, "-c", make, str(folder)], cwd=ROOT, env=env, check=True, capture_output=True
    )
    (archive,) = folder.glob("farcall-*.tar.gz")
    return archive


def test_the_source_distribution_has_every_file_of_the_repository(sdist: Path) -> None:
    """Also the tests, so that a packager can run them."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\n")
    if not any(listed):
        pytest.skip("this is no git checkout")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    kept = {name for name in listed if name and (ROOT / name).exists() and not name.startswith(".ci/")}
    assert kept <= packed
    assert not {name for name in packed if name.startswith((".venv", "build/", "dist/", ".git/"))}


def test_the_source_distribution_says_its_version(sdist: Path) -> None:
    assert sdist.name == f"farcall-{farcall.__version__}.tar.gz"
    with tarfile.open(sdist) as archive:
        info = archive.extractfile(f"farcall-{farcall.__version__}/PKG-INFO")
        assert info is not None
        assert f"\nVersion: {farcall.__version__}\n".encode() in info.read()


# ---- the page ----


def test_the_page_lists_every_extra_with_its_packages() -> None:
    page = (ROOT / "docs/install.md").read_text()
    rows = dict(re.findall(r"^\| `farcall(.*?)` \| .* \| (.*?) \|$", page, re.MULTILINE))
    assert set(rows) == {"", *(f"[{extra}]" for extra in EXTRAS)}
    assert set(rows[""].split(", ")) == {requirement.name for requirement in REQUIRED}
    for extra in EXTRAS.keys() - {"all"}:
        more = {item.name for item in EXTRAS[extra]} - {"farcall", *rows[""].split(", ")}
        assert set(rows[f"[{extra}]"].split(", ")) == more, extra
