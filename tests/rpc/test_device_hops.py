"""The chain host -> phone -> DSP: devices behind a server, by the names that its owner gave them."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import farcall as fc
from farcall.errors import (
    ConnectError,
    DeadlineExceededError,
    MissingFunctionError,
    PermissionDeniedError,
    RemoteError,
    UsageError,
)
from farcall.rpc import Limits, Server, Session, connect
from farcall.rpc.shared._hops import Hop, parse_hop
from farcall.rpc.tokens import TokenFile
from farcall.testing import DEVICE_RULES, check_device

from ..native.small_server import named, running, small_server
from ..waiting import SECONDS
from .servers import COMMAND, INIT, works
from .tvm_processes import needs_tvm, seen_by

pytestmark = pytest.mark.long  # a DSP behind it is an emulated Hexagon


@pytest.fixture(scope="module")
def dsp(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL, for the owner of the phone, of a small server on an emulated Hexagon."""
    return f"pipe:{shlex.join([*small_server(named('hexagon'), tmp_path_factory), '--stdio'])}"


class Phone(NamedTuple):
    """A server that clients reach."""

    url: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@pytest.fixture(scope="module")
def full_phone(dsp: str) -> Iterator[Phone]:
    """A full server, which starts the DSP's server for each session."""
    with Server(init=INIT, key="k", limits=Limits(relay="off"), devices={"dsp0": dsp}) as server:
        yield Phone(server.url)


@pytest.fixture(scope="module")
def small_phone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phone]:
    """A small server, which shares a mailbox with that of the DSP."""
    box = tmp_path_factory.mktemp("mail") / "box"
    with (
        running(small_server(named("hexagon"), tmp_path_factory), "--mailbox", str(box)) as (_, device),
        running(
            small_server(named("x86_64"), tmp_path_factory), "--key", "k", "--device", f"dsp0={device}"
        ) as (_, url),
    ):
        yield Phone(url)


@pytest.fixture(scope="module", params=["full", "small"])
def phone(request: pytest.FixtureRequest) -> Phone:
    served: Phone = request.getfixturevalue(f"{request.param}_phone")
    return served


@pytest.fixture
def far(phone: Phone) -> Iterator[Session]:
    with connect(phone.url, "k", via=["device:dsp0"], timeout=SECONDS) as session:
        yield session


def test_a_session_with_the_device(far: Session) -> None:
    x = np.arange(100_000, dtype="float32")
    there = far.tensor(x)
    far.get_function("test.twice")(there)
    np.testing.assert_array_equal(there.numpy(), 2 * x)
    assert far.get_function("test.echo")("text") == "text"


def test_the_device_may_be_named_first_or_last(phone: Phone) -> None:
    with connect("device:dsp0", via=[(phone.url, "k")], timeout=SECONDS) as session:
        assert session.get_function("test.echo")(5) == 5
    with connect(phone.url, "k", via=["device:hexagon:0"], timeout=SECONDS) as session:
        assert session.get_function("test.echo")(6) == 6


def test_errors_name_the_hop(far: Session) -> None:
    with pytest.raises(TypeError, match=r"hop 2 \(device:dsp0\).*expected one float32 tensor"):
        far.get_function("test.twice")(1)


def test_a_device_that_faults_ends_one_session_and_serves_the_next(phone: Phone) -> None:
    with connect(phone.url, "k", via=["device:dsp0"], timeout=SECONDS) as session:
        crash = session.get_function("test.segfault")
        with pytest.raises(RemoteError, match=r"hop 2 \(device:dsp0\)"):
            crash()
    with connect(phone.url, "k", via=["device:dsp0"], timeout=SECONDS) as session:
        assert session.get_function("test.echo")(7) == 7
    assert works(phone)


def test_a_device_that_hangs_meets_the_deadline(phone: Phone) -> None:
    with connect(phone.url, "k", via=["device:dsp0"], timeout=SECONDS, call_timeout=0.5) as session:
        spin = session.get_function("test.spin")
        with pytest.raises(DeadlineExceededError):
            spin()
    assert works(phone)


def test_a_client_cannot_say_where_a_device_is(phone: Phone) -> None:
    with pytest.raises(ConnectError, match=r"no device 'dsp1'; its devices: dsp0"):
        connect(phone.url, "k", via=["device:dsp1"], timeout=SECONDS)
    with pytest.raises(ConnectError, match="does not go on to pipe:"):
        connect("pipe:cat", via=[(phone.url, "k")], timeout=SECONDS)
    assert works(phone)


