"""Writes and reads the GGUF file: Q8_0 matrices, F32 norms, the tokenizer and the metadata."""
import struct

import numpy as np

U32, I32, F32, BOOL, STR, ARR = 4, 5, 6, 7, 8, 9
T_F32, T_Q8_0 = 0, 8
ALIGN = 32
TEMPLATE = ("{{ bos_token }}{% for m in messages %}"
            "<|turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n"
            "{{ m['content'] | trim }}<turn|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|turn>model\n{% endif %}")


def quantise(x):
    """Rows of 32 weights: one f16 scale and 32 signed bytes."""
    b = np.ascontiguousarray(x, np.float32).reshape(-1, 32)
    d = (np.abs(b).max(1) / 127).astype(np.float16)
    s = d.astype(np.float32)
    q = np.rint(b / np.where(s > 0, s, 1)[:, None]).clip(-127, 127).astype(np.int8)
    return np.concatenate([d[:, None].view(np.int8).reshape(-1, 2), q], 1).tobytes()


def dequantise(raw, shape):
    b = np.frombuffer(raw, np.int8).reshape(-1, 34)
    d = b[:, :2].copy().view(np.float16).astype(np.float32)
    return (d * b[:, 2:].astype(np.float32)).reshape(shape)


def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def value(t, v):
    if t == STR:
        return text(v)
    if t == ARR:
        et, xs = v
        if et in (I32, F32):
            return struct.pack("<IQ", et, len(xs)) + np.asarray(
                xs, "<i4" if et == I32 else "<f4").tobytes()
        return struct.pack("<IQ", et, len(xs)) + b"".join(value(et, x) for x in xs)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[t], v)


def metadata(cfg, tok, ff, local):
    L = cfg["block_count"]
    g = "gemma4."
    return [("general.architecture", STR, "gemma4"), ("general.type", STR, "model"),
            ("general.name", STR, "carat demo"), ("general.license", STR, "apache-2.0"),
            ("general.description", STR,
             "A very small Gemma 4 model trained from scratch on generated text, to show and test "
             "the engine."),
            ("general.sampling.temp", F32, 0.7), ("general.sampling.top_k", I32, 64),
            ("general.sampling.top_p", F32, 0.95),
            ("general.file_type", U32, 7), ("general.quantization_version", U32, 2),
            (g + "block_count", U32, L), (g + "context_length", U32, cfg["context"]),
            (g + "embedding_length", U32, cfg["embedding_length"]),
            (g + "feed_forward_length", ARR, (I32, ff)),
            (g + "attention.head_count", U32, cfg["heads"]),
            (g + "attention.head_count_kv", U32, cfg["kv_heads"]),
            (g + "attention.key_length", U32, cfg["head_global"]),
            (g + "attention.value_length", U32, cfg["head_global"]),
            (g + "attention.key_length_swa", U32, cfg["head_local"]),
            (g + "attention.value_length_swa", U32, cfg["head_local"]),
            (g + "rope.dimension_count", U32, cfg["head_global"]),
            (g + "rope.dimension_count_swa", U32, cfg["head_local"]),
            (g + "attention.sliding_window", U32, cfg["window"]),
            (g + "attention.shared_kv_layers", U32, cfg["shared"]),
            (g + "embedding_length_per_layer_input", U32, cfg["ple"]),
            (g + "attention.layer_norm_rms_epsilon", F32, cfg["eps"]),
            (g + "rope.freq_base", F32, cfg["base_global"]),
            (g + "rope.freq_base_swa", F32, cfg["base_local"]),
            (g + "final_logit_softcapping", F32, cfg["softcap"]),
            (g + "attention.sliding_window_pattern", ARR, (BOOL, local)),
            ("tokenizer.ggml.model", STR, "gemma4"),
            ("tokenizer.ggml.tokens", ARR, (STR, tok.tokens)),
            ("tokenizer.ggml.scores", ARR, (F32, [-1000.0] * len(tok.tokens))),
            ("tokenizer.ggml.token_type", ARR, (I32, tok.types())),
            ("tokenizer.ggml.merges", ARR, (STR, [a + " " + b for a, b in tok.merges])),
            ("tokenizer.ggml.bos_token_id", U32, 2), ("tokenizer.ggml.eos_token_id", U32, 106),
            ("tokenizer.ggml.unknown_token_id", U32, 3),
            ("tokenizer.ggml.padding_token_id", U32, 0),
            ("tokenizer.ggml.add_bos_token", BOOL, True),
            ("tokenizer.ggml.add_space_prefix", BOOL, False),
            ("tokenizer.chat_template", STR, TEMPLATE),]


def write(path, cfg, tok, tensors, ff, local):
    """tensors: name -> float32 array, [output, input] for matrices."""
    tensors = dict(tensors)
    rotated = np.full(cfg["head_global"] // 2, 1e30, np.float32)
    rotated[:cfg["rotated"]] = 1.0
    tensors["rope_freqs.weight"] = rotated
    meta = metadata(cfg, tok, ff, local)
    head = [struct.pack("<IIQQ", 0x46554747, 3, len(tensors), len(meta))]
    head += [text(k) + struct.pack("<I", t) + value(t, v) for k, t, v in meta]
    data, at = [], 0
    for name, x in tensors.items():
        q = x.ndim == 2
        raw = quantise(x) if q else np.ascontiguousarray(x, "<f4").tobytes()
        head.append(text(name) + struct.pack("<I", x.ndim)
                    + b"".join(struct.pack("<Q", n) for n in reversed(x.shape))
                    + struct.pack("<IQ", T_Q8_0 if q else T_F32, at))
        raw += b"\0" * (-len(raw) % ALIGN)
        data.append(raw)
        at += len(raw)
    h = b"".join(head)
    h += b"\0" * (-len(h) % ALIGN)
    with open(path, "wb") as f:
        f.write(h + b"".join(data))


def read(path):
    """Metadata as a dict and tensors as float32 arrays, dequantised."""
    buf = open(path, "rb").read()
    at = 8

    def get(fmt):
        nonlocal at
        v = struct.unpack_from("<" + fmt, buf, at)[0]
        at += struct.calcsize("<" + fmt)
        return v

    def string():
        nonlocal at
        n = get("Q")
        at += n
        return buf[at - n:at].decode()

    def val(t):
        if t == STR:
            return string()
        if t == ARR:
            et, n = get("I"), get("Q")
            return [val(et) for _ in range(n)]
        return get({U32: "I", I32: "i", F32: "f", BOOL: "?"}[t])

    nt, nk = get("Q"), get("Q")
    meta = {}
    for _ in range(nk):
        k = string()
        meta[k] = val(get("I"))
    infos = []
    for _ in range(nt):
        name = string()
        dims = [get("Q") for _ in range(get("I"))]
        infos.append((name, dims[::-1], get("I"), get("Q")))
    start = (at + ALIGN - 1) // ALIGN * ALIGN
    tensors = {}
    for name, shape, t, off in infos:
        n = int(np.prod(shape))
        size = n * 4 if t == T_F32 else n // 32 * 34
        raw = buf[start + off:start + off + size]
        tensors[name] = np.frombuffer(raw, "<f4").reshape(shape) if t == T_F32 else dequantise(
            raw, shape)
    return meta, tensors
