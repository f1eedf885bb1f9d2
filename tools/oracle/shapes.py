"""Small models, one for each row of the family: what transformers calls their configuration, the
types of their tensors, and what a GGUF file says about them."""

VOCAB, WINDOW, CONTEXT = 768, 32, 4096
HEAD_LOCAL, HEAD_GLOBAL = 256, 512  # as in the published models

# name -> (every period-th layer is global, configuration, usual type, other types by tensor)
SHAPES = {
    "e2b-q8_0": (5, dict(num_hidden_layers=10, num_kv_shared_layers=5, hidden_size=64,
                         intermediate_size=128, use_double_wide_mlp=True,
                         hidden_size_per_layer_input=256, num_attention_heads=2,
                         num_key_value_heads=1),
                 "Q8_0", {"inp_gate": "F32", "proj": "F32"}),
    "e4b-q4_0": (6, dict(num_hidden_layers=12, num_kv_shared_layers=6, hidden_size=64,
                         hidden_size_per_layer_input=256, num_attention_heads=4,
                         num_key_value_heads=2),
                 "Q4_0", {"token_embd": "F16", "per_layer_token_embd": "Q6_K"}),
    "12b-q4_k": (6, dict(num_hidden_layers=6, attention_k_eq_v=True, num_attention_heads=4,
                         num_key_value_heads=2, num_global_key_value_heads=1),
                 "Q4_K", {"token_embd": "Q6_K", "attn_v": "Q6_K", "ffn_down": "Q5_K"}),
    "26b-q4_0": (6, dict(num_hidden_layers=6, attention_k_eq_v=True, num_attention_heads=2,
                         num_key_value_heads=1, num_global_key_value_heads=1,
                         enable_moe_block=True, num_experts=16, top_k_experts=4,
                         moe_intermediate_size=32),
                 "Q4_0", {"token_embd": "Q8_0", "ffn_gate_up_exps": "Q4_K",
                          "ffn_down_exps": "Q5_1"}),
    "31b-mixed": (6, dict(num_hidden_layers=6, attention_k_eq_v=True, num_attention_heads=2,
                          num_key_value_heads=2, num_global_key_value_heads=1),
                  "BF16", {"token_embd": "Q5_0", "attn_q": "Q4_1", "attn_k": "Q5_0",
                           "attn_output": "IQ4_NL", "ffn_gate": "Q5_K", "ffn_up": "F16"}),
}
ALWAYS = {"per_layer_model_proj": "BF16", "ffn_gate_inp": "F32"}


def config_of(name):
    """Arguments of transformers' Gemma4TextConfig."""
    period, own, _, _ = SHAPES[name]
    c = dict(vocab_size=VOCAB, vocab_size_per_layer_input=VOCAB, hidden_size=256,
             intermediate_size=256, head_dim=HEAD_LOCAL, global_head_dim=HEAD_GLOBAL,
             sliding_window=WINDOW, final_logit_softcapping=30.0, rms_norm_eps=1e-6,
             max_position_embeddings=CONTEXT, hidden_size_per_layer_input=0)
    c.update(own)
    c["layer_types"] = ["sliding_attention" if (i + 1) % period else "full_attention"
                        for i in range(c["num_hidden_layers"])]
    return c


