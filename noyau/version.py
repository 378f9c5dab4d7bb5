"""The version of noyau, for the package's metadata, its caches and its reports."""

__version__ = "0.1.0.dev0"
