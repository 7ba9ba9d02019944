"""The scope that a token needs for each function that every server has; new functions must be added."""

from __future__ import annotations

from pathlib import Path

import pytest

from farcall import _core
from farcall.rpc.server import _dispatch
from farcall.rpc.server._dispatch import Policy
from farcall.rpc.server._scopes import Scope
from farcall.rpc.shared._limits import Limits

NEEDS = {
    "farcall.rpc.clock": Scope(0),
    "farcall.rpc.trace_begin": Scope(0),
    "farcall.rpc.trace_take": Scope(0),
    "farcall.rpc.functions": Scope.CALL,
    "farcall.rpc.items": Scope.CALL,
    "farcall.rpc.plain_items": Scope.CALL,
    "farcall.rpc.output": Scope.CALL,
    "runtime.RPCTimeEvaluator": Scope.CALL,
    "farcall.rpc.device_function": Scope.CALL | Scope.RELAY,
    "farcall.rpc.device_module": Scope.FILES | Scope.LOAD | Scope.RELAY,
    "farcall.rpc.have": Scope.FILES,
    "farcall.rpc.known": Scope.FILES,
    "farcall.rpc.read": Scope.FILES,
    "farcall.rpc.share": Scope.FILES,
    "farcall.rpc.size": Scope.FILES,
    "farcall.rpc.write": Scope.FILES,
    "tvm.rpc.server.download": Scope.FILES,
    "tvm.rpc.server.listdir": Scope.FILES,
    "tvm.rpc.server.remove": Scope.FILES,
    "tvm.rpc.server.upload": Scope.FILES,
    "tvm.rpc.server.workpath": Scope.FILES,
    "tvm.rpc.server.download_linked_module": Scope.FILES | Scope.LOAD,
    "farcall.rpc.debug": Scope.LOAD,
    "farcall.rpc.module_functions": Scope.LOAD,
    "farcall.rpc.sessions": Scope.LOAD,
    "farcall.rpc.traceback": Scope.LOAD,
    "ffi.ModuleGetFunctionMetadata": Scope.LOAD,
    "ffi.ModuleGetKind": Scope.LOAD,
    "ffi.ModuleInspectSource": Scope.LOAD,
    "ffi.SystemLib": Scope.LOAD,
    "tvm.rpc.server.ImportModule": Scope.LOAD,
    "tvm.rpc.server.ModuleGetFunction": Scope.LOAD,
    "tvm.rpc.server.load_module": Scope.LOAD,
}


def test_each_standard_function_needs_what_its_name_says(tmp_path: Path) -> None:
    policy = Policy(tmp_path, Limits(), store=tmp_path / "store")
    found = {}
    for name in policy._own:
        answer = policy.find(name)
        assert answer is not None
        found[name] = Scope(answer[1])
    assert found == NEEDS


def test_a_standard_function_without_a_scope_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_dispatch, "standard_functions", lambda *_: {"farcall.rpc.forgotten": print})
    with pytest.raises(LookupError, match=r"`farcall.rpc.forgotten` has no scope; add it to the table"):
        Policy(tmp_path, Limits())


@pytest.mark.parametrize(
    ("name", "scope"),
    [("tests.scopes.exported", Scope.CALL), ("tvm.rpc.server.GetCRTMaxPacketSize", Scope(0))],
)
def test_a_function_that_the_user_exports_needs_call_unless_its_name_says_otherwise(
    name: str, scope: Scope, tmp_path: Path
) -> None:
    _core.register_global_func(name, lambda: None, True)
    answer = Policy(tmp_path, Limits()).find(name)
    assert answer is not None
    assert answer[1] == scope
