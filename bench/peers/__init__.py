"""Weft beside its peers: the same work, one machine, one run. Start it with `make bench`.

A *system* is a server with settings and a client with its best documented batching (`systems.py`).
A *workload* is what is done with it (`workloads.py`). The run (`race.py`) takes every workload,
repeats it, and lets the systems take turns within each repetition, so that a slow minute of the
machine falls on all of them. Every server is started by the run, on loopback and free ports, with
its data in a temporary folder, and is stopped by its own process id.
"""
