"""Settings: the options that people repeat. Flags win over the environment, then files, then defaults.

The table is the one place that knows a setting's option, variable and kind. Files reach the commands as
click's ``default_map``, and variables as click's ``envvar``, so that click decides which value wins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from farcall._suggest import did_you_mean
from farcall.cli import _complete
from farcall.cli._streams import only_json
from farcall.errors import UsageError

_F = TypeVar("_F", bound=Callable[..., Any])
_MODELS = ("build", "explain", "run")
_SESSIONS = ("build", "run", "call", "ping", "ls", "cp", "sessions")
_ON = ("build", "run", "ping", "ls", "sessions")  # the others need a place for each use
_SHOWING = (
    *_MODELS, "demo", "inspect", "doctor", "call", "ping", "ls", "cp", "cert", "sessions",
    "token create", "token list", "config show", "plugins list", "trace summary",
    "device build", "device start", "device list", "device stop",
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        name: in files, and of the option without its dashes.
        kind: of its values: "text", "list", "seconds", "flag", "file" or "choice".
        help: of the option.
        commands: that have the option; empty: the setting has no option of its own.
        default: the value without any flag, variable or file.
        parameter: the name of the Python argument, if not that of the setting.
        choices: of the kind "choice".
        private: whether it is a secret: no file may hold it, and no output shows it.
    """

    name: str
    kind: str
    help: str
    commands: tuple[str, ...] = ()
    default: Any = None
    parameter: str = ""
    choices: tuple[str, ...] = ()
    private: bool = False

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"FARCALL_{self.name.upper().replace('-', '_')}"

    @property
    def key(self) -> str:
        """The name of the Python argument."""
        return self.parameter or self.name.replace("-", "_")

    @property
    def type(self) -> Any:
        """click's type of one value."""
        if self.kind == "choice":
            return click.Choice(self.choices)
        if self.kind == "file":
            return click.Path(dir_okay=False, path_type=Path)
        return click.FloatRange(min=0, min_open=True) if self.kind == "seconds" else str


SETTINGS = (
    Setting(
        "target",
        "text",
        "Machine to compile for, such as aarch64-linux-musl. [default: this machine]",
        ("build",),
    ),
    Setting(
        "backends",
        "text",
        "Backends in order of priority: names (`farcall plugins list`), or pkg.mod:Class for a class that "
        "Python can import.",
        _MODELS,
        "c",
    ),
    Setting("on", "text", "URL of the server, such as tcp://board:9090.", _ON, None, "url"),
    Setting("via", "list", "URL of a relay on the way, the nearest first; may be repeated.", _SESSIONS, ()),
    Setting(
        "timeout",
        "seconds",
        "Maximum seconds to connect, and for each call and copy. "
        "[default: 10 to connect, no limit for calls]",
        _SESSIONS,
    ),
    Setting("key", "text", "Key of the server, if it has one.", _SESSIONS, ""),
    Setting(
        "token",
        "text",
        "Token for the server. The variable FARCALL_TOKEN hides it from `ps`.",
        _SESSIONS,
        private=True,
    ),
    Setting("token-file", "file", "File with the token for the server.", _SESSIONS),
    Setting(
        "ca",
        "file",
        "Certificate of the authority that signed the server's certificate (tls://, wss://).",
        _SESSIONS,
    ),
    Setting("cert", "file", "Your own certificate.", _SESSIONS),
    Setting("cert-key", "file", "Private key of your certificate.", _SESSIONS),
    Setting("json", "flag", "Print one JSON object.", _SHOWING, False, "json_"),
    Setting(
        "color", "choice", "Colours and lines of tables.", (), "auto", choices=("auto", "always", "never")
    ),
    Setting("cache-dir", "file", "Folder of compiled objects. [default: ~/.cache/farcall]"),
)
_BY_NAME = {setting.name: setting for setting in SETTINGS}


def setting(name: str, *flags: str, **changes: Any) -> Callable[[_F], _F]:
    """The click option of a setting.

    Args:
        name: of the setting.
        flags: further spellings of the option.
        changes: arguments of ``click.option`` that differ from the table's.
    """
    entry = _BY_NAME[name]
    arguments: dict[str, Any] = {
        "envvar": entry.variable,
        "help": entry.help,
        "default": entry.default,
        "show_default": bool(entry.default) and entry.kind != "flag",
        "show_envvar": True,
        "shell_complete": getattr(_complete, _COMPLETED.get(name, ""), None),
    }
    if entry.kind == "flag":
        arguments["is_flag"] = True
    else:
        arguments |= {"type": entry.type, "multiple": entry.kind == "list"}
    if name == "json":
        arguments["callback"] = only_json
    option = f"--{name}/--no-{name}" if entry.kind == "flag" else f"--{name}"  # a file may have set the flag
    return click.option(option, entry.key, *flags, **(arguments | changes))


_COMPLETED = {"target": "targets", "backends": "backends", "on": "urls", "via": "urls"}


# ---- files


class Origin(NamedTuple):
    """A value, and the place that it came from, for people: ``farcall.toml:3``."""

    value: Any
    place: str


