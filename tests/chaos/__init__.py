"""Real clusters under real faults and load: ``python -m tests.chaos --help``.

A *run* starts a cluster of node processes, sets producers and consumers on it, lets one *scenario*
do its harm, waits until all is well again, drains the queue, and judges what everybody wrote down.
"""
