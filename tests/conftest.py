"""What holds for every test."""

from __future__ import annotations

import signal

# A shell that starts the tests in the background has SIGINT ignored, and every process started
# from here would inherit that; tests that interrupt a command need it to listen.
signal.signal(signal.SIGINT, signal.default_int_handler)
