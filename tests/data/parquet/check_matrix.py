#!/usr/bin/env python3
"""check_matrix.py PROGRAM - every type of pyarrow in pages of every kind: PROGRAM (print_parquet)
writes the rows that pyarrow reads. Prints a table of what was compared."""
import datetime
import decimal
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq

from rows import lines

N = 2500  # more rows than a batch of the reader, and than a small page holds
draw = random.Random(7)


def sparse(value, every=7):
    """Returns N values, every seventh of them null."""
    return [None if every and i % every == 3 else value(i) for i in range(N)]


def word(i):
    return draw.choice(["", "a", "é\n\"\\\x01", "word " * (i % 9), f"{i}"])


def chat(i):
    return [{"role": r, "content": word(i) if (i + k) % 5 else None}
            for k, r in enumerate(["user", "assistant"] * (i % 3))]


def nested(i):
    return {"a": [{"b": [i, None], "c": None if i % 2 else {"d": word(i)}}, None] * (i % 3),
            "e": None if i % 4 else [[], [word(i)], None]}


struct = pa.struct([
    ("a", pa.list_(pa.struct([("b", pa.list_(pa.int64())), ("c", pa.struct([("d", pa.string())]))]))),
    ("e", pa.list_(pa.list_(pa.string())))])
message = pa.list_(pa.struct([("role", pa.string()), ("content", pa.large_string())]))
moment = datetime.datetime(2024, 2, 29, 12, 30, 15, 250000)

TYPES = {
    "string": (pa.string(), word),
    "large_string": (pa.large_string(), word),
    "dictionary of strings": (pa.dictionary(pa.int32(), pa.string()), lambda i: f"kind {i % 5}"),
    "bool": (pa.bool_(), lambda i: i % 3 == 0),
    "int8": (pa.int8(), lambda i: i % 256 - 128),
    "int16": (pa.int16(), lambda i: i - 2000),
    "int32": (pa.int32(), lambda i: (-1) ** i * i * 800000),
    "int64": (pa.int64(), lambda i: (-1) ** i * (2 ** 63 - 1 - i)),
    "uint8": (pa.uint8(), lambda i: i % 256),
    "uint16": (pa.uint16(), lambda i: 65535 - i),
    "uint32": (pa.uint32(), lambda i: 2 ** 32 - 1 - i),
    "uint64": (pa.uint64(), lambda i: 2 ** 64 - 1 - i),
    "float": (pa.float32(), lambda i: i / 7 if i % 11 else float("nan")),
    "double": (pa.float64(), lambda i: i / 7 * 10.0 ** (i % 40 - 20)),
    "list of int32": (pa.list_(pa.int32()), lambda i: [i, None, -i][: i % 4]),
    "large_list of int64": (pa.large_list(pa.int64()), lambda i: list(range(i % 4))),
    "list of strings": (pa.list_(pa.string()), lambda i: [word(i)] * (i % 3)),
    "messages": (message, chat),
    "struct": (struct, nested),
    "map": (pa.map_(pa.string(), pa.int64()), lambda i: [(f"k{k}", k) for k in range(i % 3)]),
    "null": (pa.null(), lambda i: None),
    "date32": (pa.date32(), lambda i: moment.date()),
    "timestamp[us]": (pa.timestamp("us"), lambda i: moment),
    "timestamp[ns]": (pa.timestamp("ns"), lambda i: i),
    "time64[us]": (pa.time64("us"), lambda i: moment.time()),
    "decimal128": (pa.decimal128(20, 3), lambda i: decimal.Decimal(i).scaleb(-3)),
    "binary": (pa.binary(), lambda i: bytes([i % 256])),
    "fixed binary": (pa.binary(5), lambda i: b"12345"),
    "float16": (pa.float16(), None),
}
LISTS = {"list of int32", "large_list of int64", "list of strings", "messages", "struct", "map"}
TEXTS = {"string", "large_string"}
INTS = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}

# The pages, the types that pyarrow can write in them (None: all), and the options.
PLAIN = {"use_dictionary": False}
PAGES = {
    "plain": (None, PLAIN),
    "dictionary": (None, {"use_dictionary": True}),
    "dictionary, then plain": (TEXTS | {"messages"}, {"use_dictionary": True,
                                                      "dictionary_pagesize_limit": 64}),
    "DELTA_BINARY_PACKED": (INTS, {**PLAIN, "column_encoding": {"x": "DELTA_BINARY_PACKED"}}),
    "DELTA_LENGTH_BYTE_ARRAY": (TEXTS, {**PLAIN,
                                        "column_encoding": {"x": "DELTA_LENGTH_BYTE_ARRAY"}}),
    "DELTA_BYTE_ARRAY": (TEXTS, {**PLAIN, "column_encoding": {"x": "DELTA_BYTE_ARRAY"}}),
    "BYTE_STREAM_SPLIT": ({"float", "double", "int32", "int64"},
                          {**PLAIN, "column_encoding": {"x": "BYTE_STREAM_SPLIT"}}),
    "RLE": ({"bool"}, {**PLAIN, "column_encoding": {"x": "RLE"}}),
}
CODECS = ["NONE", "SNAPPY", "GZIP", "ZSTD", "LZ4", "BROTLI"]


def column(kind, required):
    """Returns the values of a type as a column x of a table."""
    of, value = TYPES[kind]
    if kind == "float16":
        values = pa.array([i / 8 for i in range(N)], pa.float32()).cast(pa.float16())
    else:
        values = pa.array(sparse(value, 0 if required else 7), of)
    return pa.table({"x": values, "n": pa.array(range(N), pa.int32())},
                    schema=pa.schema([pa.field("x", of, nullable=not required),
                                      pa.field("n", pa.int32(), nullable=False)]))


def same(program, path, table):
    """Returns a word for what the program makes of the file."""
    done = subprocess.run([program, path], capture_output=True, text=True)
    if done.returncode:
        return "refused: " + done.stderr.strip()
    got = [json.loads(line) for line in done.stdout.splitlines()]
    want = lines(table)
    if got == want:
        return "equal"
    at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    return f"differs: row {at + 1} of {len(got)}, {len(want)}: {got[at:at + 1]} {want[at:at + 1]}"


def main():
    program = sys.argv[1]
    failures, table_of = 0, {}
    with tempfile.TemporaryDirectory() as at:
        path = os.path.join(at, "x.parquet")
        for kind, (pages, (only, options)) in itertools.product(TYPES, PAGES.items()):
            if only is not None and kind not in only:
                continue
            tables = [column(kind, False), column(kind, kind != "null")]
            for version, (n, codec) in itertools.product(["1.0", "2.0"], enumerate(CODECS)):
                table = tables[(n + (version == "2.0")) % 2]
                pq.write_table(table, path, row_group_size=1100, data_page_size=2000,
                               compression=codec, data_page_version=version, **options)
                word = same(program, path, table)
                cell = table_of.setdefault((kind, pages), {})
                cell[word.split(":")[0]] = cell.get(word.split(":")[0], 0) + 1
                if word != "equal":
                    failures += 1
                    print(f"{kind}, {pages}, v{version}, {codec}: {word[:400]}")
    for kind in TYPES:
        print(f"{kind:24}", "; ".join(
            f"{pages}: " + ", ".join(f"{n} {w}" for w, n in table_of[kind, pages].items())
            for pages in PAGES if (kind, pages) in table_of))
    print(f"{sum(sum(c.values()) for c in table_of.values())} files, {failures} not equal")
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
