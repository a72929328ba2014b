"""Derives the synchronous client from the asyncio client.

The reasons are in docs/decisions/039-derived-sync-facade.md.
"""
