"""Sandboxes: docker, bubblewrap and (by name only) process; the image they share.

`get_provider(name)` chooses; "auto" is docker, then bubblewrap, else an error that names both fixes.
Imports only plain data.
"""
