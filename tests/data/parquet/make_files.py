#!/usr/bin/env python3
"""make_files.py - writes the Parquet files of this directory, and next to each the rows that it
stands for in lines of JSON. The rows are hand-made. Needs pyarrow; its version is in the files."""
import datetime
import decimal
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq

from rows import lines

TURN = pa.struct([("from", pa.string()), ("value", pa.string())])
MESSAGE = pa.struct([("role", pa.string()), ("content", pa.large_string())])
PART = pa.struct([("type", pa.string()), ("text", pa.string())])


def turns(*said):
    return [{"from": ("human", "gpt")[i % 2], "value": text} for i, text in enumerate(said)]


def messages(*said):
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(said)]


def parts(*said):
    return [{"role": ("user", "assistant")[i % 2], "content": [{"type": "text", "text": text}]}
            for i, text in enumerate(said)]


WORDS = ["", "one", "two \"quoted\" \\ words", "three\nlines\n", "vier: äöü €", "\x00\x1f\x7f",
         "six " * 40]

# name: rows, schema, options of the writer
FILES = {
    "text": ([{"text": w or "-", "id": i} for i, w in enumerate(WORDS)],
             [("text", pa.string()), ("id", pa.int64())], {"row_group_size": 3}),
    "alpaca": ([{"instruction": f"say {w}", "input": w if i % 2 else None, "output": w + "!",
                 "category": f"kind {i % 2}"} for i, w in enumerate(WORDS)],
               [("instruction", pa.string()), ("input", pa.string()), ("output", pa.string()),
                ("category", pa.dictionary(pa.int32(), pa.string()))],
               {"data_page_version": "2.0", "compression": "zstd"}),
    "sharegpt": ([{"conversations": turns("hi", w or "ho", "and?", "so " + w)} for w in WORDS],
                 [("conversations", pa.list_(TURN))], {"use_dictionary": False}),
    "messages": ([{"messages": messages(w or "hi", "yes " + w), "source": None if i % 3 else "hand"}
                  for i, w in enumerate(WORDS)],
                 [("messages", pa.list_(MESSAGE)), ("source", pa.string())],
                 {"row_group_size": 2, "compression": "gzip"}),
    "parts": ([{"messages": parts(w or "hi", "yes")} for w in WORDS],
              [("messages", pa.large_list(pa.struct([("role", pa.string()),
                                                     ("content", pa.list_(PART))])))], {}),
    "pairs": ([{"prompt": messages(w or "hi"), "completion": [messages("", w + ".")[1]]}
               for w in WORDS],
              [("prompt", pa.list_(MESSAGE)), ("completion", pa.list_(MESSAGE))],
              {"compression": "none"}),
    "tokens": ([{"input_ids": list(range(1, i + 3)), "labels": [-100] + list(range(2, i + 3)),
                 "attention_mask": [1] * (i + 2)} for i in range(40)],
               [("input_ids", pa.list_(pa.int32())), ("labels", pa.list_(pa.int64())),
                ("attention_mask", pa.list_(pa.int8()))],
               {"use_dictionary": False, "row_group_size": 7,
                "column_encoding": {"input_ids.list.element": "DELTA_BINARY_PACKED",
                                    "labels.list.element": "DELTA_BINARY_PACKED"}}),
    "types": ([{"text": w or "-", "b": i % 2 == 0, "u": 2 ** 64 - 1 - i, "n": -i, "f": i / 4,
                "d": 10.0 ** i / 3, "l": [[i, None], None, []][: i % 4],
                "s": None if i == 2 else {"a": i if i % 2 else None, "l": [{"m": w}, None]},
                "m": [("k", i)] * (i % 3), "nothing": None,
                "day": datetime.date(2024, 2, 28 + i % 2), "price": decimal.Decimal(i).scaleb(-2),
                "raw": w.encode()} for i, w in enumerate(WORDS)],
              [("text", pa.string()), ("b", pa.bool_()), ("u", pa.uint64()), ("n", pa.int16()),
               ("f", pa.float32()), ("d", pa.float64()), ("l", pa.list_(pa.list_(pa.int32()))),
               ("s", pa.struct([("a", pa.uint8()), ("l", pa.list_(pa.struct([("m",
                                                                              pa.string())])))])),
               ("m", pa.map_(pa.string(), pa.int64())), ("nothing", pa.null()),
               ("day", pa.date32()), ("price", pa.decimal128(9, 2)), ("raw", pa.binary())],
              {"data_page_version": "2.0", "row_group_size": 4, "compression": "lz4"}),
    "bad_row": ([{"text": "one"}, {"text": "two"}, {"text": None}],
                [("text", pa.string())], {"row_group_size": 2}),
    "preference": ([{"prompt": "p", "chosen": "c", "rejected": "r"}],
                   [("prompt", pa.string()), ("chosen", pa.string()), ("rejected", pa.string())],
                   {}),
    "long": ([{"text": chr(ord("a") + i % 26) * 34000} for i in range(2100)],
             [("text", pa.string())],
             {"compression": "zstd", "compression_level": 19, "use_dictionary": False}),
    "no_rows": ([], [("text", pa.string())], {}),
}


def main():
    at = os.path.dirname(os.path.abspath(__file__))
    for name, (rows, fields, options) in FILES.items():
        table = pa.Table.from_pylist(rows, schema=pa.schema(fields))
        pq.write_table(table, os.path.join(at, name + ".parquet"), **options)
        if name == "long":
            continue  # 70 MB, which the test knows
        with open(os.path.join(at, name + ".jsonl"), "w", encoding="utf-8") as out:
            for row in lines(table):
                out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
