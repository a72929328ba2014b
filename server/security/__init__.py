"""Tokens, access checks, quotas, TLS, keys and the audit log of a node."""
