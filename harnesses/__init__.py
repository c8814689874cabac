"""Harnesses, one file each: how to install, configure, launch and read it.

`get_harness(name)` and `harness_names()` look a harness up; third-party packages add theirs through the
entry-point group "mixharness.harnesses". May import sandboxes' and trees' plain data.
"""
