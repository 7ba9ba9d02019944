"""Device memory: the null device keeps the contract, and drivers with a fault break it."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import numpy as np
import pytest

import farcall as fc
from farcall.rpc import Server, Session, connect
from farcall.testing import DEVICE_RULES, NullDevice, check_device
from tests.rpc.peers import Peer, device, dl_tensor, integer, message
from tests.waiting import SECONDS

from . import drivers

X = np.arange(6, dtype="float32").reshape(2, 3)
# The rule that each faulty driver breaks, by its kind.
BROKEN = {
    "cuda": "new memory is zero, also where other memory was before",
    "opencl": "a large transfer arrives whole",
    "vulkan": "allocations do not overlap",
    "metal": "a copy into a part changes nothing else",
    "rocm": "a part can be read by itself",
    "webgpu": "a copy between tensors of the device moves the bytes",
    "hexagon": "too large an allocation is refused, and the device works on",
    "oneapi": "memory that was freed can be allocated again",
    "vpi": "the device exists, and one far behind it does not",
    "maia": "synchronizing returns",
    "cuda_host": "numbers come back as they went, for every dtype and shape",
    "rocm_host": "a copy goes to the server's CPU, and back",
    "trn": "the end of a session frees what it held",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(init=f"{drivers.__name__}:register", key="k") as running:
        yield running


@pytest.fixture
def session(server: Server) -> Iterator[Session]:
    with connect(server.url, key="k", timeout=SECONDS) as opened:
        yield opened


@pytest.fixture
def null(farcall_device: NullDevice) -> NullDevice:
    """The null device of this process, as ``ext_dev``."""
    return farcall_device


class TestContract:
    @pytest.mark.parametrize("rule", DEVICE_RULES)
    @pytest.mark.parametrize("where", ["ext_dev:0", "ext_dev:1", "cpu:0"])
    def test_the_null_device_and_the_cpu_keep_it(self, server: Server, where: str, rule: str) -> None:
        check_device(lambda: connect(server.url, key="k", timeout=SECONDS), where, rules=[rule])

    def test_memory_that_outlives_a_session_is_given_back(self, server: Server) -> None:
        rules = ["the end of a session frees what it held", "memory that was freed can be allocated again"]
        check_device(lambda: connect(server.url, key="k", timeout=SECONDS), "cuda_managed:0", rules=rules)

    def test_every_rule_can_be_broken(self) -> None:
        assert set(BROKEN.values()) == set(DEVICE_RULES)

    @pytest.mark.parametrize("kind", BROKEN)
    def test_a_fault_breaks_its_rule(self, server: Server, kind: str) -> None:
        broken = re.escape(f"the device breaks the rule `{BROKEN[kind]}`")
        with pytest.raises(AssertionError, match=broken):
            check_device(
                lambda: connect(server.url, key="k", timeout=SECONDS), f"{kind}:0", rules=[BROKEN[kind]]
            )

    def test_every_fault_is_tried(self) -> None:
        assert set(BROKEN) == set(drivers.FAULTY)


class TestSessions:
    def test_a_function_gets_the_tensor_where_it_is(self, session: Session) -> None:
        x = session.tensor(X, "ext_dev:0")
        session.get_function("test.double")(x)
        np.testing.assert_array_equal(x.numpy(), 2 * X)
        assert session.get_function("test.device_of")(x) == "ext_dev:0"
        assert session.get_function("test.sum_here")(x) == 30

    def test_a_result_stays_on_its_device(self, session: Session) -> None:
        made = session.get_function("test.made")(5)
        assert made.device.dlpack_device_type() % 128 == 12
        np.testing.assert_array_equal(made.numpy(), np.arange(5))
        session.get_function("test.double")(made)
        np.testing.assert_array_equal(made.numpy(), 2 * np.arange(5))

    def test_what_the_device_says_of_itself(self, session: Session) -> None:
        null = session.device("ext_dev:1")
        assert (null.exist, null.name, null.total_global_memory) == (True, "null device", 32 << 20)
        held = session.empty((1 << 20,), "uint8", "ext_dev:1")
        assert null.available_global_memory == 31 << 20
        del held
        assert null.warp_size is None

    def test_a_device_that_is_not_there(self, session: Session) -> None:
        with pytest.raises(ValueError, match=r"no device ext_dev:2 here; this server has cpu:0.*ext_dev:0"):
            session.empty((3,), "uint8", "ext_dev:2")

    def test_an_error_of_the_driver_is_the_error_of_the_call(self, session: Session) -> None:
        with pytest.raises(
            MemoryError, match="null device 0: 1073741824 bytes wanted, 33554432 of 33554432 free"
        ):
            session.empty((1 << 30,), "uint8", "ext_dev:0")
        assert session.tensor(X, "ext_dev:0").numpy().tolist() == X.tolist()

    def test_a_function_of_device_tensors_is_timed(self, session: Session) -> None:
        timing = session.benchmark("test.double", session.tensor(X, "ext_dev:0"), repeat=2, number=3)
        assert timing.median > 0


def test_an_address_of_the_device_is_never_one_of_the_cpu(server: Server) -> None:
    """A client that names the CPU for memory of the device, and the other way round."""
    with Peer(server) as peer:
        peer.shake()
        peer.start()
        bytes_dtype = struct.pack("<iBBHi", 5, 1, 8, 1, 0)
        there = peer.handle(13, device(12), integer(64), integer(64), bytes_dtype)
        here = peer.alloc(64)
        for data, kind in ((there, 1), (here, 12)):
            wrong = dl_tensor(data, (64,), kind=kind)
            assert "the request places the memory on" in message(peer.copy_in(wrong, bytes(64)))
            assert "the request places the memory on" in message(peer.copy_out(wrong, 64))
        for offset, size in ((0, 65), (64, 1), (2**63, 1)):
            beyond = dl_tensor(there, (size,), byte_offset=offset, kind=12)
            assert "beyond the allocation of 64 bytes" in message(peer.copy_in(beyond, bytes(size)))
        assert peer.copy_in(dl_tensor(there, (64,), kind=12), bytes(range(64)))[0] == 4
        assert peer.copy_out(dl_tensor(there, (64,), kind=12), 64)[1].endswith(bytes(range(64)))


class TestHere:
    """In one process, without a session."""

    def test_to_and_fro(self, null: NullDevice) -> None:
        x = fc.from_dlpack(X).to("ext_dev:0")
        null.array(x)[:] += 1
        np.testing.assert_array_equal(x.to("cpu").numpy(), X + 1)
        np.testing.assert_array_equal(x.to("ext_dev:1").to("cpu").numpy(), X + 1)
        assert null.allocated(0) == X.nbytes

    def test_between_kinds_of_device_in_pieces(self, null: NullDevice) -> None:
        other = NullDevice()
        fc.ffi.register_device_memory("hexagon", other)
        data = np.random.default_rng(0).integers(0, 255, (3 << 20) + 1).astype("uint8")
        moved = fc.from_dlpack(data).to("ext_dev:0").to("hexagon:0")
        assert (other.allocated(), null.allocated(0)) == (data.nbytes, 0)
        np.testing.assert_array_equal(moved.to("cpu").numpy(), data)
        del moved
        fc.ffi.register_device_memory("hexagon", None)
        other.check_empty()

    def test_a_strided_array_is_packed_on_its_way(self, null: NullDevice) -> None:
        assert fc.from_dlpack(X.T).to("ext_dev:0").to("cpu").numpy().tolist() == X.T.tolist()

    def test_a_new_tensor_is_zero(self, null: NullDevice) -> None:
        assert not fc.ffi.empty((3, 4), "int16", "ext_dev:0").to("cpu").numpy().any()

    def test_numpy_is_told_the_way(self, null: NullDevice) -> None:
        with pytest.raises(
            BufferError, match=r'numpy cannot see memory on ext_dev:0; .* \.to\("cpu"\) first'
        ):
            fc.from_dlpack(X).to("ext_dev:0").numpy()

    def test_tensors_outlive_the_registration(self) -> None:
        made = NullDevice()
        fc.ffi.register_device_memory("ext_dev", made)
        x = fc.from_dlpack(X).to("ext_dev:0")
        fc.ffi.register_device_memory("ext_dev", None)
        with pytest.raises(BufferError, match="farcall cannot copy from ext_dev:0 to cpu:0"):
            x.to("cpu")
        del x
        made.check_empty()

    @pytest.mark.parametrize("error", [KeyError("x"), MemoryError("none left")])
    def test_what_the_driver_raises(self, error: Exception) -> None:
        class Raising(NullDevice):
            def write(self, index: int, address: int, data: memoryview, /) -> None:
                raise error

        made = Raising()
        fc.ffi.register_device_memory("ext_dev", made)
        with pytest.raises(type(error)) as caught:
            fc.from_dlpack(X).to("ext_dev:0")
        assert caught.value is error
        fc.ffi.register_device_memory("ext_dev", None)
        made.check_empty()

    def test_a_driver_cannot_keep_the_bytes_that_it_is_lent(self) -> None:
        kept = []

        class Keeping(NullDevice):
            def read(self, index: int, address: int, out: memoryview, /) -> None:
                kept.append(out)
                super().read(index, address, out)

        fc.ffi.register_device_memory("ext_dev", Keeping())
        fc.from_dlpack(X).to("ext_dev:0").to("cpu")
        fc.ffi.register_device_memory("ext_dev", None)
        with pytest.raises(ValueError, match="released"):
            kept[0][0]

    @pytest.mark.parametrize(
        ("kind", "driver", "text"),
        [
            ("cpu", NullDevice(), "the CPU's memory needs no driver"),
            ("abacus", NullDevice(), "abacus"),
            ("ext_dev", object(), "`object` has no method attribute, allocate, release, write, read, copy"),
        ],
    )
    def test_mistakes_at_the_registration(self, kind: str, driver: NullDevice, text: str) -> None:
        with pytest.raises((ValueError, TypeError), match=re.escape(text)):
            fc.ffi.register_device_memory(kind, driver)


class TestNullDevice:
    """The null device detects accesses that would damage real hardware."""

    def test_an_access_beyond_an_allocation(self) -> None:
        null = NullDevice()
        address = null.allocate(0, 16)
        null.write(0, address + 8, memoryview(bytes(8)))
        for at, size in ((address, 17), (address + 16, 1), (address - 1, 1), (address + 64, 1), (0, 1)):
            with pytest.raises(IndexError, match=f"{size} bytes at {at:#x} are not inside an allocation"):
                null.write(0, at, memoryview(bytes(size)))
        with pytest.raises(IndexError):
            null.write(1, address, memoryview(bytes(1)))

    def test_a_second_release(self) -> None:
        null = NullDevice()
        address = null.allocate(0, 16)
        null.release(0, address)
        with pytest.raises(ValueError, match="was it released twice"):
            null.release(0, address)

    def test_what_was_never_released(self) -> None:
        null = NullDevice()
        null.allocate(0, 16)
        with pytest.raises(AssertionError, match="never released: 16 bytes at 0x10000000000 of device 0"):
            null.check_empty()
