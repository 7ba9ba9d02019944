"""Settings: which of flags, environment, files and defaults wins, and what a file may not say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import farcall.cli
from farcall.cli import _settings
from farcall.rpc import Server
from farcall.rpc.tokens import TokenFile

from ..terminal import Cli


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither this user's file nor the environment of the tests has settings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for setting in _settings.SETTINGS:
        if setting.name != "cache-dir":
            monkeypatch.delenv(setting.variable, raising=False)


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    file = tmp_path / "config" / "farcall" / "config.toml"
    file.parent.mkdir(parents=True)
    return file


def origins(cli: Cli) -> dict[str, tuple[object, str]]:
    shown = json.loads(cli("config", "show", "--json").out)["settings"]
    return {name: (row["value"], row["origin"]) for name, row in shown.items()}


def commands(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    with click.Context(group) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            yield prefix + name, command
            if isinstance(command, click.Group):
                yield from commands(command, f"{prefix}{name} ")


def test_the_table_and_the_commands_agree() -> None:
    """Each setting is an option, or an argument, of exactly the commands that the table lists for it."""
    found: dict[str, set[str]] = {}
    for name, command in commands(farcall.cli.cli):
        for parameter in command.params:
            for setting in _settings.SETTINGS:
                if parameter.envvar == setting.variable and parameter.name == setting.key:
                    found.setdefault(setting.name, set()).add(name)
    found.pop("color")  # of every command
    assert found == {s.name: set(s.commands) for s in _settings.SETTINGS if s.commands}


def test_nearer_places_win(
    cli: Cli, digits: Path, user_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert origins(cli)["backends"] == ("c", "default")
    user_file.write_text('backends = "user"\ntimeout = 7\n')
    assert origins(cli)["backends"] == ("user", f"{user_file.relative_to(tmp_path)}:1")
    Path("pyproject.toml").write_text('[project]\nbackends = 1\n\n[tool.farcall]\nbackends = "mine"\n')
    assert origins(cli)["backends"] == ("mine", "pyproject.toml:5")
    Path("farcall.toml").write_text('\nbackends = ["npv", "c"]\n')
    assert origins(cli)["backends"] == ("npv,c", "farcall.toml:2")
    assert "no backend is called `npv`" in cli("build", digits, "-o", "m.so").err
    monkeypatch.setenv("FARCALL_BACKENDS", "variable")
    assert origins(cli)["backends"] == ("variable", "environment FARCALL_BACKENDS")
    assert "no backend is called `variable`" in cli("build", digits, "-o", "m.so").err
    assert "no backend is called `flag`" in cli("build", digits, "-o", "m.so", "--backends", "flag").err
    assert origins(cli)["timeout"] == (7, f"{user_file.relative_to(tmp_path)}:2")


def test_a_file_above_counts_up_to_the_root_of_the_repository(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "farcall.toml").write_text('target = "aarch64-linux-musl"\n')
    inside = tmp_path / "repository" / "inside"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    assert origins(cli)["target"] == ("aarch64-linux-musl", f"{tmp_path}/farcall.toml:1")
    (tmp_path / "repository" / ".git").mkdir()
    assert origins(cli)["target"] == (None, "default")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('\nbackend = "c"\n', "farcall.toml:2: there is no setting `backend`; did you mean `backends`?"),
        ('timeout = "3"\n', "farcall.toml:1: `timeout`: expected a number of seconds above 0, got '3'"),
        ("timeout = true\n", "expected a number of seconds above 0, got True"),
        ("timeout = 0\n", "expected a number of seconds above 0, got 0"),
        ('color = "blue"\n', "farcall.toml:1: `color`: expected one of auto, always, never, got 'blue'"),
        ("via = [1]\n", "`via`: expected a list of texts, got [1]"),
        ("json = 1\n", "`json`: expected true or false, got 1"),
        ('token = "a.b"\n', 'write `token-file = "PATH"`, or set FARCALL_TOKEN'),
        ('on = "pipe:rm -r x"\n', "names no `pipe:`, which starts a command"),
        ("timeout =\n", "farcall.toml: not valid TOML"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(cli: Cli, text: str, says: str) -> None:
    Path("farcall.toml").write_text(text)
    outcome = cli("config", "show")
    assert outcome.code == 2
    assert says in outcome.err
    assert cli("--help").code == 0


def test_the_users_own_file_may_start_a_command(cli: Cli, user_file: Path) -> None:
    user_file.write_text('on = "pipe:farcall serve --stdio"\n')
    assert origins(cli)["on"][0] == "pipe:farcall serve --stdio"


def test_a_token_is_never_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARCALL_TOKEN", "alice.secret")
    for words in (["--origin"], ["--json"], []):
        outcome = cli("config", "show", *words)
        assert "secret" not in outcome.out + outcome.err
    assert origins(cli)["token"] == ("(hidden)", "environment FARCALL_TOKEN")


def test_a_file_is_named_relative_to_the_file_of_settings(cli: Cli, tmp_path: Path) -> None:
    with Server(urls=[f"unix://{tmp_path}/u"], tokens=(tokens := TokenFile(tmp_path / "t.json")).path):
        Path("token").write_text(tokens.create("alice", ("call",)))
        Path("farcall.toml").write_text(f'on = "unix://{tmp_path}/u"\ntoken-file = "token"\njson = true\n')
        Path("inside").mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir("inside")
            assert json.loads(cli("ping").out)["url"] == f"unix://{tmp_path}/u"


def test_a_flag_of_a_file_can_be_taken_back(cli: Cli) -> None:
    Path("farcall.toml").write_text("json = true\n")
    assert cli("plugins", "list").out.startswith("{")
    assert cli("plugins", "list", "--no-json").out.startswith("Plugins\n")


@pytest.mark.parametrize("order", [("--cflags", "--ldflags"), ("--ldflags", "--cflags")])
def test_flags_for_a_build_stand_in_one_line(cli: Cli, order: tuple[str, str]) -> None:
    both = cli("config", *order).out
    assert both == " ".join(cli("config", word).out.strip() for word in order) + "\n"
