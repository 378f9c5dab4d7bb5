"""Tables and queries of databases by URL, `sqlite:///x.db::sales`; credentials are sent to the database only."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from noyau.errors import InputError, MissingExtraError

_DRIVERS = {"duckdb": "_duckdb", "sqlite": "adbc_driver_sqlite", "postgresql": "adbc_driver_postgresql"}
_SECRETS = re.compile(r"(?i)\b(password|sslpassword|passfile|sslkey)=([^&\s]*)")


@dataclass(frozen=True)
class Place:
    """A table or a query (`what`) of a database."""

    url: str
    what: str

    @property
    def kind(self) -> str:
        return self.url.partition("://")[0]

    @property
    def driver(self) -> str:
        """The module that contains the driver."""
        return _DRIVERS[self.kind]

    @property
    def path(self) -> str:
        """The file of SQLite or DuckDB."""
        return self.url.partition("://")[2].removeprefix("/")

    @property
    def absolute(self) -> Place:
        """The place with an absolute path, which is valid in any working folder."""
        return self if self.kind == "postgresql" else replace(self, url=f"{self.kind}:///{Path(self.path).absolute()}")

    @property
    def is_query(self) -> bool:
        return bool(re.search(r"\s", self.what))

    @property
    def label(self) -> str:
        """The place as text without secrets."""
        return self.without_secrets(f"{self.url}::{self.what}")

    @property
    def sql(self) -> str:
        """The SQL text after FROM."""
        return f"({self.what}) AS source" if self.is_query else quote_name(self.what)

    def without_secrets(self, text: str) -> str:
        """A text without the user and the password of the URL, quoted or not."""
        parts = urlsplit(self.url)
        if "@" in parts.netloc:
            text = text.replace(f"{parts.netloc.rpartition('@')[0]}@", "")
            text = text.replace(f'user "{unquote(parts.username or "")}"', "this user")
        words = [parts.password or "", *(match[2] for match in _SECRETS.finditer(parts.query))]
        text = _SECRETS.sub(r"\1=...", text)
        for word in filter(None, {*words, *map(unquote, words)}):
            text = text.replace(word, "...")
        return text


def quote_name(name: str) -> str:
    """The quoted SQL name of a table or a column, also of `schema.table`."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def place_of(text: Any) -> Place | None:
    """The place that a text names; None if it is no URL of a database. InputError if it names no table,
    MissingExtraError if a driver is not installed."""
    url, _, what = str(text).partition("::")
    place = Place(url, what.strip())
    if not isinstance(text, str) or "://" not in url or place.kind not in _DRIVERS:
        return None
    if not place.what:
        raise InputError(f"{place.label.rstrip(':')} names no table: write URL::TABLE, or URL::SELECT ...")
    if not all(map(find_spec, (place.driver, "adbc_driver_manager", "pyarrow"))):
        raise MissingExtraError(f"{place.label} needs {place.driver}; run: pip install 'noyau-kernels[sql]'")
    return place
