"""`weft tls init` and `sign`: the files made, their validity, and refusals."""

from __future__ import annotations

import ipaddress
import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from weft.client.cli.main import cli


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tls(*words: str) -> Result:
    return CliRunner().invoke(cli, ["tls", *words])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_keys_are_their_owners_and_certificates_name_their_hosts(folder: Path) -> None:
    assert tls("init", "certs", "--hosts", "a.example,10.0.0.1", "--client", "shop").exit_code == 0
    certs = folder / "certs"
    assert stat.S_IMODE(certs.stat().st_mode) == 0o700
    names = {"ca", "a.example", "10.0.0.1", "client-shop"}
    assert set(contents(certs)) == {f"{name}.{end}" for name in names for end in ("pem", "key")}
    for key in certs.glob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600, key
    read = {
        name: x509.load_pem_x509_certificate((certs / f"{name}.pem").read_bytes()) for name in names
    }
    for name, alternative in (
        ("a.example", x509.DNSName("a.example")),
        ("10.0.0.1", x509.IPAddress(ipaddress.ip_address("10.0.0.1"))),
    ):
        found = read[name].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert list(found) == [alternative]
        read[name].verify_directly_issued_by(read["ca"])
    uses = read["client-shop"].extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [ExtendedKeyUsageOID.CLIENT_AUTH], "a client cannot pass for a node"


def test_nothing_is_overwritten_and_more_hosts_are_signed_later(folder: Path) -> None:
    assert tls("init", "certs", "--hosts", "a.example").exit_code == 0
    before = contents(folder / "certs")
    for words in (
        ("init", "certs", "--hosts", "b.example"),
        ("sign", "certs", "--hosts", "b.example,a.example"),
    ):
        refused = tls(*words)
        assert (refused.exit_code, "is not overwritten" in refused.stderr) == (2, True)
    assert contents(folder / "certs") == before
    told = tls("sign", "certs", "--hosts", "::1", "--json")
    assert json.loads(told.stdout)["files"] == ["certs/__1.key", "certs/__1.pem"]
    made = x509.load_pem_x509_certificate((folder / "certs" / "__1.pem").read_bytes())
    made.verify_directly_issued_by(x509.load_pem_x509_certificate(before["ca.pem"]))


@pytest.mark.parametrize(
    "words",
    [
        ("init", "other", "--hosts", "a.example:7700"),
        ("init", "other", "--hosts", ""),
        ("init", "other", "--hosts", "a,a"),
        ("init", "other", "--hosts", "https://a"),
        ("init", "other", "--hosts", "../a"),
        ("init", "other", "--hosts", "a", "--client", "x/y"),
        ("init", "other", "--hosts", "a", "--days", "0"),
        ("sign", "other", "--hosts", "a"),
        ("sign", "other"),
    ],
)
def test_what_is_no_host_or_has_no_authority_is_refused(folder: Path, words: list[str]) -> None:
    assert tls(*words).exit_code == 2
    assert not (folder / "other").exists()


def test_the_commands_follow_the_hosts(folder: Path) -> None:
    told = tls("init", "certs", "--hosts", "127.0.0.1,b.example,::1", "--port", "9000", "--json")
    commands = json.loads(told.stdout)["commands"]
    assert "--listen 127.0.0.1:9000 " in commands["nodes"]["127.0.0.1"]
    assert "--listen 0.0.0.0:9000 --advertise b.example" in commands["nodes"]["b.example"]
    assert "--listen [::1]:9000 --join 127.0.0.1:9000" in commands["nodes"]["::1"]
    assert "--tls-client-ca" not in json.dumps(commands)
    assert commands["client"].startswith(
        "export WEFT_SERVERS=127.0.0.1:9000,b.example:9000,[::1]:9000 WEFT_TLS=certs/ca.pem"
    )
