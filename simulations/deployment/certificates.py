"""Certificates and keys of a deployment that lives as long as a demonstration does.

A certificate authority signs the SuperLink's certificate and is forgotten: its private key never reaches the disk.
Each SuperNode has a key pair of its own, whose public half is registered with the SuperLink.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID

PrivateKey = ec.EllipticCurvePrivateKey | Ed25519PrivateKey

# A clock that is a little behind would find a certificate of this moment not valid yet.
_CLOCK_SKEW = timedelta(minutes=5)
_VALIDITY = timedelta(days=1)


@dataclass(frozen=True)
class Certificates:
    """Files of a SuperLink's TLS: whom to trust, the certificate, and its private key."""

    authority: Path
    certificate: Path
    key: Path = field(repr=False)


@dataclass(frozen=True)
class NodeKey:
    """Files of a SuperNode's key pair, in OpenSSH's format, which Flower reads."""

    private: Path = field(repr=False)
    public: Path


def make_certificates(folder: Path) -> Certificates:
    """A certificate for this machine and the authority that signed it, as files in the folder."""
    authority_key, server_key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    issuer = _name("fedhist demonstration authority")
    loopback = [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")]
    authority = (
        _builder(issuer, issuer, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    certificate = (
        _builder(_name("127.0.0.1"), issuer, server_key.public_key())
        .add_extension(x509.SubjectAlternativeName(loopback), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
        .sign(authority_key, hashes.SHA384())
    )
    files = Certificates(folder / "ca.crt", folder / "server.pem", folder / "server.key")
    files.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_secret(files.key, server_key, serialization.PrivateFormat.PKCS8)
    return files


def make_node_key(folder: Path, name: str) -> NodeKey:
    """A key pair with which a SuperNode shows who it is."""
    return _write_pair(folder, name, ec.generate_private_key(ec.SECP384R1()))


def make_identity(folder: Path, name: str) -> NodeKey:
    """A key pair with which a participant signs in signed masking."""
    return _write_pair(folder, name, Ed25519PrivateKey.generate())


def _write_pair(folder: Path, name: str, key: PrivateKey) -> NodeKey:
    files = NodeKey(folder / f"{name}.key", folder / f"{name}.pub")
    _write_secret(files.private, key, serialization.PrivateFormat.OpenSSH)
    files.public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    )
    return files


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _VALIDITY)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _write_secret(path: Path, key: PrivateKey, form: serialization.PrivateFormat) -> None:
    """For the owner's eyes alone from the first moment on."""
    data = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
