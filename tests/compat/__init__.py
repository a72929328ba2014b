"""Recordings of earlier versions, read by the present code."""
