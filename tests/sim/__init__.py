"""The simulator: real node cores in a simulated world with faults, driven by a seed."""
