"""Writes a GGUF file, and reads those that it writes."""
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


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        found = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return found if len(found) > 1 else found[0]

    def text(self):
        n = self.take("<Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def value(self, code):
        if code == 9:
            element, n = self.take("<IQ")
            return [self.value(element) for _ in range(n)]
        if code == CODES["string"]:
            return self.text()
        return self.take({4: "<I", 5: "<i", 6: "<f", 7: "<?"}[code])


def read(path):
    """Metadata by key, and tensors as for `write`."""
    with open(path, "rb") as f:
        reader = Reader(f.read())
    magic, version, n_tensors, n_keys = reader.take("<4sIQQ")
    if (magic, version) != (b"GGUF", 3):
        raise ValueError(f"{path}: no GGUF file of version 3")
    metadata = {}
    for _ in range(n_keys):
        key = reader.text()
        metadata[key] = reader.value(reader.take("<I"))
    kinds = {number: kind for kind, (number, _, _) in TYPES.items()}
    heads = []
    for _ in range(n_tensors):
        name, n_dims = reader.text(), reader.take("<I")
        shape = tuple(reader.take("<Q") for _ in range(n_dims))[::-1]
        heads.append((name, shape, kinds[reader.take("<I")], reader.take("<Q")))
    begin, tensors = reader.at + -reader.at % ALIGN, []
    for name, shape, kind, at in heads:
        _, values_of_block, bytes_of_block = TYPES[kind]
        n = int(np.prod(shape)) // values_of_block * bytes_of_block
        tensors.append((name, shape, kind, reader.data[begin + at:begin + at + n]))
    return metadata, tensors
