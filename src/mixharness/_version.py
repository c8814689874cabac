"""The package's version, in one place, readable without importing the package."""

__version__ = "0.1.0"
