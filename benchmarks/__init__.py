"""Benchmarks: task formats and graders, one file each; starter/ is the embedded suite.

`get_benchmark(name, path=None)` finds one; `located()` lists those whose files are here. May import
sandboxes (graders run in one).
"""
