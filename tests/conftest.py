"""Settings for every test."""

from __future__ import annotations

import signal

# A shell that starts the tests in the background ignores SIGINT, and every process started from
# here would inherit that; tests that interrupt a command need the default handler.
signal.signal(signal.SIGINT, signal.default_int_handler)
