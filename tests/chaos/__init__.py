"""Real clusters under real faults and load: ``python -m tests.chaos --help``.

A *run* starts a cluster of node processes, runs producers and consumers against it, lets one
*scenario* inject its faults, waits until the cluster has recovered, drains the queue, and checks
the journals of all processes.
"""