def tensors_of(name):
    """(tensor, layer or None, name in the file, shape as in numpy) of all tensors, in the order in
    which they are drawn. `tensor` is the name without layer."""
    c = config_of(name)
    n, width, ple = c["num_hidden_layers"], c["hidden_size"], c["hidden_size_per_layer_input"]
    whole = [("token_embd.weight", (VOCAB, width)), ("output_norm.weight", (width,))]
    if ple:
        whole += [("per_layer_token_embd.weight", (VOCAB, n * ple)),
                  ("per_layer_model_proj.weight", (n * ple, width)),
                  ("per_layer_proj_norm.weight", (ple,))]
    for tensor, shape in whole:
        yield tensor, None, tensor, shape
    for layer in range(n):
        for tensor, shape in layer_tensors(c, layer):
            yield tensor, layer, f"blk.{layer}.{tensor}", shape
    yield "rope_freqs.weight", None, "rope_freqs.weight", (HEAD_GLOBAL // 2,)


def layer_tensors(c, layer):
    """(tensor, shape) of one layer."""
    width, ple = c["hidden_size"], c["hidden_size_per_layer_input"]
    is_global = c["layer_types"][layer] == "full_attention"
    head = HEAD_GLOBAL if is_global else HEAD_LOCAL
    heads_kv = c["num_key_value_heads"]
    if is_global:
        heads_kv = c.get("num_global_key_value_heads", heads_kv)
    is_shared = layer >= c["num_hidden_layers"] - c.get("num_kv_shared_layers", 0)
    queries, keys = (c["num_attention_heads"] * head, width), (heads_kv * head, width)
    found = [("attn_norm.weight", (width,)), ("attn_q.weight", queries),
             ("attn_q_norm.weight", (head,))]
    if not is_shared:
        found += [("attn_k.weight", keys), ("attn_k_norm.weight", (head,))]
        if not (is_global and c.get("attention_k_eq_v")):
            found.append(("attn_v.weight", keys))
    ff = c["intermediate_size"] * (2 if is_shared and c.get("use_double_wide_mlp") else 1)
    found += [("attn_output.weight", queries[::-1]), ("post_attention_norm.weight", (width,)),
              ("ffn_norm.weight", (width,)), ("ffn_gate.weight", (ff, width)),
              ("ffn_up.weight", (ff, width)), ("ffn_down.weight", (width, ff)),
              ("post_ffw_norm.weight", (width,))]
    if c.get("enable_moe_block"):
        n, inner = c["num_experts"], c["moe_intermediate_size"]
        found += [("ffn_gate_inp.weight", (n, width)), ("ffn_gate_inp.scale", (width,)),
                  ("ffn_down_exps.scale", (n,)), ("pre_ffw_norm_2.weight", (width,)),
                  ("post_ffw_norm_1.weight", (width,)), ("post_ffw_norm_2.weight", (width,)),
                  ("ffn_gate_up_exps.weight", (n, 2 * inner, width)),
                  ("ffn_down_exps.weight", (n, width, inner))]
    if ple:
        found += [("inp_gate.weight", (ple, width)), ("proj.weight", (width, ple)),
                  ("post_norm.weight", (width,))]
    return [*found, ("layer_output_scale.weight", (1,))]


def type_of(name, tensor):
    """tensor: its name in the file without layer and `.weight`."""
    _, _, usual, other = SHAPES[name]
    return ALWAYS.get(tensor) or other.get(tensor, usual)


def tokenizer():
    """768 tokens: the real control tokens with their ids, all bytes, some words and merges."""
    tokens, types = [f"<unused{i}>" for i in range(VOCAB)], [1] * VOCAB
    control = {0: "<pad>", 1: "<eos>", 2: "<bos>", 3: "<unk>", 4: "<mask>", 46: "<|tool>",
               47: "<tool|>", 98: "<|think|>", 105: "<|turn>", 106: "<turn|>"}
    user_defined = {48: "<|tool_call>", 49: "<tool_call|>", 50: "<|tool_response>",
                    51: "<tool_response|>", 52: '<|"|>', 100: "<|channel>", 101: "<channel|>"}
    for special, kind in ((control, 3), (user_defined, 4)):
        for i, word in special.items():
            tokens[i], types[i] = word, kind
    tokens[212] = "</s>"
    for n in range(1, 32):
        tokens[106 + n] = "\n" * n
    for n in range(2, 32):
        tokens[136 + n] = "\u2581" * n
    for b in range(256):
        tokens[238 + b], types[238 + b] = f"<0x{b:02X}>", 6
    merges = [f"{c * n} {c}" for c in "\n\u2581" for n in range(1, 31)]
    characters = "\u2581" + "".join(map(chr, range(33, 127))) + "éñüßżжлд日本語한국🦙"
    tokens[494:494 + len(characters)] = characters
    known, at = set(tokens), 494 + len(characters)
    for left, right in pairs():
        if at == VOCAB:
            break
        merges.append(f"{left} {right}")
        if left + right not in known:
            tokens[at] = left + right
            known.add(left + right)
            at += 1
    return tokens, types, merges


def pairs():
    """The merges, pair by pair: words from their beginnings, without and with a space."""
    for word in ("the and ing ion you that this have from with they will what there when model "
                 "turn user system hello world token layer prefill decode quick").split():
        for begin in ("", "\u2581"):
            for i in range(0 if begin else 1, len(word)):
                yield begin + word[:i], word[i]


def metadata(name):
    c, g = config_of(name), "gemma4."
    n_layer, ff = c["num_hidden_layers"], c["intermediate_size"]
    n_shared, heads_kv = c.get("num_kv_shared_layers", 0), c["num_key_value_heads"]
    is_local = [t == "sliding_attention" for t in c["layer_types"]]
    if c.get("use_double_wide_mlp"):
        ff = [ff * (2 if i >= n_layer - n_shared else 1) for i in range(n_layer)]
    if "num_global_key_value_heads" in c:
        heads_kv = [heads_kv if local else c["num_global_key_value_heads"] for local in is_local]
    tokens, types, merges = tokenizer()
    numbers = {"block_count": n_layer, "context_length": CONTEXT,
               "embedding_length": c["hidden_size"], "feed_forward_length": ff,
               "attention.head_count": c["num_attention_heads"],
               "attention.head_count_kv": heads_kv, "attention.key_length": HEAD_GLOBAL,
               "attention.value_length": HEAD_GLOBAL, "attention.key_length_swa": HEAD_LOCAL,
               "attention.value_length_swa": HEAD_LOCAL, "rope.dimension_count": HEAD_GLOBAL,
               "rope.dimension_count_swa": HEAD_LOCAL, "attention.sliding_window": WINDOW,
               "attention.shared_kv_layers": n_shared,
               "embedding_length_per_layer_input": c["hidden_size_per_layer_input"]}
    if c.get("enable_moe_block"):
        numbers.update({"expert_count": c["num_experts"], "expert_used_count": c["top_k_experts"],
                        "expert_feed_forward_length": c["moe_intermediate_size"]})
    floats = {"attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6,
              "rope.freq_base_swa": 1e4, "final_logit_softcapping": 30.0}
    t = "tokenizer.ggml."
    return [("general.architecture", "string", "gemma4"),
            ("general.name", "string", f"oracle-{name}"),
            *((g + k, "i32" if isinstance(v, list) else "u32", v) for k, v in numbers.items()),
            *((g + k, "f32", v) for k, v in floats.items()),
            (g + "attention.sliding_window_pattern", "bool", is_local),
            (t + "model", "string", "gemma4"), (t + "tokens", "string", tokens),
            (t + "scores", "f32", [-1000.0] * VOCAB), (t + "token_type", "i32", types),
            (t + "merges", "string", merges),
            *((f"{t}{k}_token_id", "u32", v) for k, v in
              (("bos", 2), ("eos", 106), ("unknown", 3), ("padding", 0))),
            (t + "add_bos_token", "bool", True), (t + "add_space_prefix", "bool", False),
            ("general.quantization_version", "u32", 2)]
