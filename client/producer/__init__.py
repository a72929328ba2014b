"""Push: batches, the accumulator, and bulk input."""
