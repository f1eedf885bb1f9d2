"""Drafters of the models in shapes.py (architecture "gemma4-assistant"): four layers with queries
only, which read keys and values of the model's last local and last global layer."""
import shapes
from shapes import CONTEXT, HEAD_GLOBAL, HEAD_LOCAL, VOCAB, WINDOW

# Heads have the real sizes, so rows are short: a file has about 300 KB.
# name -> (configuration, usual type, other types by tensor)
DRAFTS = {
    "e2b-q8_0": (dict(hidden_size=32, intermediate_size=64, num_attention_heads=2), "Q8_0", {}),
    "e4b-q4_0": (dict(hidden_size=32, intermediate_size=64, num_attention_heads=4),
                 "Q4_0", {"token_embd": "F16", "nextn.post_projection": "Q8_0"}),
    "12b-q4_k": (dict(hidden_size=64, intermediate_size=64, num_attention_heads=2),
                 "Q4_0", {"nextn.post_projection": "Q8_0"}),
    "26b-q4_0": (dict(hidden_size=32, intermediate_size=64, num_attention_heads=2),
                 "F16", {"token_embd": "Q8_0", "attn_output": "Q4_0", "ffn_up": "Q8_0",
                         "ffn_down": "Q8_0", "nextn.pre_projection": "Q4_0",
                         "nextn.post_projection": "Q8_0"}),
    "31b-mixed": (dict(hidden_size=32, intermediate_size=64, num_attention_heads=4),
                  "Q4_0", {"token_embd": "Q8_0", "ffn_gate": "F16", "ffn_up": "Q8_0",
                           "nextn.pre_projection": "F16"}),
}
LAYER_TYPES = ["sliding_attention"] * 3 + ["full_attention"]


def config_of(name):
    """Arguments of transformers' Gemma4TextConfig for the drafter of a model."""
    target = shapes.config_of(name)
    c = dict(vocab_size=VOCAB, vocab_size_per_layer_input=0, hidden_size_per_layer_input=0,
             num_hidden_layers=len(LAYER_TYPES), num_kv_shared_layers=len(LAYER_TYPES),
             layer_types=list(LAYER_TYPES), head_dim=HEAD_LOCAL, global_head_dim=HEAD_GLOBAL,
             sliding_window=WINDOW, rms_norm_eps=1e-6, max_position_embeddings=CONTEXT)
    for key in ("num_key_value_heads", "num_global_key_value_heads", "attention_k_eq_v"):
        if key in target:
            c[key] = target[key]
    c.update(DRAFTS[name][0])
    return c


def width_of_target(name):
    return shapes.config_of(name)["hidden_size"]


def tensors_of(name):
    """As tensors_of in shapes.py."""
    c, out = config_of(name), width_of_target(name)
    width = c["hidden_size"]
    for tensor, shape in (("token_embd.weight", (VOCAB, width)), ("output_norm.weight", (width,)),
                          ("nextn.pre_projection.weight", (width, 2 * out)),
                          ("nextn.post_projection.weight", (out, width))):
        yield tensor, None, tensor, shape
    for layer in range(c["num_hidden_layers"]):
        for tensor, shape in shapes.layer_tensors(c, layer):
            yield tensor, layer, f"blk.{layer}.{tensor}", shape
    yield "rope_freqs.weight", None, "rope_freqs.weight", (HEAD_GLOBAL // 2,)


def type_of(name, tensor):
    """tensor: its name in the file without layer and `.weight`."""
    _, usual, other = DRAFTS[name]
    return other.get(tensor, usual)


def metadata(name):
    """The tokenizer is that of the model."""
    c, g = config_of(name), "gemma4-assistant."
    is_local = [t == "sliding_attention" for t in c["layer_types"]]
    heads_kv = c["num_key_value_heads"]
    heads_kv = [heads_kv if local else c.get("num_global_key_value_heads", heads_kv)
                for local in is_local]
    n_layer = c["num_hidden_layers"]
    numbers = {"block_count": n_layer, "nextn_predict_layers": n_layer, "context_length": CONTEXT,
               "embedding_length": c["hidden_size"], "embedding_length_out": width_of_target(name),
               "feed_forward_length": c["intermediate_size"],
               "attention.head_count": c["num_attention_heads"],
               "attention.head_count_kv": heads_kv, "attention.key_length": HEAD_GLOBAL,
               "attention.value_length": HEAD_GLOBAL, "attention.key_length_swa": HEAD_LOCAL,
               "attention.value_length_swa": HEAD_LOCAL, "rope.dimension_count": HEAD_GLOBAL,
               "rope.dimension_count_swa": HEAD_LOCAL, "attention.sliding_window": WINDOW,
               "attention.shared_kv_layers": n_layer, "embedding_length_per_layer_input": 0}
    floats = {"attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6,
              "rope.freq_base_swa": 1e4}
    return [("general.architecture", "string", "gemma4-assistant"),
            ("general.name", "string", f"oracle-{name}-draft"),
            *((g + k, "i32" if isinstance(v, list) else "u32", v) for k, v in numbers.items()),
            *((g + k, "f32", v) for k, v in floats.items()),
            (g + "attention.sliding_window_pattern", "bool", is_local),
            *(item for item in shapes.metadata(name) if item[0].startswith("tokenizer.")),
            ("general.quantization_version", "u32", 2)]
