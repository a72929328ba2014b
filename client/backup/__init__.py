"""Backup files: create and restore."""
