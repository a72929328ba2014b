"""Packages of Node.js programs, installed by npm from a package.json into the cache."""

from __future__ import annotations

import shutil
from pathlib import Path

from . import build_cache


def installed(manifest: Path) -> Path:
    """The folder `node_modules` for a package.json, for the variable NODE_PATH."""
    build_cache.required("node")
    npm = build_cache.required("npm")

    def build(draft: Path) -> None:
        shutil.copy(manifest, draft)
        # Scripts of packages are not run: none of the packages needs a build.
        command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts"]
        build_cache.run(command, draft)

    key = f"{manifest.parent.name}-npm-{build_cache.hash_of([manifest])}"
    return build_cache.entry(key, build) / "node_modules"
