"""Elastic workers: `weft provision` starts and stops workers as the load of an app asks."""
