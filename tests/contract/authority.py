"""Certificates for tests, made with openssl: an authority and the certificates it signs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest


class Pair(NamedTuple):
    cert: Path
    key: Path


class Authority:
    def __init__(self, folder: Path, name: str = "ca") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not installed")
        self._folder = folder
        self._name = name
        self.pair = Pair(folder / f"{name}.pem", folder / f"{name}.key")
        self._openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-days", "2", "-subj", f"/CN={name}", "-keyout", str(self.pair.key),
            "-out", str(self.pair.cert),
        )  # fmt: skip

    def sign(self, name: str) -> Pair:
        """A certificate for 127.0.0.1, valid for servers and clients."""
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request = self._folder / f"{name}.csr"
        self._openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-subj", f"/CN={name}", "-keyout", str(pair.key), "-out", str(request),
        )  # fmt: skip
        extra = self._folder / f"{name}.ext"
        extra.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        self._openssl(
            "x509", "-req", "-in", str(request), "-CA", str(self.pair.cert),
            "-CAkey", str(self.pair.key), "-CAcreateserial", "-days", "2",
            "-extfile", str(extra), "-out", str(pair.cert),
        )  # fmt: skip
        return pair

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)
