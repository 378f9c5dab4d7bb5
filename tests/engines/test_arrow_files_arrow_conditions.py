import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from noyau.engines.arrow_files import condition
from noyau.errors import InputError

TABLE = ds.dataset(pa.table({"price": [1.0, 4.0, None, 9.0], "shop": ["a", "b", "c", "a"], "n": [1, 2, 3, 4]}))


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("price > 3", [2, 4]),
        ("price > 3 and shop in ('a', 'c')", [4]),
        ("not price > 3 or n == 3", [1, 3]),
        ("1 < n <= 3", [2, 3]),
        ("n * 2 - 1 == 5", [3]),
        ("price is None", [3]),
        ("price is not None and shop not in ['a']", [2]),
        ("-n < -3 and 2 * n > 1", [4]),
    ],
)
def test_a_condition_chooses_rows(text, rows):
    assert TABLE.to_table(filter=condition(text))["n"].to_pylist() == rows


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('false')",
        "price >",
        "price.shop > 2",
        "price[0] > 1",
        "price is 3",
        "n in n",
        "lambda: 0",
        "(" * 300 + "n" + ")" * 300,
    ],
)
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(InputError, match=r"is no condition: compare columns with numbers or texts"):
        condition(text)
    with pytest.raises(InputError, match="names no column"):
        condition("3 > 2")
