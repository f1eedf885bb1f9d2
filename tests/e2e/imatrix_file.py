"""Importance matrices for tests."""
import json
import random
import struct

from program import carat, expect_status


def write_matrix(path, model):
    """An importance matrix for the layers of a model, in the form of .dat files."""
    done = carat("show", model, "--tensors", "--json")
    expect_status(done, 0)
    draw, entries = random.Random(1), []
    for tensor in json.loads(done.stdout)["tensors"]:
        shape, name = tensor["shape"], tensor["name"].encode()
        if len(shape) < 2 or not tensor["name"].startswith("blk."):
            continue
        n = shape[0] * (shape[2] if len(shape) > 2 else 1)
        values = [draw.lognormvariate(0, 1.5) for _ in range(n)]
        entries.append(struct.pack("<i", len(name)) + name + struct.pack("<ii", 8, n)
                       + struct.pack(f"<{n}f", *values))
    path.write_bytes(struct.pack("<i", len(entries)) + b"".join(entries)
                     + struct.pack("<ii", 8, 9) + b"words.txt")
    return len(entries)
