"""Engines: token-in token-out backends, the codec between messages and ids, and the shipped tiny policy.

`make_engine(spec)` builds one from "scripted:FILE", "transformers:DIR", and so on. Imports only plain data.
"""
