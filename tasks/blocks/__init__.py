"""Data blocks: files that tasks leave at their site, served to other sites by the workers."""
