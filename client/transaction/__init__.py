"""Transactions: acks, pushes and table writes that happen together, or not at all."""
