"""Evidence: values against float64, adversarial inputs, and the certificate of a kernel."""

from pathlib import Path
from typing import Any

from noyau.verify import reports


def _save(report: Any, path: Path) -> None:
    from noyau.jobs.check.page import report_page

    report_page(report).save(path)


reports.SAVERS.append(_save)
