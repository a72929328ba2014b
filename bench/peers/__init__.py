"""Weft compared with its peers: the same work, on one machine, in one run (`make bench`).

A *system* is a server with settings and a client with the best documented batching (`systems.py`).
A *workload* is the work that a system does (`workloads.py`). The run (`race.py`) repeats every
workload and alternates the systems within each repetition, so that a slow minute of the machine
affects all systems. The run starts every server on loopback and free ports, with data in a
temporary folder, and stops every server by process id.
"""
