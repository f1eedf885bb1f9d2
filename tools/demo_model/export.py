"""Writes and reads the GGUF file: Q8_0 matrices, F32 norms, the tokenizer and the metadata."""
import pathlib
import sys

import numpy as np

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import gguf_file  # noqa: E402
from blocks import values_of  # noqa: E402

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


def metadata(cfg, tok, ff, local):
    L = cfg["block_count"]
    g = "gemma4."
    return [("general.architecture", "string", "gemma4"), ("general.type", "string", "model"),
            ("general.name", "string", "carat demo"), ("general.license", "string", "apache-2.0"),
            ("general.description", "string",
             "A very small Gemma 4 model trained from scratch on generated text, to show and test "
             "the engine."),
            ("general.sampling.temp", "f32", 0.7), ("general.sampling.top_k", "i32", 64),
            ("general.sampling.top_p", "f32", 0.95),
            ("general.file_type", "u32", 7), ("general.quantization_version", "u32", 2),
            (g + "block_count", "u32", L), (g + "context_length", "u32", cfg["context"]),
            (g + "embedding_length", "u32", cfg["embedding_length"]),
            (g + "feed_forward_length", "i32", ff),
            (g + "attention.head_count", "u32", cfg["heads"]),
            (g + "attention.head_count_kv", "u32", cfg["kv_heads"]),
            (g + "attention.key_length", "u32", cfg["head_global"]),
            (g + "attention.value_length", "u32", cfg["head_global"]),
            (g + "attention.key_length_swa", "u32", cfg["head_local"]),
            (g + "attention.value_length_swa", "u32", cfg["head_local"]),
            (g + "rope.dimension_count", "u32", cfg["head_global"]),
            (g + "rope.dimension_count_swa", "u32", cfg["head_local"]),
            (g + "attention.sliding_window", "u32", cfg["window"]),
            (g + "attention.shared_kv_layers", "u32", cfg["shared"]),
            (g + "embedding_length_per_layer_input", "u32", cfg["ple"]),
            (g + "attention.layer_norm_rms_epsilon", "f32", cfg["eps"]),
            (g + "rope.freq_base", "f32", cfg["base_global"]),
            (g + "rope.freq_base_swa", "f32", cfg["base_local"]),
            (g + "final_logit_softcapping", "f32", cfg["softcap"]),
            (g + "attention.sliding_window_pattern", "bool", local),
            ("tokenizer.ggml.model", "string", "gemma4"),
            ("tokenizer.ggml.tokens", "string", tok.tokens),
            ("tokenizer.ggml.scores", "f32", [-1000.0] * len(tok.tokens)),
            ("tokenizer.ggml.token_type", "i32", tok.types()),
            ("tokenizer.ggml.merges", "string", [a + " " + b for a, b in tok.merges]),
            ("tokenizer.ggml.bos_token_id", "u32", 2), ("tokenizer.ggml.eos_token_id", "u32", 106),
            ("tokenizer.ggml.unknown_token_id", "u32", 3),
            ("tokenizer.ggml.padding_token_id", "u32", 0),
            ("tokenizer.ggml.add_bos_token", "bool", True),
            ("tokenizer.ggml.add_space_prefix", "bool", False),
            ("tokenizer.chat_template", "string", TEMPLATE),]


def write(path, cfg, tok, tensors, ff, local):
    """tensors: name -> float32 array, [output, input] for matrices."""
    rotated = np.full(cfg["head_global"] // 2, 1e30, np.float32)
    rotated[:cfg["rotated"]] = 1.0
    stored = [(name, x.shape, "Q8_0", quantise(x)) if x.ndim == 2 else
              (name, x.shape, "F32", np.ascontiguousarray(x, "<f4").tobytes())
              for name, x in {**tensors, "rope_freqs.weight": rotated}.items()]
    gguf_file.write(path, metadata(cfg, tok, ff, local), stored)


def read(path):
    """Metadata as a dict and tensors as float32 arrays, dequantised."""
    metadata, tensors = gguf_file.read(path)
    return metadata, {name: values_of(kind, raw).reshape(shape)
                      for name, shape, kind, raw in tensors}
