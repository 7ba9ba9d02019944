"""Made by ``farcall idl`` from farcall_dsp.idl. Change that file, not this one."""

from __future__ import annotations

from farcall.idl import runtime as idl

_farcall_dsp_init = idl.Method("init", 2, (idl.Parameter("in", "memory", idl.scalar("uint64")),))
_farcall_dsp_send = idl.Method(
    "send",
    3,
    (
        idl.Parameter("in", "data", idl.Sequence(idl.scalar("octet"))),
        idl.Parameter("in", "last", idl.scalar("boolean")),
        idl.Parameter("rout", "taken", idl.scalar("uint32")),
    ),
)
_farcall_dsp_receive = idl.Method(
    "receive",
    4,
    (
        idl.Parameter("in", "wait_ms", idl.scalar("uint32")),
        idl.Parameter("rout", "data", idl.Sequence(idl.scalar("octet"))),
        idl.Parameter("rout", "written", idl.scalar("uint32")),
        idl.Parameter("rout", "ended", idl.scalar("boolean")),
    ),
)


class farcall_dsp(idl.Stub):
    URI = "file:///libfarcall_dsp_skel.so?farcall_dsp_skel_handle_invoke&_modver=1.0"

    def init(self, memory: int) -> None:
        self._invoke(_farcall_dsp_init, memory)

    def send(self, data: idl.Numbers, last: int) -> int:
        return self._invoke(_farcall_dsp_send, data, last)  # type: ignore[no-any-return]

    def receive(self, wait_ms: int, data: int) -> tuple[bytes, int, int]:
        return self._invoke(_farcall_dsp_receive, wait_ms, data)  # type: ignore[no-any-return]
