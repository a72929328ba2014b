"""A health check without curl: requests a page and exits with 0 on status 200."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from typing import Final

#: Longer than the node's own deadline for the answer, shorter than the container engine's timeout.
TIMEOUT_S: Final = 6.0


def probe(url: str) -> tuple[int, str]:
    """The exit code and the page's text."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=TIMEOUT_S) as answer:
            return 0, answer.read(200).decode(errors="replace").strip()
    except urllib.error.HTTPError as error:
        with error:
            return 1, f"{error.code} {error.read(200).decode(errors='replace').strip()}"
    except OSError as error:
        return 1, str(error)


if __name__ == "__main__":
    code, said = probe(sys.argv[1])
    print(said)
    sys.exit(code)
