"""The rows that a Parquet file stands for, as Plimsoll writes them in lines of JSON."""
import math

import pyarrow as pa


def plain(value):
    """Returns a value of pyarrow as JSON has it: members that are null are absent, and values that
    JSON has no one way to write are `true`."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return True


def lines(table):
    """Returns the rows of a table. Half floats are no value that JSON rows have of Parquet."""
    halves = [f.name for f in table.schema if pa.types.is_float16(f.type)]
    rows = [plain(row) for row in table.to_pylist()]
    return [{k: True if k in halves else v for k, v in row.items()} for row in rows]
