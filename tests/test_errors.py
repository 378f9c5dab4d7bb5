"""The reasons of errors, as messages give them."""

from __future__ import annotations

import errno
import os
import zipfile

import pytest

from noyau.errors import OutputError, first_line, output_errors, reason_of

ARROW = "Failed to open local file 'e.csv'. Detail: [errno 13] Permission denied"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "a.py"), "Permission denied"),
        (OSError(errno.EACCES, ARROW), "Permission denied"),
        (OSError(ARROW), "Permission denied"),
        (zipfile.BadZipFile("File is not a zip file"), "File is not a zip file"),
        (ValueError("a\nb"), "a"),
        (EOFError(), "EOFError"),
    ],
)
def test_a_reason_has_no_number_and_no_path(error, reason):
    assert reason_of(error) == reason


def test_what_cannot_be_written_says_why():
    message = r"^a\.json cannot be written: Read-only file system; give a folder"
    with pytest.raises(OutputError, match=message), output_errors("a.json"):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "a.json")


@pytest.mark.parametrize(("error", "line"), [(ValueError("\none\ntwo"), "one"), (KeyError(), "KeyError")])
def test_an_error_has_a_first_line(error, line):
    assert first_line(error) == line
