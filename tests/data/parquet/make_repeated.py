#!/usr/bin/env python3
"""make_repeated.py - writes repeated.parquet: lists in the shapes of older writers. pyarrow writes
lists of required elements, whose levels are those of the older shapes, and fastparquet another
schema for them. Needs pyarrow and fastparquet."""
import json
import os
import struct

import pyarrow as pa
import pyarrow.parquet as pq
from fastparquet.cencoding import from_buffer

ROWS = [{"ids": [1, 2, 3], "labels": [1, -100, 3], "messages": [{"role": "user", "content": "a"}],
         "turns": [{"from": "human"}, {"from": "gpt"}]},
        {"ids": [], "messages": [], "turns": []},
        {"ids": [4], "labels": [], "messages": [{"role": "user"}, {"content": "b"}],
         "turns": [{}]}]


def of(*fields):
    return pa.list_(pa.field("element", pa.struct(fields), nullable=False))


SCHEMA = pa.schema([
    pa.field("ids", pa.list_(pa.field("element", pa.int32(), nullable=False)), nullable=False),
    pa.field("labels", pa.list_(pa.field("element", pa.int32(), nullable=False))),
    pa.field("messages", of(("role", pa.string()), ("content", pa.string())), nullable=False),
    pa.field("turns", of(("from", pa.string())), nullable=False),
])


def older(schema):
    """Changes the elements of a schema, which stand one after the other: `ids` and `messages` are
    repeated fields without a list, `labels` is a list of a repeated number, and `turns` one of a
    repeated group `array`, which is the element although it has one field."""
    out, i = [schema[0]], 1
    while i < len(schema):
        outer, element = schema[i], schema[i + 2]
        name, n = outer.name, element.num_children or 0
        name = name.decode() if isinstance(name, bytes) else name
        fields = schema[i + 3:i + 3 + n]
        element.repetition_type = 2
        if name in ("labels", "turns"):
            element.name = "array"
            out.append(outer)
        else:
            element.name = name
        out += [element] + fields
        i += 3 + n
    return out


def main():
    at = os.path.dirname(os.path.abspath(__file__))
    path = os.path.join(at, "repeated.parquet")
    pq.write_table(pa.Table.from_pylist(ROWS, schema=SCHEMA), path, store_schema=False,
                   write_statistics=False)
    with open(path, "rb") as file:
        data = file.read()
    n = struct.unpack("<I", data[-8:-4])[0]
    footer = from_buffer(data[-8 - n:-8], "FileMetaData")
    footer.schema = older(footer.schema)
    encoded = footer.to_bytes()
    with open(path, "wb") as file:
        file.write(data[:-8 - n] + encoded + struct.pack("<I", len(encoded)) + b"PAR1")
    with open(os.path.join(at, "repeated.jsonl"), "w", encoding="utf-8") as out:
        for row in ROWS:
            out.write(json.dumps(row, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
