"""What a session's functions print on the server, for the client."""

from __future__ import annotations

import codecs
import threading

from farcall.errors import ProtocolError, RemoteError
from farcall.rpc.client._remote import Remote

_NAME = "farcall.rpc.output"


class Output:
    """Reads the output of one session, each part once."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._known = 0  # bytes that have been read, or are lost
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._lock = threading.Lock()

    def read(self) -> str:
        """The text that is new; see :meth:`farcall.rpc.Session.output`."""
        with self._lock:
            begin, data = self._fetch()
            lost, self._known = begin - self._known, begin + len(data)
            if not lost:
                return self._decoder.decode(data)
            self._decoder.reset()
            return f"[{lost:,} bytes of output are lost here]\n{self._decoder.decode(data)}"

    def _fetch(self) -> tuple[int, bytes]:
        url, function = self._remote.url, self._remote.helper_or_none(_NAME)
        if function is None:
            raise RemoteError(
                f"{url} keeps no output of its functions: it is a small server, TVM's, or an older one; "
                "read what that server itself prints (`farcall device logs`, if a launcher started it)"
            )
        match function(self._known):
            case (int(begin), bytes(data)) if begin >= self._known:
                return begin, data
            case answer:
                raise ProtocolError(f"{url} answered `{_NAME}` with {answer!r:.80}")
