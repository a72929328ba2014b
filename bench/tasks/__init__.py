"""Tasks on Weft beside other task systems: ``python -m bench.tasks``."""
