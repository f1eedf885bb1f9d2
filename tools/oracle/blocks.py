"""Random tensors of every type that carat reads: the bytes of a file, and the values they mean."""
import functools
import pathlib
import re

import numpy as np

# type -> (number in a GGUF file, values of a block, bytes of a block)
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "BF16": (30, 1, 2), "Q4_0": (2, 32, 18),
         "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34),
         "IQ4_NL": (20, 32, 18), "IQ4_XS": (23, 256, 136), "MXFP4": (39, 32, 17),
         "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144),
         "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "IQ3_XXS": (18, 256, 98),
         "IQ3_S": (21, 256, 110), "IQ2_XXS": (16, 256, 66), "IQ2_XS": (17, 256, 74),
         "IQ2_S": (22, 256, 82), "IQ1_S": (19, 256, 50), "IQ1_M": (29, 256, 56)}
LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113],
                  np.float32)
FLOATS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def half(block, at):
    """The fp16 value at a byte of each block, as a column."""
    return np.ascontiguousarray(block[:, at:at + 2]).view("<f2").astype(np.float32)


def put_half(block, at, values):
    block[:, at:at + 2] = np.asarray(values, "<f2").reshape(-1, 1).view(np.uint8)


def nibbles(block, at):
    """32 codes in 16 bytes: low halves, then high ones."""
    packed = block[:, at:at + 16]
    return np.concatenate([packed & 15, packed >> 4], 1)


def fifth_bits(block, at):
    word = np.ascontiguousarray(block[:, at:at + 4]).view("<u4")
    return ((word >> np.arange(32, dtype=np.uint32)) & 1).astype(np.uint8) << 4


def k_scales(packed):
    """12 bytes of a K block -> 8 scales and 8 minima of 6 bits."""
    p = packed.astype(np.int32)
    first, second, third = p[:, 0:4], p[:, 4:8], p[:, 8:12]
    scales = np.concatenate([first & 63, (third & 15) | (first >> 6) << 4], 1)
    minima = np.concatenate([second & 63, (third >> 4) | (second >> 6) << 4], 1)
    return scales.astype(np.float32), minima.astype(np.float32)


def k_codes(block, has_fifth):
    packed = block[:, -128:].reshape(-1, 4, 1, 32)
    codes = np.concatenate([packed & 15, packed >> 4], 2).reshape(-1, 8, 32)
    if has_fifth:
        bits = block[:, 16:48].reshape(-1, 1, 32) >> np.arange(8, dtype=np.uint8)[:, None]
        codes = codes | (bits & 1) << 4
    return codes


def six_bits(block):
    low = block[:, :128].reshape(-1, 2, 2, 32).astype(np.int32)
    top = block[:, 128:192].reshape(-1, 2, 32).astype(np.int32)
    parts = [low[:, :, i % 2] >> (i // 2 * 4) & 15 | (top >> 2 * i & 3) << 4 for i in range(4)]
    return np.stack(parts, 2).reshape(-1, 16, 16) - 32


def pairs(packed):
    """64 bytes of two bits a value -> 8 x 32 codes."""
    packed = packed.reshape(-1, 2, 1, 32)
    return (packed >> np.arange(0, 8, 2, dtype=np.uint8)[:, None] & 3).reshape(-1, 8, 32)


def three_bits(block):
    low, top = pairs(block[:, 32:96]), block[:, None, :32]
    top = top >> np.arange(8, dtype=np.uint8)[:, None] & 1
    return (low | top << 2).reshape(-1, 16, 16).astype(np.float32) - 4


def q3_k_scales(packed):
    """12 bytes -> 16 scales of 6 bits with sign."""
    low = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], 1)
    top = np.concatenate([packed[:, 8:] >> 2 * i & 3 for i in range(4)], 1)
    return (low | top << 4).astype(np.float32) - 32


def iq4_xs_scales(packed):
    """6 bytes -> 8 scales of 6 bits with sign."""
    top = np.ascontiguousarray(packed[:, :2]).view("<u2") >> np.arange(0, 16, 2) & 3
    low = np.stack([packed[:, 2:] & 15, packed[:, 2:] >> 4], 2).reshape(-1, 8)
    return (low | top << 4).astype(np.float32) - 32


@functools.cache
def points(name, levels):
    """A grid of src/quant/grids_data.h: [points][values of a point]."""
    text = (pathlib.Path(__file__).resolve().parents[2] / "src/quant/grids_data.h").read_text()
    numbers = re.search(rf"GRID\({name}_points, \d+\) = {{([^}}]*)}}", text)[1]
    numbers = np.array([int(n) for n in re.findall(r"\d+", numbers)])
    bits = 3 if len(levels) == 8 else 2
    steps = numbers[:, None] >> np.arange(0, 12 if bits == 3 else 16, bits) & (1 << bits) - 1
    return np.array(levels, np.float32)[steps]


def words(block, at, end, kind):
    return np.ascontiguousarray(block[:, at:end]).view(kind).astype(np.int64)


def bits_of(numbers, n):
    """[...] -> [... * n]: the lowest n bits of each."""
    bits = numbers[:, :, None] >> np.arange(n) & 1
    return bits.reshape(len(numbers), -1)


