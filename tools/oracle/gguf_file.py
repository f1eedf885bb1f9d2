"""Writes a GGUF file."""
import struct

import numpy as np

from blocks import TYPES

ALIGN = 32
CODES = {"u32": 4, "i32": 5, "f32": 6, "bool": 7, "string": 8}


def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def scalar(kind, value):
    if kind == "string":
        return text(value)
    return struct.pack({"u32": "<I", "i32": "<i", "f32": "<f", "bool": "<?"}[kind], value)


def entry(key, kind, value):
    """A list becomes an array of `kind`."""
    if not isinstance(value, list):
        return text(key) + struct.pack("<I", CODES[kind]) + scalar(kind, value)
    head = struct.pack("<IIQ", 9, CODES[kind], len(value))
    return text(key) + head + b"".join(scalar(kind, v) for v in value)


def padded(raw):
    return raw + b"\0" * (-len(raw) % ALIGN)


def write(path, metadata, tensors):
    """metadata: (key, kind, value); tensors: (name, shape as in numpy, type, bytes)."""
    head = [struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))]
    head += [entry(*item) for item in metadata]
    at = 0
    for name, shape, kind, raw in tensors:
        n, values_of_block, bytes_of_block = TYPES[kind]
        assert len(raw) == int(np.prod(shape)) // values_of_block * bytes_of_block, name
        head.append(text(name) + struct.pack("<I", len(shape)) +
                    b"".join(struct.pack("<Q", n_) for n_ in reversed(shape)) +
                    struct.pack("<IQ", n, at))
        at += len(padded(raw))
    with open(path, "wb") as f:
        f.write(padded(b"".join(head)))
        for *_, raw in tensors:
            f.write(padded(raw))