def test_a_device_that_cannot_be_started_is_named() -> None:
    with Server(init=INIT, key="k", devices={"dsp0": "pipe:/no/such/program"}) as server:
        with pytest.raises(RemoteError, match=r"hop 2 \(device:dsp0\).*/no/such/program"):
            connect(server.url, "k", via=["device:dsp0"], timeout=SECONDS)
        assert works(server)


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ({"a b": "tcp://127.0.0.1:1"}, "expected device:NAME"),
        ({"dsp0": "nowhere"}, "it names no port"),
        ({"dsp0": "device:dsp1"}, "is a name, not where the device is"),
    ],
)
def test_an_owners_mistakes(devices: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Server(devices=devices)


def test_a_device_alone_is_no_server() -> None:
    with pytest.raises(UsageError, match=r"reached through its server; .*via=\['device:dsp0'\]"):
        connect("device:dsp0")
    with pytest.raises(UsageError, match="no handshake that could carry a token"):
        connect("device:dsp0", via=["unix:///tmp/x.sock"], token="a.b")


def test_tvms_constructor_means_the_first_device() -> None:
    values = ["tvm.contrib.hexagon.create_hexagon_session", "name", 262144, "", 268435456]
    assert parse_hop(values) == (Hop("device:hexagon:0"), 5)


@needs_tvm
def test_a_tvm_client_of_a_hexagon_session(phone: Phone) -> None:
    seen = seen_by("tvm_hexagon.py", phone.port, "k")
    assert seen["text"] == "hello"
    assert seen["twice"] is True
    assert "test.missing" in seen["missing"]


# ---- the device's memory and functions in a session with the phone


@pytest.fixture
def near(phone: Phone) -> Iterator[Session]:
    with connect(phone.url, "k", timeout=SECONDS) as session:
        yield session


def test_tensors_that_live_on_the_device(near: Session) -> None:
    x = np.arange(1000, dtype="float32")
    there, other = near.tensor(x, "hexagon:0"), near.empty(1000, "float32", "hexagon:0")
    near.copy(there, other)
    np.testing.assert_array_equal(other.numpy(), x)
    near.copy(near.tensor(2 * x), there)  # from the phone's memory
    np.testing.assert_array_equal(near.view(there, np.s_[10:20]).numpy(), 2 * x[10:20])


def test_the_device_keeps_the_contract_of_devices(phone: Phone) -> None:
    fills_it = "memory that was freed can be allocated again"  # gigabytes, on an emulator
    of_the_machine = (
        "the end of a session frees what it held"  # the emulator tells what this machine has free
    )
    rules = [rule for rule in DEVICE_RULES if rule not in (fills_it, of_the_machine)]
    assert len(rules) == len(DEVICE_RULES) - 2
    check_device(
        lambda: connect(phone.url, "k", timeout=SECONDS), "hexagon:0", rules=rules, bulk_bytes=1 << 16
    )


def test_attributes_of_the_device(near: Session) -> None:
    device = near.device("hexagon:0")
    assert device.exist
    assert device.name == "dsp0"
    assert device.total_global_memory > 0
    assert device.warp_size is None
    assert not near.device("hexagon:1").exist


def test_functions_of_the_device_called_from_the_phone(near: Session) -> None:
    x = np.arange(12, dtype="float32").reshape(3, 4)
    twice, echo = (near.get_function(f"test.{name}", device="hexagon:0") for name in ("twice", "echo"))
    there = near.tensor(x, "hexagon:0")
    twice(near.view(there, 1))
    between = echo(there)  # stays on the device
    twice(between)
    assert str(between.device).endswith("hexagon:0")
    np.testing.assert_array_equal(there.numpy(), x * [[2], [4], [2]])
    assert echo("text") == "text" and echo(b"0123456789") == b"0123456789" and echo(None) is None


def test_a_function_that_the_device_returns(near: Session) -> None:
    give = near.get_function("test.give_add", device="hexagon:0")
    given = give()
    assert given(20, 22) == 42
    with pytest.raises(RemoteError):
        near.get_function("test.segfault", device="hexagon:0")()
    with pytest.raises(RemoteError, match=r"hop 2 .*`result of test.give_add`: it is lost with the session"):
        given(1, 2)
    assert give()(1, 2) == 3


def test_an_object_stays_on_the_device(near: Session) -> None:
    library = near.get_function("ffi.SystemLib", device="hexagon:0")
    with pytest.raises(TypeError, match=r"`ffi.SystemLib`: its result is an object that stays.*via="):
        library()


def test_a_function_of_the_client_goes_through_the_full_server(full_phone: Phone, small_phone: Phone) -> None:
    with connect(full_phone.url, "k", timeout=SECONDS) as near:
        assert near.get_function("test.call_back", device="hexagon:0")(lambda n: n + 1) == 21
    with (
        connect(small_phone.url, "k", timeout=SECONDS) as near,
        pytest.raises(TypeError, match=r"hop 2 .* `test.call_back`: .* via=\["),
    ):
        near.get_function("test.call_back", device="hexagon:0")(lambda n: n + 1)


def test_a_chain_of_calls_in_one_round_trip(near: Session) -> None:
    echo = near.get_function("test.echo", device="hexagon:0")
    first = near.tensor(np.ones(3, "float32"), "hexagon:0")
    with near.pipeline() as pipeline:
        pipeline(echo, first)  # the first pipeline of a session asks how results are kept
        pipeline.wait()
        before = near.stats.round_trips
        call = pipeline(echo, first)
        for _ in range(4):
            call = pipeline(echo, call)
    assert near.stats.round_trips == before + 1
    np.testing.assert_array_equal(call.result().numpy(), np.ones(3))


def test_wrong_use_of_the_device(near: Session) -> None:
    twice = near.get_function("test.twice", device="hexagon:0")
    with pytest.raises(TypeError, match=r"hop 2 \(device:dsp0\): `test.twice`: expected one float32 tensor"):
        twice(1)
    with pytest.raises(ValueError, match=r"this one is on cpu:0; copy it there first"):
        twice(np.ones(3, "float32"))
    with pytest.raises(MissingFunctionError, match=r"device:dsp0 exports no function `test.missing`"):
        near.get_function("test.missing", device="hexagon:0")
    with pytest.raises(PermissionDeniedError, match=r"no device 'hexagon:1'; its devices: dsp0"):
        near.get_function("test.twice", device="hexagon:1")
    with pytest.raises(PermissionDeniedError, match=r"no device 'cpu:0'"):
        near.get_function("test.twice", device="cpu:0")


def test_a_device_that_faults_is_opened_anew(near: Session) -> None:
    x = np.ones(3, "float32")
    old, twice = near.tensor(x, "hexagon:0"), near.get_function("test.twice", device="hexagon:0")
    with pytest.raises(RemoteError, match=r"hop 2 \(device:dsp0\).*`test.segfault`"):
        near.get_function("test.segfault", device="hexagon:0")()
    with pytest.raises(RemoteError, match=r"hop 2 \(device:dsp0\): a copy: the tensor is lost"):
        old.numpy()
    with pytest.raises(RemoteError, match=r"`test.twice`: the tensor is lost"):
        twice(old)
    new = near.tensor(x, "hexagon:0")
    twice(new)
    np.testing.assert_array_equal(new.numpy(), 2 * x)
    assert near.get_function("test.add")(20, 22) == 42  # the phone's own


def test_a_device_that_is_killed_is_opened_anew(near: Session) -> None:
    pid = near.get_function("test.pid", device="hexagon:0")
    before = pid()
    os.kill(before, signal.SIGKILL)
    with pytest.raises(RemoteError, match=r"hop 2 \(device:dsp0\).*`test.pid`"):
        pid()
    assert pid() != before


def test_a_device_that_hangs_ends_before_the_phones_patience_does(dsp: str) -> None:
    with (
        Server(init=INIT, key="k", limits=Limits(call_seconds=3), devices={"dsp0": dsp}) as server,
        connect(server.url, "k", timeout=SECONDS) as session,
    ):
        with pytest.raises(DeadlineExceededError, match=r"hop 2 \(device:dsp0\).*`test.spin`"):
            session.get_function("test.spin", device="hexagon:0")()
        assert session.get_function("test.add")(20, 22) == 42
        assert session.get_function("test.echo", device="hexagon:0")(8) == 8


def test_a_device_behind_a_mailbox(tmp_path_factory: pytest.TempPathFactory) -> None:
    words, path = small_server(named("hexagon"), tmp_path_factory), tmp_path_factory.mktemp("mail") / "box"
    with (
        running(words, "--mailbox", str(path)) as (_, url),
        Server(init=INIT, key="k", devices={"dsp0": url}) as server,
        connect(server.url, "k", timeout=SECONDS) as session,
    ):
        there = session.tensor(np.ones(100_000, "float32"), "hexagon:0")
        session.get_function("test.twice", device="hexagon:0")(there)
        np.testing.assert_array_equal(there.numpy(), np.full(100_000, 2, "float32"))


def test_a_token_without_the_scope_relay_does_not_reach_the_device(dsp: str, tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    token = file.create("local", scopes=("call", "copy"))
    with (
        Server(init=INIT, urls=[f"unix://{tmp_path}/u"], tokens=file.path, devices={"dsp0": dsp}) as server,
        connect(server.url, token=token, timeout=SECONDS) as session,
    ):
        with pytest.raises(PermissionDeniedError, match="needs the scope `relay`, which token `local`"):
            session.empty(3, device="hexagon:0")
        with pytest.raises(PermissionDeniedError, match="relay"):
            session.get_function("test.twice", device="hexagon:0")
        assert session.get_function("test.add")(1, 2) == 3


@pytest.fixture(scope="module")
def hexagon_kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library for Hexagon, which has no dynamic loader: an image."""
    pytest.importorskip("ziglang")
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "add.c").write_text(
        "#include <farcall/c_api.h>\n"
        "static const float* floats(const TVMFFIAny* any) {\n"
        "  return any->type_index == kTVMFFIDLTensorPtr ? ((DLTensor*)any->v_ptr)->data\n"
        "                                               : TVMFFITensorGetDLTensorPtr(any->v_obj)->data;\n}\n"
        "FARCALL_KERNEL(add_one) {\n  const float* x = floats(&args[0]);\n"
        "  float* y = (float*)floats(&args[1]);\n  for (int i = 0; i < 5; ++i) y[i] = x[i] + 1;\n"
        "  return 0;\n}\n"
    )
    target = named("hexagon").target
    return Path(fc.cpp.build("add", sources=[folder / "add.c"], target=target, build_directory=folder))


def check_loading(session: Session, library: Path) -> None:
    """The library's functions work on tensors of the device, which loads it."""
    x = np.arange(5, dtype="float32")
    module = session.load_module(library, device="hexagon:0")
    there, out = session.tensor(x, "hexagon:0"), session.empty(5, device="hexagon:0")
    module["add_one"](there, out)
    np.testing.assert_array_equal(out.numpy(), x + 1)
    assert "add_one" in module.function_names()


def test_a_library_that_the_device_loads(kernels: Path) -> None:
    device = f"pipe:{shlex.join([*COMMAND, '--stdio'])}"  # a full server
    with (
        Server(key="k", devices={"dsp0": device}) as server,
        connect(server.url, "k", timeout=SECONDS) as session,
    ):
        check_loading(session, kernels)


def test_an_image_that_a_dsp_loads_behind_a_full_server(
    dsp: str, hexagon_kernels: Path, tmp_path: Path
) -> None:
    device = f"{dsp} --workpath {tmp_path}"
    with (
        Server(key="k", devices={"dsp0": device}) as server,
        connect(server.url, "k", timeout=SECONDS) as session,
    ):
        check_loading(session, hexagon_kernels)


def test_an_image_that_a_dsp_loads_behind_a_small_server(
    tmp_path_factory: pytest.TempPathFactory, hexagon_kernels: Path, tmp_path: Path
) -> None:
    words = (small_server(named(name), tmp_path_factory) for name in ("hexagon", "x86_64"))
    dsp = ("--mailbox", str(tmp_path / "box"), "--workpath", str(tmp_path))
    x = np.arange(5, dtype="float32")
    with (
        running(next(words), *dsp) as (_, device),
        running(next(words), "--device", f"d={device}") as (_, url),
        connect(url, via=["device:d"], timeout=SECONDS) as session,
    ):
        out = session.empty(5)
        session.load_module(hexagon_kernels)["add_one"](session.tensor(x), out)
        np.testing.assert_array_equal(out.numpy(), x + 1)
