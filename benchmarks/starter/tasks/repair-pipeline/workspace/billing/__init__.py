"""Monthly bills."""

__version__ = "1.4.2"
