"""Certificates for a trial: a private authority, a server's certificate and a client's."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farcall._extras import require
from farcall._files import write_beside
from farcall.errors import UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, CertificateBuilder, Name

__all__ = [
    "make_certificates",
]
__dir__ = __all__.copy


def make_certificates(folder: Path, names: Sequence[str], days: int) -> list[Path]:
    """Write ``ca.pem``, ``server.pem``, ``server.key``, ``client.pem`` and ``client.key``.

    The authority's key is not kept, so nobody can sign more certificates with it. If you need another, make
    all five again, or run a real authority.

    Args:
        folder: made if it does not exist.
        names: the host names or IP addresses by which clients connect to the server.
        days: until the certificates expire.

    Raises:
        MissingExtraError: cryptography is not installed.
        UsageError: a file cannot be written, or an argument is wrong.
    """
    if not names or not all(names):
        raise UsageError(f"a server's certificate needs the names that clients call it by, got {list(names)}")
    if not 1 <= days <= 3650:
        raise UsageError(f"certificates last 1 to 3650 days, got {days}")
    folder.mkdir(parents=True, exist_ok=True)
    authority = _Authority(days)
    written = [_write(folder / "ca.pem", _pem(authority.certificate), private=False)]
    for who, its_names in (("server", names), ("client", ())):
        certificate, key = authority.sign(who, its_names)
        written.append(_write(folder / f"{who}.pem", _pem(certificate), private=False))
        written.append(_write(folder / f"{who}.key", _key_pem(key), private=True))
    return written


def _crypto() -> tuple[Any, Any, Any]:
    """The modules x509, ec and serialization of cryptography."""
    require("tls", "`farcall cert`", "cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    return x509, ec, serialization


class _Authority:
    def __init__(self, days: int) -> None:
        x509, ec, _ = _crypto()
        self._days = days
        self._key: EllipticCurvePrivateKey = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("farcall trial authority")
        builder = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.certificate = self._signed(builder)

    def sign(self, who: str, names: Sequence[str]) -> tuple[Certificate, EllipticCurvePrivateKey]:
        x509, ec, _ = _crypto()
        key: EllipticCurvePrivateKey = ec.generate_private_key(ec.SECP256R1())
        usage = x509.ExtendedKeyUsageOID
        purpose = usage.SERVER_AUTH if who == "server" else usage.CLIENT_AUTH
        builder = self._builder(_name(f"farcall {who}"), key)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        if names:
            general = [_general_name(name) for name in names]
            builder = builder.add_extension(x509.SubjectAlternativeName(general), critical=False)
        return self._signed(builder), key

    def _builder(self, subject: Name, key: EllipticCurvePrivateKey) -> CertificateBuilder:
        x509, _, _ = _crypto()
        now, public = datetime.now(UTC), key.public_key()
        builder: CertificateBuilder = x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=subject,
            public_key=public,
            serial_number=x509.random_serial_number(),
            not_valid_before=now - timedelta(minutes=5),  # the peers' clocks may differ
            not_valid_after=now + timedelta(days=self._days),
        )
        ours = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        return builder.add_extension(ours, critical=False)

    def _signed(self, builder: CertificateBuilder) -> Certificate:
        from cryptography.hazmat.primitives import hashes

        return builder.sign(self._key, hashes.SHA256())


def _name(text: str) -> Name:
    x509, _, _ = _crypto()
    name: Name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
    return name


def _general_name(text: str) -> Any:
    x509, _, _ = _crypto()
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    try:
        return x509.DNSName(text)
    except ValueError as error:
        raise UsageError(f"--name {text!r}: {error}") from None


def _pem(certificate: Certificate) -> bytes:
    _, _, serialization = _crypto()
    data: bytes = certificate.public_bytes(serialization.Encoding.PEM)
    return data


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    _, _, s = _crypto()
    data: bytes = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
    return data


def _write(path: Path, data: bytes, *, private: bool) -> Path:
    write_beside(path, data, mode=0o600 if private else 0o644)
    return path
