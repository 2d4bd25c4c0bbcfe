"""Reads event files of TensorBoard with the standard library alone, and prints them as JSON.

    python3 read_events.py FILE      every event, and whether the last record is cut
    python3 read_events.py FOLDER    the scalars that TensorBoard keeps of all files, in the order of their names

It checks the framing and both checksums of each record, the wire types of all fields that it knows, and
refuses a field that it does not know.
"""

import json
import os
import struct
import sys

TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    """The records of a file, and whether the last one is cut."""
    at, out = 0, []
    while at < len(data):
        if at + 12 > len(data):
            return out, True
        length, crc = struct.unpack_from("<QI", data, at)
        if crc != masked_crc(data[at:at + 8]):
            raise ValueError("record at %d: checksum of its length" % at)
        if at + 16 + length > len(data):
            return out, True
        body = data[at + 12:at + 12 + length]
        if struct.unpack_from("<I", data, at + 12 + length)[0] != masked_crc(body):
            raise ValueError("record at %d: checksum of its data" % at)
        out.append(body)
        at += 16 + length
    return out, False


def varint(data, at):
    value, shift = 0, 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def message(data, fields):
    """The fields of a message, by {number: (name, type, repeated)}; a type is a dictionary of fields or a word."""
    out, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        number, wire = key >> 3, key & 7
        if number not in fields:
            raise ValueError("field %d of wire type %d is not known" % (number, wire))
        name, kind, repeated = fields[number]
        want = {"double": 1, "float": 5, "int": 0}.get(kind if isinstance(kind, str) else "", 2)
        if wire != want:
            raise ValueError("field %s has wire type %d, want %d" % (name, wire, want))
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif wire == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        else:
            length, at = varint(data, at)
            if at + length > len(data):
                raise ValueError("field %s is longer than its message" % name)
            value, at = data[at:at + length], at + length
            if isinstance(kind, dict):
                value = message(value, kind)
            elif kind == "text":
                value = value.decode("utf-8")
            elif kind == "doubles":
                value = list(struct.unpack("<%dd" % (length // 8), value))
            elif kind == "floats":
                value = list(struct.unpack("<%df" % (length // 4), value))
        if repeated:
            out.setdefault(name, []).append(value)
        else:
            out[name] = value
    return out


VALUE = {2: ("number", "double", False), 3: ("string", "text", False), 4: ("bool", "int", False)}
HPARAMS = {
    2: ("experiment", {
        3: ("time_created_secs", "double", False),
        4: ("hparam_infos", {1: ("name", "text", False), 4: ("type", "int", False)}, True),
        5: ("metric_infos", {1: ("name", {2: ("tag", "text", False)}, False)}, True),
    }, False),
    3: ("session_start_info", {
        1: ("hparams", {1: ("key", "text", False), 2: ("value", VALUE, False)}, True),
        4: ("group_name", "text", False),
        5: ("start_time_secs", "double", False),
    }, False),
    4: ("session_end_info", {1: ("status", "int", False), 2: ("end_time_secs", "double", False)}, False),
}
TENSOR = {
    1: ("dtype", "int", False),
    2: ("tensor_shape", {2: ("dim", {1: ("size", "int", False)}, True)}, False),
    5: ("float_val", "floats", False),
}
HISTO = {
    1: ("min", "double", False), 2: ("max", "double", False), 3: ("num", "double", False), 4: ("sum", "double", False),
    5: ("sum_squares", "double", False), 6: ("bucket_limit", "doubles", False), 7: ("bucket", "doubles", False),
}
PLUGIN = {1: ("plugin_name", "text", False), 2: ("content", HPARAMS, False)}
SUMMARY = {1: ("value", {
    1: ("tag", "text", False), 2: ("simple_value", "float", False), 5: ("histo", HISTO, False), 8: ("tensor", TENSOR, False),
    9: ("metadata", {1: ("plugin_data", PLUGIN, False)}, False),
}, True)}
EVENT = {
    1: ("wall_time", "double", False), 2: ("step", "int", False), 3: ("file_version", "text", False),
    5: ("summary", SUMMARY, False), 7: ("session_log", {1: ("status", "int", False)}, False),
}


def events(path):
    with open(path, "rb") as f:
        bodies, cut = records(f.read())
    return [message(body, EVENT) for body in bodies], cut


def kept(folder):
    """What TensorBoard keeps: at a session log of status START it drops what has its step or a later one."""
    scalars = {}
    for name in sorted(n for n in os.listdir(folder) if "tfevents" in n):
        for event in events(os.path.join(folder, name))[0]:
            step = event.get("step", 0)
            if event.get("session_log", {}).get("status") == 1:
                for tag in scalars:
                    scalars[tag] = [s for s in scalars[tag] if s[0] < step]
            for value in event.get("summary", {}).get("value", []):
                if "simple_value" in value:
                    scalars.setdefault(value["tag"], []).append([step, value["simple_value"]])
    return scalars


if os.path.isdir(sys.argv[1]):
    print(json.dumps(kept(sys.argv[1])))
else:
    found, is_cut = events(sys.argv[1])
    print(json.dumps({"events": found, "cut": is_cut}))
