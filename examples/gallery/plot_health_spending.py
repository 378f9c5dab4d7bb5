"""Session 10: health spending by group, of a table that does not fit
===================================================================

The table has 55 columns, of which three are needed, semicolons, and codes as numbers and as texts: it is like the
monthly files of Open DAMIR, and `examples/health_table.py` writes it in any size. Groups with small numbers as keys
need no hash table: the key is the position. `noyau.reductions.GroupMoments` takes keys of any kind. The broken twin
numbers the texts of each chunk in the order in which they come: right for one chunk, and wrong as soon as two are
merged.

Run it: ``python examples/gallery/plot_health_spending.py`` (needs a C compiler and ``pip install
'noyau-kernels[stream]'``).
"""

from __future__ import annotations

import importlib.util
import runpy
import tempfile
from pathlib import Path

import numpy as np

import noyau

ROWS, REGIONS = 20_000, 15
PACKAGES = {"processes": "pyarrow", "dask": "dask", "spark": "pyspark"}


# %%
# A fold of small keys
# --------------------
# The reference of this op folds by a monoid, so noyau makes a kernel for a chunk and merges the sums. It never builds a
# table of keys, because the number of a region is its position.
@noyau.op("i64[n], f64[n] -> f64[regions]", sizes={"regions": REGIONS})
def spending(region, amount):
    out = np.zeros(REGIONS)
    np.add.at(out, region, amount)
    return out


def twin() -> type:
    """Sums by text, in which each chunk numbers its own texts."""

    @noyau.reduction
    class SumsByText:
        def zero(self):
            return np.zeros(8)

        def step(self, state, key, x):
            names = list(dict.fromkeys(key.tolist()))  # in the order in which they come
            code = np.array([names.index(each) for each in key.tolist()])
            return state + np.bincount(code, x, minlength=8)

        def merge(self, a, b):
            return a + b

        def finish(self, state):
            return state

        def inputs(self, rng, n):
            return {"key": rng.choice(["AMO", "AMC", "CMU"], n), "x": rng.normal(size=n)}

    return SumsByText


def main() -> None:
    table = runpy.run_path(str(Path(__file__).parent.parent / "health_table.py"))
    with tempfile.TemporaryDirectory() as folder:
        for month in (202401, 202402):
            table["write"](Path(folder) / f"{month}.csv", ROWS, month, month)
        months = f"{folder}/*.csv"

        # %%
        # By region
        # ---------
        # Only the bound columns are read. A condition is a text, or an expression of pyarrow.
        columns = {"region": "BEN_RES_REG", "amount": "PRS_PAI_MNT"}
        sums = noyau.stream(spending, months, columns=columns, memory="32M")
        print("rows:", sums.rows, "largest region:", int(np.argmax(sums.value)))
        women = noyau.stream(spending, months, columns=columns, where="BEN_SEX_COD == 2 and PRS_PAI_MNT > 0")
        print("rows of women:", 0 < women.rows < sums.rows)

        # %%
        # By any key
        # ----------
        # Texts, numbers that lie far apart, and times as keys: rows, sums, means and variances of each.
        bound = {"key": "PRS_REM_TYP", "x": "PRS_REM_MNT"}
        kinds = noyau.stream(noyau.reductions.GroupMoments, months, columns=bound).value
        print("groups:", kinds["key"].tolist(), "rows:", int(kinds["rows"].sum()))
        acts = noyau.stream(noyau.reductions.HyperLogLog, months, columns={"x": "PRS_NAT"}).value
        print("kinds of acts, some:", round(acts, -1))

        # %%
        # Amounts that are missing
        # ------------------------
        # A third of the amounts left to pay are missing. No row is dropped silently.
        bound = {"key": "BEN_RES_REG", "x": "PRS_DEP_MNT"}
        try:
            noyau.stream(noyau.reductions.GroupMoments, months, columns=bound)
        except noyau.errors.InputError as error:
            print(str(error).partition(":")[2].strip())
        left = noyau.stream(noyau.reductions.GroupMoments, months, columns=bound, nulls="skip")
        print("left out:", left.counts["rows with nulls"] + left.rows == 2 * ROWS)

        # %%
        # On every engine
        # ---------------
        # The same two questions for processes of this machine, for Dask, and for Spark if it is installed. Workers send
        # states, 15 sums or 128 KiB of a sketch, never rows. These amounts are whole numbers, so their sums are exact,
        # and so are the registers of a sketch: every engine gives the same bits.
        for engine in ("processes", "dask", "spark"):
            if importlib.util.find_spec(PACKAGES[engine]) is None:
                continue
            there = noyau.stream(spending, months, columns=columns, engine=engine)
            some = noyau.stream(noyau.reductions.HyperLogLog, months, columns={"x": "PRS_NAT"}, engine=engine)
            print(f"{engine}:", np.array_equal(there.value, sums.value) and some.value == acts)

    # %%
    # The broken twin
    # ---------------
    print(noyau.check(noyau.reductions.GroupMoments))
    print(noyau.check(twin()))


if __name__ == "__main__":
    main()
