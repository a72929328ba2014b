"""`weft doctor` on security: findings in settings, tokens, certificates and clocks."""

from __future__ import annotations

import json
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.contract.authority import Authority
from weft.client.cli.doctor import certificate, security
from weft.client.cli.main import cli
from weft.server.security import token_file

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def look(tmp_path: Path, text: str) -> dict[str, list[tuple[str, str]]]:
    file = tmp_path / "weft.toml"
    file.write_text(text)
    told = CliRunner().invoke(cli, ["doctor", "--config", str(file), "--json"], env={})
    found: dict[str, list[tuple[str, str]]] = {}
    for one in json.loads(told.stdout):
        found.setdefault(one["check"], []).append((one["level"], one["found"]))
    assert told.exit_code == any(level == "FAIL" for each in found.values() for level, _ in each)
    return found


def test_a_node_for_this_machine_alone(tmp_path: Path) -> None:
    found = look(tmp_path, f'data = "{tmp_path}"\n')
    assert found["listening"] == [("OK", "on this machine only")]
    assert "tokens" not in found


def test_insecure_settings_and_such_that_would_not_start(tmp_path: Path) -> None:
    found = look(tmp_path, 'listen = "0.0.0.0:7700"\ninsecure = true\n')
    ((level, words),) = found["listening"]
    assert level == "FAIL"
    assert "without tls_cert and tokens" in words
    refused = look(tmp_path, 'listen = "0.0.0.0:7700"\n')
    assert refused[str(tmp_path / "weft.toml")][0][0] == "FAIL"


def test_files_that_others_may_read_and_what_ends_soon(tmp_path: Path) -> None:
    pair = Authority(tmp_path).sign("node")  # two days
    file = tmp_path / "tokens.json"
    token_file.create(file, "old", ["push:*"], int(time.time()) - 10)
    token_file.create(file, "soon", ["push:*"], int(time.time()) + 3600)
    token_file.create(file, "boss", ["admin:*"], 0)
    file.chmod(0o644)
    pair.key.chmod(0o640)
    found = look(
        tmp_path,
        f'listen = "0.0.0.0:7700"\ntokens = "{file}"\ntls_cert = "{pair.cert}"\n'
        f'tls_key = "{pair.key}"\n',
    )
    assert found["listening"][0][0] == "OK"
    levels = {words.partition(":")[0].partition(" ")[0]: level
                  for level, words in found["tokens"]}  # fmt: skip
    assert levels == {
        str(file): "FAIL", "expired": "WARN", "expire": "WARN", "admin": "WARN",
    }  # fmt: skip
    assert found["tls_key"][0][0] == "FAIL"
    assert found["tls_cert"][0][0] == "WARN"
    assert found["quotas"][0][0] == "WARN"
    file.chmod(0o600)
    pair.key.chmod(0o600)
    again = look(tmp_path, f'tokens = "{file}"\ntls_cert = "{pair.cert}"\ntls_key = "{pair.key}"\n')
    assert ("OK", f"only the owner can access {file}") in again["tokens"]
    assert again["tls_key"][0][0] == "OK"


@pytest.mark.parametrize(("days", "level"), [(100, "OK"), (20, "WARN"), (-1, "FAIL")])
def test_when_a_certificate_ends(days: int, level: str) -> None:
    assert security.judge_expiry("c", NOW + timedelta(days=days), NOW).level == level


@pytest.mark.parametrize(
    ("there", "level"), [(100.0, "OK"), (101.4, "OK"), (90.0, "WARN"), (200.0, "FAIL"), (0, "WARN")]
)
def test_a_clock_is_judged_by_more_than_the_round_trip(there: float, level: str) -> None:
    assert security.judge_skew("s", there, 99.5, 100.5).level == level


def test_plain_text_beyond_this_machine_is_said() -> None:
    assert security.check_path("10.0.0.1:7700", secure=False).level == "WARN"
    assert security.check_path("127.0.0.1:7700", secure=False).level == "OK"
    assert security.check_path("10.0.0.1:7700", secure=True).level == "OK"


def test_the_end_of_a_certificate_is_what_openssl_says(tmp_path: Path) -> None:
    pair = Authority(tmp_path).sign("node")
    for path in (pair.cert, tmp_path / "ca.pem"):
        told = subprocess.run(
            ["openssl", "x509", "-enddate", "-noout", "-in", str(path)],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        words = told.stdout.strip().removeprefix("notAfter=")
        expected = datetime.strptime(words, "%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC)
        assert certificate.of_file(str(path)) == expected


@pytest.mark.parametrize("der", [b"", b"\x30", b"\x30\x05abc", b"\x30\x80" + b"\x00" * 9])
def test_what_is_no_certificate_is_a_value_error(der: bytes) -> None:
    with pytest.raises(ValueError):
        certificate.not_after(der)
