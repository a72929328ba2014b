"""The driver: runs the pure node core with a clock, a disk and sockets."""
