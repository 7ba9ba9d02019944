"""``farcall ping``, ``ls``, ``call`` and ``cp``: what a board gets to do first."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from farcall.cli import _values
from farcall.rpc import Server, Session, connect
from farcall.rpc.tokens import TokenFile

from ..rpc.servers import INIT
from ..terminal import Cli


@pytest.fixture(scope="module")
def board() -> Iterator[str]:
    with Server(init=INIT) as server:
        yield server.url


def test_ping_says_who_answers_and_how_fast(cli: Cli, board: str) -> None:
    text = cli("ping", board, "-n", "3").out
    assert f"{board}: a farcall server answers" in text
    assert text.splitlines()[-2].split() == ["connect", "min", "median", "p99", "max"]
    facts = json.loads(cli("ping", board, "--count", "5", "--json").out)
    assert facts["count"] == 5
    assert 0 < facts["min_seconds"] <= facts["median_seconds"] <= facts["p99_seconds"] <= facts["max_seconds"]
    lines = [json.loads(line) for line in cli("ping", board, "-n", "3", "--jsonl").out.splitlines()]
    assert [line["number"] for line in lines] == [1, 2, 3]


def test_ping_takes_the_url_of_the_environment(cli: Cli, board: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("ping").code == 2
    monkeypatch.setenv("FARCALL_ON", board)
    assert board in cli("ping", "-n", "1").out


def test_ping_on_the_way_of_a_relay(cli: Cli, board: str) -> None:
    with Server() as relay:
        facts = json.loads(cli("ping", board, "--via", relay.url, "--json").out)
    assert facts["route"] == [relay.url, board]


def test_ls_lists_functions_one_a_line(cli: Cli, board: str) -> None:
    outcome = cli("ls", board)
    assert "test.add" in outcome.out.splitlines()
    assert "devices: cpu:0" in outcome.err
    assert "cpu:0" in json.loads(cli("ls", board, "--json").out)["devices"]


def test_call_reads_values_and_prints_the_result(cli: Cli, board: str) -> None:
    assert cli("call", board, "test.add", "3", "-4").out == "-1\n"
    assert json.loads(cli("call", board, "test.add", "0.5", "1", "--json").out)["result"] == 1.5
    assert cli("call", board, "test.echo", "text").out == "text\n"
    np.save("x.npy", np.arange(3, dtype="float32"))
    outcome = cli("call", board, "test.echo", "@x.npy", "-o", "y.npy")
    assert (outcome.code, outcome.out) == (0, ""), outcome.err
    np.testing.assert_array_equal(np.load("y.npy"), np.load("x.npy"))
    assert cli("call", board, "test.echo", "@x.npy").out == "float32[3] 12 B\n[0. 1. 2.]\n"


def test_call_of_a_library_on_this_machine(cli: Cli, digits_artifact: Path) -> None:
    np.save("x.npy", np.zeros((2, 1, 8, 8), np.float32))
    result = json.loads(cli("call", digits_artifact, "main", "@x.npy", "--json").out)["result"]
    assert (result["dtype"], result["shape"]) == ("float32", [2, 10])


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("test.ad", "1"), 2, "exports no function `test.ad`; did you mean `test.add`?"),
        (("test.add", "--jsno"), 2, "no such option: --jsno"),
        (("test.add", "@gone.npy", "1"), 2, "no such file: gone.npy; write an array into it with numpy.save"),
        (("test.fail", "KeyError", "x"), 1, "`test.fail` raised KeyError: "),
    ],
)
def test_call_explains_what_is_wrong(
    cli: Cli, board: str, words: tuple[str, ...], code: int, says: str
) -> None:
    outcome = cli("call", board, *words)
    assert (outcome.code, outcome.out) == (code, "")
    assert says in outcome.err


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3), ("-0.5", -0.5), ("1e3", 1000.0), ("true", True), ("null", None), ('"3"', "3"),
        ("[1, [2]]", [1, [2]]), ('{"a": 1}', {"a": 1}), ("__import__('os')", "__import__('os')"), ("", ""),
        ("[" * 100_000, "[" * 100_000),
    ],
)  # fmt: skip
def test_a_value_is_json_or_text(text: str, value: object) -> None:
    assert _values.read(text) == value


def test_cp_there_and_back(cli: Cli, board: str) -> None:
    for size in (0, 5, 3 << 20):
        Path("a.bin").write_bytes(np.random.default_rng(size).bytes(size))
        sent = cli("cp", "a.bin", board)
        assert sent.code == 0, sent.err
        assert sent.out.startswith(f"{board}#{size}-")
        assert "/s" in sent.err
        back = json.loads(cli("cp", sent.out.strip(), "b.bin", "--json").out)
        assert back["bytes"] == size
        assert Path("b.bin").read_bytes() == Path("a.bin").read_bytes()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("a.bin", "b.bin"), "expected a file and a URL"),
        (("gone.bin", "{board}"), "gone.bin: No such file or directory"),
        (("{board}#1-2", "b.bin"), "expected URL#CONTENT, as `farcall cp FILE URL` prints it"),
        ((f"{{board}}#9-{'0' * 32}.{'1' * 64}", "b.bin"), "no longer has this file"),
        ((f"{{board}}#9-{'0' * 32}.{'1' * 64}", "no/b.bin"), "cannot write 'no/b.bin'"),
    ],
)
def test_cp_explains_what_is_wrong(cli: Cli, board: str, words: tuple[str, ...], says: str) -> None:
    outcome = cli("cp", *(word.format(board=board) for word in words))
    assert outcome.code in (1, 2)
    assert says in outcome.err


def test_completion_has_live_names(
    cli: Cli, board: str, digits_artifact: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def completed(line: str, word: str) -> list[str]:
        monkeypatch.setenv("_FARCALL_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", f"{line} {word}")
        monkeypatch.setenv("COMP_CWORD", str(len(line.split())))
        monkeypatch.setattr("sys.argv", ["farcall"])
        found = cli().out.splitlines()
        monkeypatch.delenv("_FARCALL_COMPLETE")
        return [item.partition(",")[2] for item in found]

    monkeypatch.setenv("FARCALL_CACHE_DIR", str(tmp_path / "cache"))
    cli("ping", board, "-n", "1")
    assert completed("farcall", "do") == ["doctor"]
    assert completed("farcall ping", "tcp") == [board]
    assert completed("farcall run m.so --on", "") == [board]
    assert completed(f"farcall call {digits_artifact}", "ma") == ["main"]
    assert completed("farcall build m.onnx --target", "hex") == ["hexagon-linux-musl"]
    assert completed("farcall build m.onnx --backends", "npu,c") == ["npu,c"]
    assert completed("farcall token create a --scope", "c") == ["call", "copy"]


def test_call_shows_what_the_function_prints(cli: Cli, board: str) -> None:
    evil = "fan at 1200 rpm\x1b[2J"
    outcome = cli("call", "-q", "--show-output", board, "test.print", evil, "c")
    assert (outcome.code, outcome.out) == (0, "null\n")
    assert f"{board}: fan at 1200 rpm\\x1b[2J" in outcome.err.splitlines()
    assert board not in cli("call", "-q", board, "test.print", "quiet", "c").err
    with Server(init=INIT) as relay:
        words = ("call", "-q", "--show-output", "--via", relay.url, board, "test.print", "hello", "python")
        assert f"{board}: hello" in cli(*words).err.splitlines()


def test_run_shows_what_the_server_prints(
    cli: Cli, board: str, digits_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save("x.npy", np.zeros((1, 1, 8, 8), "float32"))
    texts = iter(["", "layer 1\nlayer 2\n"])
    monkeypatch.setattr(Session, "output", lambda session: next(texts))
    outcome = cli("run", digits_artifact, "--input", "image=x.npy", "--on", board, "--show-output")
    assert outcome.code == 0, outcome.err
    assert f"{board}: layer 1\n{board}: layer 2\n" in outcome.err


def test_sessions_lists_who_else_is_there(cli: Cli, board: str) -> None:
    with connect(board) as other:
        other.get_function("test.add")(1, 2)
        rows = json.loads(cli("sessions", board, "--json").out)["sessions"]
        mine, last = rows[-2:]
        table = cli("sessions", board).out
    assert mine["calls"] >= 1
    assert mine["calling"] is None
    assert last["calling"] == "farcall.rpc.sessions"
    assert last["channel"] == "tcp"
    assert re.search(r" 127\.0\.0\.1:\d+ .*farcall\.rpc\.sessions$", table, re.MULTILINE)


def test_sessions_wants_a_token_that_may_know(cli: Cli, tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "t.json")
    with Server(urls=[f"unix://{tmp_path}/u"], tokens=tokens.path) as server:
        weak, strong = tokens.create("weak", ("call", "copy", "files")), tokens.create("strong", ("load",))
        refused = cli("sessions", server.url, "--token", weak)
        assert refused.code == 5
        assert "scope `load`" in refused.err
        rows = json.loads(cli("sessions", server.url, "--token", strong, "--json").out)["sessions"]
    assert rows[-1]["token"] == "strong"


def test_sessions_of_a_server_that_has_one(cli: Cli) -> None:
    outcome = cli("sessions", f"pipe:{sys.executable} -m farcall serve --stdio")
    assert outcome.code == 1
    assert "this server has one session, and keeps no list of them" in outcome.err


def test_a_server_cannot_steer_the_terminal(cli: Cli, board: str) -> None:
    outcome = cli("call", board, "test.fail", "ValueError", "\x1b]0;title\x07 and \u202e")
    assert outcome.code == 1
    assert "\\x1b]0;title\\x07 and \\u202e" in outcome.err
    assert "\x1b" not in outcome.err


def test_cp_takes_only_the_content_of_the_address(
    cli: Cli, board: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("a.bin").write_bytes(b"mine")
    address = cli("cp", "-q", "a.bin", board).out.strip()
    monkeypatch.setattr(Session, "download", lambda *args, **options: b"other")
    outcome = cli("cp", address, "b.bin")
    assert outcome.code == 1
    assert "sent another content than the one of this address" in outcome.err
    assert not Path("b.bin").exists()
