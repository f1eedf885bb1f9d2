#!/usr/bin/env python3
"""Draws small Gemma 4 models with random weights, and the logits that Hugging Face's transformers
computes for them in fp32. Weights are drawn as blocks of a file, so that both see the same values.

usage: make_oracle.py [--no-logits] OUTDIR SEED [NAME ...]
       make_oracle.py --drafts OUTDIR SEED [NAME ...]
Writes NAME.gguf, NAME.json (tokens, positions, best ids) and NAME.logits.f32. With --drafts it
writes NAME.draft.gguf and NAME.draft.json for models that are in OUTDIR: `golden.py drafts` makes
the answers."""
import argparse
import json
import os
import zlib

import numpy as np

import draft_shapes
import shapes
from blocks import draw
from gguf_file import write
from reference import logits_of
from shapes import SHAPES, VOCAB, WINDOW

N_TOKENS = 200
POSITIONS = sorted({*range(0, N_TOKENS, 8), 30, 31, 32, 33, 34, 198, 199})
DRAFT_STEPS = 4
DRAFT_POSITIONS = [3, WINDOW - 1, WINDOW, WINDOW + 1, 100, N_TOKENS - DRAFT_STEPS]
UNIFORM = {"ffn_gate_inp.scale": (0.5, 2.0), "ffn_down_exps.scale": (0.5, 1.5),
           "layer_output_scale.weight": (0.7, 1.1)}


def draw_norm(rng, tensor, n):
    """About one. Norms of keys are scaled so that attention's scores spread by about 2, as in a
    trained model: with ones softmax takes a single key, and a comparison measures chaos. Norms
    after a block are 0.3, so that the residual stream dominates and rounding is not amplified."""
    scale = 2 / np.sqrt(n) if tensor.startswith("attn_k") else 0.3 if "post_" in tensor else 1
    return ((1 + 0.25 * rng.standard_normal(n)) * scale).astype("<f4")


def draw_tensor(rng, kind, tensor, shape):
    """Its type, bytes and values. kind: the type of a matrix."""
    if tensor == "rope_freqs.weight":
        x = np.array([1.0] * 64 + [1e30] * 192, "<f4")  # a quarter of a global head's pairs
    elif tensor in UNIFORM:
        x = rng.uniform(*UNIFORM[tensor], shape).astype("<f4")
    elif len(shape) == 1:
        x = draw_norm(rng, tensor, shape[0])
    else:
        n_in = shape[-1]
        base = tensor.removesuffix(".weight")
        spread = {"token_embd": 1 / np.sqrt(n_in), "per_layer_token_embd": 1 / 16}.get(
            base, 0.8 / np.sqrt(n_in))
        raw, values = draw(rng, kind, int(np.prod(shape[:-1])), n_in, spread)
        return kind, raw, values.reshape(shape)
    return "F32", x.tobytes(), x


def draw_model(rng, name, family=shapes):
    """Tensors for the file, and values by name in it. family: shapes or draft_shapes."""
    tensors, values = [], {}
    for tensor, _, file_name, shape in family.tensors_of(name):
        kind = family.type_of(name, tensor.removesuffix(".weight"))
        kind, raw, values[file_name] = draw_tensor(rng, kind, tensor, shape)
        tensors.append((file_name, shape, kind, raw))
    return tensors, values


def make(out, seed, name, has_logits):
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    tensors, values = draw_model(rng, name)
    tokens = [2, *(int(t) for t in rng.integers(5, VOCAB, N_TOKENS - 1))]
    path = os.path.join(out, name)
    write(path + ".gguf", shapes.metadata(name), tensors)
    facts = dict(model=f"{name}.gguf", vocab=VOCAB, tokens=tokens)
    if has_logits:
        logits = logits_of(name, values, tokens)
        logits[POSITIONS].tofile(path + ".logits.f32")
        facts.update(logits_file=f"{name}.logits.f32", logits_positions=POSITIONS,
                     argmax_every_position=logits.argmax(1).tolist())
        print(f"{name}, seed {seed}: logits spread by {logits.std():.3g}, at most "
              f"{np.abs(logits).max():.3g}")
    with open(path + ".json", "w") as f:
        json.dump(facts, f)


def make_draft(out, seed, name):
    """The drafter of a model that is in `out`."""
    path = os.path.join(out, name)
    with open(path + ".json") as f:
        tokens = json.load(f)["tokens"]
    rng = np.random.default_rng([seed, zlib.crc32(f"{name}.draft".encode())])
    tensors, _ = draw_model(rng, name, draft_shapes)
    write(path + ".draft.gguf", draft_shapes.metadata(name), tensors)
    facts = dict(model=f"{name}.draft.gguf", target=f"{name}.gguf", tokens=tokens,
                 positions=DRAFT_POSITIONS, steps=DRAFT_STEPS,
                 logits_file=f"{name}.draft.logits.f32", hidden_file=f"{name}.draft.hidden.f32")
    with open(path + ".draft.json", "w") as f:
        json.dump(facts, f)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("out")
    parser.add_argument("seed", type=int)
    parser.add_argument("names", nargs="*", default=list(SHAPES), metavar="NAME")
    parser.add_argument("--no-logits", action="store_true", help="models without answers")
    parser.add_argument("--drafts", action="store_true",
                        help="only drafters, of models that are in OUTDIR, without answers")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    for name in args.names:
        if name not in SHAPES:
            parser.error(f"{name}: one of {', '.join(SHAPES)} expected")
        if args.drafts:
            make_draft(args.out, args.seed, name)
        else:
            make(args.out, args.seed, name, not args.no_logits)


if __name__ == "__main__":
    main()
