"""
A table of health spending, of any size
=======================================

Shaped like the monthly files of Open DAMIR, the reimbursements of the French health insurance: 55 columns, semicolons,
codes as numbers and as texts, amounts with two decimals, some of them negative, some missing. The values are random;
where one column hangs on another, as an amount on what was done, so it does here. Run::

    python examples/health_table.py damir.csv --rows 1000000
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

PART = 1 << 16  # rows
AMOUNTS = ("PRS_PAI_MNT", "PRS_REM_BSE", "PRS_REM_MNT", "PRS_DEP_MNT", "FLT_PAI_MNT", "FLT_DEP_MNT", "FLT_REM_MNT")
COUNTS = ("PRS_ACT_COG", "PRS_ACT_NBR", "PRS_ACT_QTE", "FLT_ACT_COG", "FLT_ACT_NBR", "FLT_ACT_QTE")
TEXTS = {"ETE_IND_TAA": ("DAF", "T2A", "OQN"), "PRS_REM_TYP": ("AMO", "AMC", "CMU", "AME"), "MTM_NAT": ("A", "N", "I")}
# The number of codes of each other column.
_CODES = """
ORG_CLE_REG 14, AGE_BEN_SNDS 8, BEN_RES_REG 14, BEN_CMU_TOP 2, BEN_QLT_COD 5, BEN_SEX_COD 3, DDP_SPE_COD 30,
ETE_CAT_SNDS 40, ETE_REG_COD 14, ETE_TYP_SNDS 9, ETP_REG_COD 14, ETP_CAT_SNDS 40, MDT_TYP_COD 20, MFT_COD 30,
PRS_FJH_TYP 6, SOI_MOI 12, ASU_NAT 9, ATT_NAT 9, CPL_COD 20, CPT_ENV_TYP 6, DRG_AFF_NAT 9, EXO_MTF 60,
PRS_NAT 900, PRS_PPU_SEC 3, PRS_PDS_QCP 9, EXE_INS_REG 14, PSE_ACT_SNDS 5, PSE_ACT_CAT 9, PSE_SPE_SNDS 60,
PSE_STJ_SNDS 9, PRE_INS_REG 14, PSP_ACT_SNDS 5, PSP_ACT_CAT 9, PSP_SPE_SNDS 60, PSP_STJ_SNDS 9,
TOP_PS5_TRG 2
"""
CODES = {name: int(codes) for name, codes in (each.split() for each in _CODES.split(","))}


def part(rng: np.random.Generator, rows: int, month: int) -> pa.Table:
    """Some rows of one month: few codes are frequent, as of Zipf's law."""
    table: dict[str, object] = {"FLX_ANN_MOI": np.full(rows, month), "SOI_ANN": np.full(rows, month // 100)}
    table |= {name: (rng.zipf(1.3, rows) - 1) % codes + 1 for name, codes in CODES.items()}
    table |= {name: np.array(texts)[rng.integers(0, len(texts), rows)] for name, texts in TEXTS.items()}
    quantity = rng.integers(1, 30, rows)
    table |= dict.fromkeys(COUNTS, quantity)
    paid = np.round(quantity * (5 + table["PRS_NAT"] % 90) * np.where(rng.random(rows) < 0.01, -1, 1), 2)  # type: ignore[operator]
    rate = np.array([0.15, 0.3, 0.65, 0.7, 1.0])[rng.integers(0, 5, rows)]
    table |= {name: paid if name.endswith(("PAI_MNT", "BSE")) else np.round(paid * rate, 2) for name in AMOUNTS}
    table["PRS_DEP_MNT"] = pa.array(np.round(paid * rng.random(rows), 2), mask=rng.random(rows) < 0.3)
    table["PRS_REM_TAU"] = np.round(100 * rate)
    return pa.table(table)


def write(path: Path, rows: int, seed: int = 0, month: int = 202401) -> None:
    """The table as a CSV with semicolons: the same bytes for the same arguments."""
    rng, writer = np.random.default_rng(seed), None
    for start in range(0, rows, PART):
        table = part(rng, min(PART, rows - start), month)
        writer = writer or csv.CSVWriter(path, table.schema, write_options=csv.WriteOptions(delimiter=";"))
        writer.write_table(table)
    if writer is not None:
        writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a table of health spending.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--month", type=int, default=202401)
    arguments = parser.parse_args()
    write(arguments.path, arguments.rows, arguments.seed, arguments.month)


if __name__ == "__main__":
    main()
