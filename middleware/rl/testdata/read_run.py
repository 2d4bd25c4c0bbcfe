"""Reads the folder of a run with the standard library alone, and prints what it has as JSON.

    python3 read_run.py FOLDER

progress.csv and evaluations.csv are read by csv, metrics.jsonl and outcome.json by json. Files *.safetensors are checked as
the safetensors package checks them: the header's length and form, names of data types, shapes, and
that the tensors cover the data without a gap. "aligned" says that each tensor begins at a multiple of its type's size, which
the format does not demand.
"""

import array
import csv
import glob
import json
import os
import struct
import sys

SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
         "I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8}
CODES = {"U8": "B", "I32": "i", "F32": "f", "U64": "Q"}


def check(ok, *what):
    if not ok:
        raise ValueError(" ".join(str(w) for w in what))


def no_twice(pairs):
    names = [name for name, _ in pairs]
    check(len(set(names)) == len(names), "a name is used twice:", names)
    return dict(pairs)


def safetensors(path):
    with open(path, "rb") as f:
        data = f.read()
    check(len(data) >= 8, "a file of", len(data), "bytes")
    length = struct.unpack_from("<Q", data)[0]
    check(length <= 100_000_000 and 8 + length <= len(data), "a header of", length, "bytes")
    text = data[8:8 + length]
    check(text[:1] == b"{" and length % 8 == 0, "a header that begins with", text[:1], "of", length, "bytes")
    header = json.loads(text.decode("utf-8"), object_pairs_hook=no_twice)
    meta = header.pop("__metadata__", {})
    for key, value in meta.items():
        check(isinstance(value, str), "metadata", key, "is", value)
    values = data[8 + length:]
    at, tensors, aligned = 0, {}, True
    for name, t in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        check(set(t) == {"dtype", "shape", "data_offsets"}, name, "has", sorted(t))
        check(t["dtype"] in SIZES, name, "is", t["dtype"])
        begin, end = t["data_offsets"]
        count = 1
        for d in t["shape"]:
            check(isinstance(d, int) and d >= 0, name, "has shape", t["shape"])
            count *= d
        size = SIZES[t["dtype"]]
        check(begin == at and end == begin + count * size, name, "lies at", begin, end, "behind", at)
        aligned = aligned and (8 + length + begin) % size == 0
        at = end
        numbers = array.array(CODES[t["dtype"]])
        numbers.frombytes(values[begin:end])
        if sys.byteorder == "big":
            numbers.byteswap()
        tensors[name] = {"dtype": t["dtype"], "shape": t["shape"], "first": numbers[0] if numbers else None}
    check(at == len(values), len(values) - at, "bytes behind the last tensor")
    return {"metadata": sorted(meta), "tensors": tensors, "aligned": aligned}


def table(path):
    with open(path, newline="", encoding="utf-8") as f:
        rows = list(csv.reader(f, strict=True))
    for row in rows:
        check(len(row) == len(rows[0]), path, "has a row of", len(row), "columns, want", len(rows[0]))
    return rows


folder = sys.argv[1]
out = {"safetensors": {}}
progress = table(os.path.join(folder, "progress.csv"))
out["progress"] = [{name: float(v) for name, v in zip(progress[0], row) if v != ""} for row in progress[1:]]
evaluations = table(os.path.join(folder, "evaluations.csv"))
out["evaluations"] = [[int(v) if name != "reward" else float(v) for name, v in zip(evaluations[0], row)] for row in evaluations[1:]]
with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as lines:
    out["metrics"] = [json.loads(line) for line in lines]
with open(os.path.join(folder, "outcome.json"), encoding="utf-8") as f:
    out["outcome"] = json.load(f)
for path in glob.glob(os.path.join(folder, "*.safetensors")):
    out["safetensors"][os.path.basename(path)] = safetensors(path)
print(json.dumps(out))