class _File(NamedTuple):
    path: Path
    shown: str
    project: bool
    table: Mapping[str, Any]
    text: str

    def line(self, key: str) -> str:
        """``FILE:LINE`` of a key."""
        found = re.search(rf"^\s*[\"']?{re.escape(key)}[\"']?\s*=", self.text, re.MULTILINE)
        line = self.text.count("\n", 0, found.start()) + 1 if found else 1
        return f"{self.shown}:{line + (found.group().count(chr(10)) if found else 0)}"


def user_file() -> Path:
    """The user's own file of settings."""
    root = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (root if root.is_absolute() else Path("~/.config").expanduser()) / "farcall" / "config.toml"


def from_files() -> dict[str, Origin]:
    """The settings of all files, the nearest file's where several have one.

    Raises:
        UsageError: a file is not TOML, or has an unknown key, or a value of the wrong kind; the message has
            the line.
    """
    found: dict[str, Origin] = {}
    for file in _files():
        for key, value in file.table.items():
            origin = Origin(_checked(file, key, value), file.line(key))
            found.setdefault(key, origin)
    return found


def _files() -> Iterator[_File]:
    """The files that exist, in order of priority."""
    for folder in _project_folders(Path.cwd()):
        files = [_read(folder / name, project=True) for name in ("farcall.toml", "pyproject.toml")]
        if any(files):
            yield from filter(None, files)
            break
    if (own := _read(user_file(), project=False)) is not None:
        yield own


def _project_folders(folder: Path) -> Iterator[Path]:
    """The folder and those above it, up to the root of its repository or the user's home."""
    home = Path("~").expanduser()
    for place in (folder, *folder.parents):
        if place == home and place != folder:
            return
        yield place
        if (place / ".git").exists():
            return


def _read(path: Path, *, project: bool) -> _File | None:
    """A file's settings; None: there is no such file, or no such table in it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    inside = path.name == "pyproject.toml"
    if inside and "farcall" not in text:
        return None
    import tomllib

    shown = _shown(path)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{shown}: not valid TOML: {error}") from None
    if not inside:
        return _File(path, shown, project, table, text)
    table = table.get("tool", {}).get("farcall")
    head = re.search(r"^\s*\[tool\.farcall\]", text, re.MULTILINE)
    blank = re.sub(r"[^\n]", "", text[: head.end()]) if head else ""  # keys of other tables have no lines
    return (
        None
        if table is None
        else _File(path, shown, project, table, blank + text[head.end() if head else 0 :])
    )


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        home = str(Path("~").expanduser())
        return f"~{str(path)[len(home) :]}" if str(path).startswith(home + os.sep) else str(path)


_KINDS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "text": (str, "a text"),
    "file": (str, "the name of a file"),
    "seconds": ((int, float), "a number of seconds above 0"),
    "flag": (bool, "true or false"),
    "list": (list, "a list of texts"),
}  # fmt: skip


def _checked(file: _File, key: str, value: Any) -> Any:
    entry, where = _BY_NAME.get(key), file.line(key)
    if entry is None:
        meant = did_you_mean(key, _BY_NAME)
        raise UsageError(f"{where}: there is no setting `{key}`{meant}; `farcall config show` lists them")
    if entry.private:
        raise UsageError(
            f"{where}: `{key}` is a secret, which does not belong in this file; "
            f'write `{key}-file = "PATH"`, or set {entry.variable}'
        )
    if key == "backends" and isinstance(value, list):
        value = ",".join(map(str, value))
    if entry.kind == "choice":
        fits, expected = value in entry.choices, f"one of {', '.join(entry.choices)}"
    else:
        kind, expected = _KINDS[entry.kind]
        fits = isinstance(value, kind) and (entry.kind == "flag" or not isinstance(value, bool))
        fits = fits and (entry.kind != "seconds" or value > 0)
        fits = fits and (entry.kind != "list" or all(isinstance(item, str) for item in value))
    if not fits:
        raise UsageError(f"{where}: `{key}`: expected {expected}, got {value!r:.80}")
    _check_no_command(file, key, value)
    return str(file.path.parent / Path(value).expanduser()) if entry.kind == "file" else value


def _check_no_command(file: _File, key: str, value: Any) -> None:
    """A project's file must not start a program on the machine of whoever enters its folder."""
    urls: Sequence[Any] = value if isinstance(value, list) else [value]
    if file.project and any(str(url).startswith("pipe:") for url in urls):
        raise UsageError(
            f"{file.line(key)}: a project's file names no `pipe:`, which starts a command; "
            f"write it into {_shown(user_file())}, or on the command line"
        )


# ---- the commands


def default_map(values: Mapping[str, Origin]) -> dict[str, Any]:
    """click's ``default_map`` of the command line: a dictionary for each command."""
    commands: dict[str, Any] = {}
    for name, origin in values.items():
        entry = _BY_NAME[name]
        for words in filter(None, entry.commands):
            place = commands
            for word in words.split():
                place = place.setdefault(word, {})
            place[entry.key] = origin.value
    return commands


def effective(files: Mapping[str, Origin]) -> dict[str, Origin]:
    """Each setting's value, as a command would get it without flags, and the place that it came from."""
    return {entry.name: _effective(entry, files) for entry in SETTINGS}


def _effective(entry: Setting, files: Mapping[str, Origin]) -> Origin:
    if text := os.environ.get(entry.variable):
        return Origin("(hidden)" if entry.private else text, f"environment {entry.variable}")
    return files.get(entry.name, Origin(entry.default, "default"))