def even(sevens):
    """Seven signs of eight -> all eight, of which an even number is set."""
    return sevens | bits_of(sevens, 7).reshape(*sevens.shape, 7).sum(2) % 2 << 7


def odd_halves(packed):
    """Pairs of factors of four bits -> odd numbers."""
    return np.stack([packed & 15, packed >> 4], 2).reshape(len(packed), -1) * 2 + 1


def signed_points(kind, block):
    """IQ3 and IQ2: values in units of the half over `unit`, and their factors."""
    if kind in ("IQ3_XXS", "IQ2_XXS"):
        if kind == "IQ3_XXS":
            index, word = block[:, 2:66].astype(np.int64), words(block, 66, 98, "<u4")
        else:
            pairs = block[:, 2:].reshape(-1, 8, 8)
            index = pairs[:, :, :4].reshape(len(block), -1).astype(np.int64)
            word = words(pairs[:, :, 4:].reshape(len(block), -1), 0, 32, "<u4")
        sevens = (word[:, :, None] >> np.arange(0, 28, 7) & 127).reshape(len(block), -1)
        return index, even(sevens), np.repeat((word >> 28) * 2 + 1, 2, 1)
    if kind == "IQ3_S":
        index = block[:, 2:66] | bits_of(block[:, 66:74].astype(np.int64), 8) << 8
        return index, block[:, 74:106].astype(np.int64), np.repeat(odd_halves(block[:, 106:]), 2, 1)
    if kind == "IQ2_XS":
        word = words(block, 2, 66, "<u2")
        return word & 511, even(word >> 9), odd_halves(block[:, 66:])
    pairs = (block[:, 66:74, None].astype(np.int64) >> np.arange(0, 8, 2) & 3)
    index = block[:, 2:34] | pairs.reshape(len(block), -1) << 8
    return index, block[:, 34:66].astype(np.int64), odd_halves(block[:, 74:])


def shifted_points(kind, block):
    """IQ1: indices, signs of the eighth, factors, halves."""
    if kind == "IQ1_S":
        word = words(block, 34, 50, "<u2")
        high = (word[:, :, None] >> np.arange(0, 12, 3) & 7).reshape(len(block), -1)
        factor = np.repeat((word >> 12 & 7) * 2 + 1, 2, 1)
        return block[:, 2:34] | high << 8, np.repeat(word >> 15, 4, 1), factor, half(block, 0)
    nibble = np.stack([block[:, 32:48] & 15, block[:, 32:48] >> 4], 2).reshape(-1, 32)
    word = words(block, 48, 56, "<u2")
    factor = (word[:, :, None] >> np.arange(0, 12, 3) & 7).reshape(len(block), -1) * 2 + 1
    d = (word >> 12 << np.arange(0, 16, 4)).sum(1).astype("<u2")
    d = d.view("<f2").astype(np.float32)[:, None]
    return block[:, :32] | (nibble & 7).astype(np.int64) << 8, nibble >> 3, factor, d


def decode_grid(kind, block):
    if kind.startswith("IQ1"):
        index, is_minus, factor, d = shifted_points(kind, block)
        values = points("iq1", (-1, 0, 1))[index] + np.where(is_minus, -0.125, 0.125)[:, :, None]
    else:
        index, signs, factor = signed_points(kind, block)
        levels, unit = {"IQ3_XXS": ((4, 12, 20, 28, 36, 44, 52, 62), 0.25),
                        "IQ3_S": (tuple(range(1, 16, 2)), 1)}.get(kind, ((8, 25, 43), 0.125))
        d = half(block, 0) * np.float32(unit)
        values = points(kind.lower(), levels)[index].reshape(len(block), -1)
        values = values * np.where(bits_of(signs, 8), np.float32(-1), np.float32(1))
    scales = d * factor.astype(np.float32)
    return np.repeat(scales, 16, 1) * values.reshape(len(block), -1).astype(np.float32)


