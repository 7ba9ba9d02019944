"""The certificates of one peer of a TLS connection."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from farcall._files import unusable
from farcall.errors import UsageError

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True)
class Tls:
    """The files with which one peer proves its identity and checks that of the other. All are PEM.

    Attributes:
        ca: certificates of the authorities that sign the other peer's; None, on a client: those that the
            system trusts.
        cert: this peer's certificate, with the intermediate ones up to the other peer's ``ca``. A server
            needs one, and requires one of its clients.
        key: the private key of ``cert``.
    """

    ca: str | Path | None = None
    cert: str | Path | None = None
    key: str | Path | None = None

    @classmethod
    def of(cls, prefix: str | Path) -> Tls:
        """The files as `farcall cert` names them: the ``prefix`` ``certs/client`` stands for
        ``certs/client.pem``, ``certs/client.key`` and ``certs/ca.pem``.
        """
        path = Path(prefix)
        return cls(path.with_name("ca.pem"), Path(f"{path}.pem"), Path(f"{path}.key"))

    def client_context(self) -> ssl.SSLContext:
        """The context of a client, which checks the server's name.

        Raises:
            UsageError: a file cannot be read.
        """
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.ca is None:
            context.load_default_certs()
        return self._load(context)

    def server_context(self) -> ssl.SSLContext:
        """The context of a server, which requires a client certificate that ``ca`` signed.

        Raises:
            UsageError: a file cannot be read, or is missing.
        """
        if self.ca is None or self.cert is None or self.key is None:
            raise UsageError("a TLS server needs ca, cert and key; `farcall cert` makes them for a trial")
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        context.num_tickets = 0
        return self._load(context)

    def _load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        import ssl

        context.minimum_version = ssl.TLSVersion.TLSv1_3
        for name in ("ca", "cert", "key"):
            _check_readable(name, getattr(self, name))
        try:
            if self.ca is not None:
                context.load_verify_locations(self.ca)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except ssl.SSLError as error:
            files = ", ".join(str(file) for file in (self.ca, self.cert, self.key) if file is not None)
            reason = (error.reason or str(error)).lower().replace("_", " ")
            raise UsageError(f"TLS: {reason} ({files}); give PEM files that match") from None
        return context


def _check_readable(name: str, file: str | Path | None) -> None:
    """Check a file first, because OpenSSL does not say which file is missing."""
    if file is None:
        return
    try:
        Path(file).open("rb").close()
    except OSError as error:
        problem = f"TLS: {name} {str(file)!r}: {error.strerror}"
        raise unusable(error, f"{problem}; `farcall cert FOLDER` makes the files for a trial") from None
