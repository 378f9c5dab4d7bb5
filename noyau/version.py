"""The version of noyau, as the package's metadata, its caches and its reports have it."""

__version__ = "0.1.0.dev0"