def decode(kind, block):
    """Blocks [n][bytes] -> values [n][values of a block]."""
    if kind.startswith(("IQ3", "IQ2", "IQ1")):
        return decode_grid(kind, block)
    if kind == "Q8_0":
        return half(block, 0) * block[:, 2:].view(np.int8).astype(np.float32)
    if kind == "Q4_0":
        return half(block, 0) * (nibbles(block, 2).astype(np.float32) - 8)
    if kind == "IQ4_NL":
        return half(block, 0) * LEVELS[nibbles(block, 2)]
    if kind == "IQ4_XS":
        codes = np.concatenate([nibbles(block, 8 + 16 * i) for i in range(8)], 1)
        return np.repeat(half(block, 0) * iq4_xs_scales(block[:, 2:8]), 32, 1) * LEVELS[codes]
    if kind == "MXFP4":
        return np.ldexp(FLOATS[nibbles(block, 1)], block[:, :1].astype(np.int32) - 127)
    if kind == "Q2_K":
        codes = pairs(block[:, 16:80]).reshape(-1, 16, 16).astype(np.float32)
        scales = half(block, 80) * (block[:, :16] & 15).astype(np.float32)
        minima = half(block, 82) * (block[:, :16] >> 4).astype(np.float32)
        return (scales[:, :, None] * codes - minima[:, :, None]).reshape(-1, 256)
    if kind == "Q3_K":
        scales = half(block, 108) * q3_k_scales(block[:, 96:108])
        return (scales[:, :, None] * three_bits(block)).reshape(-1, 256)
    if kind == "Q4_1":
        return half(block, 0) * nibbles(block, 4).astype(np.float32) + half(block, 2)
    if kind == "Q5_0":
        codes = nibbles(block, 6) | fifth_bits(block, 2)
        return half(block, 0) * (codes.astype(np.float32) - 16)
    if kind == "Q5_1":
        codes = nibbles(block, 8) | fifth_bits(block, 4)
        return half(block, 0) * codes.astype(np.float32) + half(block, 2)
    if kind == "Q6_K":
        scales = block[:, 192:208].view(np.int8).astype(np.float32)
        return ((half(block, 208) * scales)[:, :, None] * six_bits(block)).reshape(-1, 256)
    scales, minima = k_scales(block[:, 4:16])
    values = (half(block, 0) * scales)[:, :, None] * k_codes(block, kind == "Q5_K")
    return (values - (half(block, 2) * minima)[:, :, None]).reshape(-1, 256)


def draw_blocks(rng, kind, n, spread):
    """Uniform codes; scales such that the values have the spread, more or less of it by block."""
    block = rng.integers(0, 256, (n, TYPES[kind][2]), dtype=np.uint8)
    d = ((0.6 + 0.8 * rng.random(n)) * spread).astype(np.float32)
    if kind == "Q8_0":
        codes = np.clip(np.rint(rng.standard_normal((n, 32)) * 40), -127, 127).astype(np.int8)
        block[:, 2:] = codes.view(np.uint8)
        put_half(block, 0, d / 40)
    elif kind == "Q6_K":
        block[:, 192:208] = rng.integers(-40, 41, (n, 16)).astype(np.int8).view(np.uint8)
        put_half(block, 208, d / (18.5 * 23))
    elif kind == "IQ4_XS":
        put_half(block, 0, d / (70 * 18.5))
    elif kind == "MXFP4":
        block[:, 0] = np.rint(np.log2(d / 2.9)) + 127
    elif kind == "Q2_K":
        block[:, :16] = (8 | (block[:, :16] & 7)) * 17
        put_half(block, 80, d / (1.12 * 12))
        put_half(block, 82, d / (1.12 * 12) * 1.5)
    elif kind == "Q3_K":
        put_half(block, 108, d / (2.35 * 18.5))
    elif kind == "IQ1_M":
        words_of_half = (d / (0.78 * 9.2)).astype("<f2").view("<u2")[:, None] >> np.arange(0, 16, 4)
        block[:, 49::2] = block[:, 49::2] & 15 | (words_of_half & 15).astype(np.uint8) << 4
    elif kind.startswith(("IQ3", "IQ2", "IQ1")):
        deviation = {"IQ3_XXS": 7.7, "IQ3_S": 7.6, "IQ2_XXS": 2.9, "IQ2_XS": 3.0, "IQ2_S": 3.05,
                     "IQ1_S": 0.39}[kind]
        put_half(block, 0, d / (deviation * 18.5))
    elif kind in ("Q4_K", "Q5_K"):
        most = 15 if kind == "Q4_K" else 31
        put_half(block, 0, d / (most * 0.3 * 36))
        put_half(block, 2, d / (most * 0.3 * 36) * most / 2)
    else:
        deviation, middle = {"Q4_0": (4.6, None), "Q4_1": (4.6, 7.5), "Q5_0": (9.2, None),
                             "Q5_1": (9.2, 15.5), "IQ4_NL": (70, None)}[kind]
        put_half(block, 0, d / deviation)
        if middle:
            put_half(block, 2, -d * middle / deviation)
    return block


def values_of(kind, raw):
    """What the bytes of a tensor mean, as float32."""
    if kind == "F32":
        return np.frombuffer(raw, "<f4")
    if kind == "F16":
        return np.frombuffer(raw, "<f2").astype(np.float32)
    if kind == "BF16":
        return (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
    block = np.frombuffer(raw, np.uint8).reshape(-1, TYPES[kind][2])
    return decode(kind, block).reshape(-1).astype(np.float32)


def draw(rng, kind, n_out, n_in, spread):
    """A random matrix: its bytes in a file, and float32 values [n_out][n_in]."""
    _, values_of_block, _ = TYPES[kind]
    if n_in % values_of_block:
        raise ValueError(f"{kind}: columns by {values_of_block} expected, {n_in} found")
    if values_of_block > 1:
        raw = draw_blocks(rng, kind, n_out * n_in // values_of_block, spread).tobytes()
    else:
        x = (rng.standard_normal((n_out, n_in)) * spread).astype("<f4")
        stored = {"F32": x, "F16": x.astype("<f2"), "BF16": (x.view("<u4") >> 16).astype("<u2")}
        raw = stored[kind].tobytes()
    return raw, values_of(kind, raw).reshape(n_out, n_in)
