#!/usr/bin/env python3
"""Draws small Gemma 4 models with random weights, and the logits that Hugging Face's transformers
computes for them in fp32. Weights are drawn as blocks of a file, so that both see the same values.

usage: make_oracle.py OUTDIR SEED [NAME ...]
Writes NAME.gguf, NAME.json (tokens, positions, best ids) and NAME.logits.f32."""
import argparse
import json
import os
import zlib

import numpy as np

from blocks import draw
from gguf_file import write
from shapes import SHAPES, VOCAB, config_of, metadata, type_of

N_TOKENS = 200
POSITIONS = sorted({*range(0, N_TOKENS, 8), 30, 31, 32, 33, 34, 198, 199})
# Names in the file and in transformers' state; what a model does not have is not in its state.
WHOLE = {"token_embd.weight": "model.embed_tokens.weight",
         "output_norm.weight": "model.norm.weight",
         "per_layer_token_embd.weight": "model.embed_tokens_per_layer.weight",
         "per_layer_model_proj.weight": "model.per_layer_model_projection.weight",
         "per_layer_proj_norm.weight": "model.per_layer_projection_norm.weight"}
LAYER = {"attn_norm.weight": "input_layernorm.weight",
         "attn_q.weight": "self_attn.q_proj.weight",
         "attn_q_norm.weight": "self_attn.q_norm.weight",
         "attn_k.weight": "self_attn.k_proj.weight",
         "attn_k_norm.weight": "self_attn.k_norm.weight",
         "attn_v.weight": "self_attn.v_proj.weight",
         "attn_output.weight": "self_attn.o_proj.weight",
         "post_attention_norm.weight": "post_attention_layernorm.weight",
         "ffn_norm.weight": "pre_feedforward_layernorm.weight",
         "ffn_gate.weight": "mlp.gate_proj.weight",
         "ffn_up.weight": "mlp.up_proj.weight",
         "ffn_down.weight": "mlp.down_proj.weight",
         "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
         "ffn_gate_inp.weight": "router.proj.weight",
         "ffn_gate_inp.scale": "router.scale",
         "ffn_down_exps.scale": "router.per_expert_scale",
         "pre_ffw_norm_2.weight": "pre_feedforward_layernorm_2.weight",
         "post_ffw_norm_1.weight": "post_feedforward_layernorm_1.weight",
         "post_ffw_norm_2.weight": "post_feedforward_layernorm_2.weight",
         "ffn_gate_up_exps.weight": "experts.gate_up_proj",
         "ffn_down_exps.weight": "experts.down_proj",
         "inp_gate.weight": "per_layer_input_gate.weight",
         "proj.weight": "per_layer_projection.weight",
         "post_norm.weight": "post_per_layer_input_norm.weight",
         "layer_output_scale.weight": "layer_scalar"}
UNIFORM = {"ffn_gate_inp.scale": (0.5, 2.0), "ffn_down_exps.scale": (0.5, 1.5),
           "layer_output_scale.weight": (0.7, 1.1)}


def names_of(state, n_layer):
    """(tensor's own name, name in the file, name in the state) of what the state has."""
    for tensor, key in WHOLE.items():
        if key in state:
            yield tensor, tensor, key
    for i in range(n_layer):
        for tensor, key in LAYER.items():
            key = f"model.layers.{i}.{key}"
            if key in state:
                yield tensor, f"blk.{i}.{tensor}", key


def draw_norm(rng, tensor, n):
    """About one. Norms of keys are scaled so that attention's scores spread by about 2, as in a
    trained model: with ones softmax takes a single key, and a comparison measures chaos. Norms
    behind a block are 0.3, so that the residual stream dominates and rounding is not amplified."""
    scale = 2 / np.sqrt(n) if tensor.startswith("attn_k") else 0.3 if "post_" in tensor else 1
    return ((1 + 0.25 * rng.standard_normal(n)) * scale).astype("<f4")


def draw_tensor(rng, name, tensor, shape):
    """Its type, bytes and values."""
    if tensor in UNIFORM:
        x = rng.uniform(*UNIFORM[tensor], shape).astype("<f4")
        return "F32", x.tobytes(), x
    if len(shape) == 1:
        x = draw_norm(rng, tensor, shape[0])
        return "F32", x.tobytes(), x
    base = tensor.removesuffix(".weight")
    kind, n_in = type_of(name, base), shape[-1]
    spread = {"token_embd": 1 / np.sqrt(n_in), "per_layer_token_embd": 1 / 16}.get(
        base, 0.8 / np.sqrt(n_in))
    raw, values = draw(rng, kind, int(np.prod(shape[:-1])), n_in, spread)
    return kind, raw, values.reshape(shape)


def draw_model(rng, name, shapes):
    """shapes: those of the state. Tensors for the file, and values by name in the state."""
    tensors, values = [], {}
    for tensor, file_name, key in names_of(shapes, config_of(name)["num_hidden_layers"]):
        shape = tuple(shapes[key]) or (1,)
        kind, raw, x = draw_tensor(rng, name, tensor, shape)
        tensors.append((file_name, shape, kind, raw))
        values[key] = x.reshape(tuple(shapes[key]))
    turned = np.array([1.0] * 64 + [1e30] * 192, "<f4")  # a quarter of a global head's pairs
    tensors.append(("rope_freqs.weight", (256,), "F32", turned.tobytes()))
    values["lm_head.weight"] = values["model.embed_tokens.weight"]
    return tensors, values


def make(out, seed, name):
    import torch
    from transformers.models.gemma4 import Gemma4ForCausalLM, Gemma4TextConfig
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    config = Gemma4TextConfig(**config_of(name))
    config._attn_implementation = "eager"
    model = Gemma4ForCausalLM(config).float().eval()
    tensors, values = draw_model(rng, name, {k: v.shape for k, v in model.state_dict().items()})
    model.load_state_dict({k: torch.from_numpy(v) for k, v in values.items()})  # all, or it fails
    tokens = np.concatenate([[2], rng.integers(5, VOCAB, N_TOKENS - 1)])
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens)[None]).logits[0].numpy().astype("<f4")
    path = os.path.join(out, name)
    write(path + ".gguf", metadata(name), tensors)
    logits[POSITIONS].tofile(path + ".logits.f32")
    with open(path + ".json", "w") as f:
        json.dump(dict(model=f"{name}.gguf", vocab=VOCAB, tokens=tokens.tolist(),
                       logits_file=f"{name}.logits.f32", logits_positions=POSITIONS,
                       argmax_every_position=logits.argmax(1).tolist()), f)
    print(f"{name}, seed {seed}: logits spread by {logits.std():.3g}, at most "
          f"{np.abs(logits).max():.3g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("out")
    parser.add_argument("seed", type=int)
    parser.add_argument("names", nargs="*", default=list(SHAPES), metavar="NAME")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    for name in args.names:
        if name not in SHAPES:
            parser.error(f"{name}: one of {', '.join(SHAPES)} expected")
        make(args.out, args.seed, name)


if __name__ == "__main__":
    main()
