"""A private certificate authority in a directory: one key that signs for hosts and clients.

Keys are ECDSA on P-256, which every TLS library accepts. The certificate of a host is valid for
servers and clients: a joining node presents the same certificate to the other nodes. The authority
may sign certificates, but no further authorities.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from weft.errors import InvalidArgument

#: Clocks differ: a certificate is valid from a little before its creation.
_SKEW: Final = timedelta(minutes=5)
_SERVER: Final = ExtendedKeyUsageOID.SERVER_AUTH
_CLIENT: Final = ExtendedKeyUsageOID.CLIENT_AUTH
#: X.509 limits the common name; the alternative name has the full host.
_COMMON_NAME_MAX: Final = 64


class Authority:
    """`plan` and then `create` make a new authority; `load` reads an existing one."""

    def __init__(
        self, folder: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate | None
    ) -> None:
        self._folder = folder
        self._key = key
        self._certificate = certificate

    @classmethod
    def plan(cls, folder: Path) -> Authority:
        """Returns a new authority that is not on disk yet."""
        return cls(folder, _new_key(), None)

    @classmethod
    def load(cls, folder: Path) -> Authority:
        """Loads the authority in `folder`; raises InvalidArgument when there is none."""
        try:
            key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
            certificate = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
        except OSError as error:
            raise InvalidArgument(
                f"{error.filename} cannot be read ({error.strerror}): `weft tls init` makes an "
                "authority"
            ) from None
        except (ValueError, TypeError) as error:
            raise InvalidArgument(
                f"ca.pem and ca.key in {folder} are not of `weft tls init`: {error}"
            ) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise InvalidArgument(f"{folder}/ca.key is not a key of `weft tls init`")
        return cls(folder, key, certificate)

    def create(self, days: int, hosts: Sequence[str], clients: Sequence[str]) -> list[Path]:
        """Writes the authority, if no file of the authority, these hosts and clients exists."""
        self._check_free(["ca", *_file_names(hosts, clients)])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Weft private authority")])
        usage = _usage(sign_certificates=True)
        self._certificate = (
            _builder(subject, subject, self._key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._write("ca", self._key, self._certificate)

    def sign_all(self, hosts: Sequence[str], clients: Sequence[str], days: int) -> list[Path]:
        """Writes keys and certificates for hosts and clients; no file may exist."""
        names = _file_names(hosts, clients)
        self._check_free(names)
        files: list[Path] = []
        for number, (name, subject) in enumerate(zip(names, (*hosts, *clients), strict=True)):
            key = _new_key()
            signed = self._sign(subject, key, days, is_host=number < len(hosts))
            files += self._write(name, key, signed)
        return files

    def _sign(
        self, name: str, key: ec.EllipticCurvePrivateKey, days: int, *, is_host: bool
    ) -> x509.Certificate:
        assert self._certificate is not None, "an authority signs when it is made"
        common = x509.NameAttribute(NameOID.COMMON_NAME, name[:_COMMON_NAME_MAX])
        purposes = [_SERVER, _CLIENT] if is_host else [_CLIENT]
        builder = (
            _builder(x509.Name([common]), self._certificate.subject, key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(sign_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if is_host:
            names = x509.SubjectAlternativeName([_alternative_name(name)])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _check_free(self, names: Iterable[str]) -> None:
        """All or nothing: no file is written if one of them exists."""
        for name in names:
            for ending in ("pem", "key"):
                path = self._folder / f"{name}.{ending}"
                if path.exists():
                    raise InvalidArgument(
                        f"{path} exists and is not overwritten: name another directory, remove it, "
                        "or sign more hosts with the same authority (weft tls sign)"
                    )

    def _write(
        self, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
    ) -> list[Path]:
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        public = certificate.public_bytes(serialization.Encoding.PEM)
        files = []
        for ending, data, mode in (("key", secret, 0o600), ("pem", public, 0o644)):
            path = self._folder / f"{name}.{ending}"
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            files.append(path)
        return files


def file_name(host: str) -> str:
    """Returns the file name of a host: an IPv6 address has colons."""
    return host.replace(":", "_")


def _file_names(hosts: Sequence[str], clients: Sequence[str]) -> list[str]:
    return [*map(file_name, hosts), *(f"client-{name}" for name in clients)]


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates, key_cert_sign=sign_certificates,
        crl_sign=sign_certificates, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
