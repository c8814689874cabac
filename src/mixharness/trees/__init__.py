"""Calls, the prefix tree they form, their classification, the trajectories that train, the ledger.

Imports only engines' plain data.
"""
