#!/usr/bin/env python3
"""Makes the answers in tests/golden/fixtures again from their questions, with the implementations
that they come from, and says whether they are the same. With --write they are replaced.

usage: golden.py logits [NAME ...]                   Hugging Face's transformers (reference.py)
       golden.py drafts [NAME ...]                   the same, of drafters: logits, hidden states
       golden.py tokens LIBLLAMA                     llama.cpp's shared library, here v0.5.0's
       golden.py demo LIBLLAMA                       the same: the demo model's greedy answers
       golden.py chat SMALL_TEMPLATE LARGE_TEMPLATE  Jinja2, with files of chat_template.jinja
make_oracle.py draws the models themselves. Ends with 1 if an answer differs."""
import argparse
import ctypes
import json
import os
import pathlib
import sys

import numpy as np

from blocks import values_of
from draft_shapes import DRAFTS
from gguf_file import read
from shapes import SHAPES

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/golden/fixtures"
DEMO_MODEL = ROOT / "models/demo.gguf"
LOGITS_DISTANCE = 1e-5  # relative, as the root of the mean square: fp32 sums in another order
LEAD_MIN = 0.3  # of the best logit in demo-greedy.json: rounding may not decide
END_OF_TURN = 106


def report(name, is_same, text):
    print(f"{name}: {text}" + ("" if is_same else "  DIFFERS"))
    return is_same


def load(folder, name):
    with open(folder / name, encoding="utf-8") as f:
        return json.load(f)


def store(folder, name, found, indent):
    with open(folder / name, "w", encoding="utf-8") as f:
        json.dump(found, f, ensure_ascii=False, indent=indent)


def values_in(path):
    """Values of all tensors of a file, by name."""
    _, tensors = read(path)
    return {name: values_of(kind, raw).reshape(shape) for name, shape, kind, raw in tensors}


def remake_logits(args):
    from reference import logits_of
    is_same = True
    for name in args.names or SHAPES:
        facts = load(args.folder, name + ".json")
        path = args.folder / facts["logits_file"]
        all_rows = logits_of(name, values_in(args.folder / facts["model"]), facts["tokens"])
        found, best = all_rows[facts["logits_positions"]], all_rows.argmax(1).tolist()
        stored = np.fromfile(path, "<f4").reshape(found.shape)
        distance = float(np.linalg.norm(found - stored) / np.linalg.norm(stored))
        n_other = sum(a != b for a, b in zip(best, facts["argmax_every_position"]))
        text = (f"{len(found)} rows, at most {np.abs(found - stored).max():.3g} apart, relative "
                f"{distance:.3g}, {n_other} of {len(best)} best ids are others")
        is_same &= report(name, distance < LOGITS_DISTANCE and not n_other, text)
        if args.write:
            found.tofile(path)
            facts["argmax_every_position"] = best
            store(args.folder, name + ".json", facts, None)
    return is_same


def remake_drafts(args):
    from reference import drafts_of
    is_same = True
    for name in args.names or DRAFTS:
        facts = load(args.folder, name + ".draft.json")
        answers = drafts_of(name, values_in(args.folder / facts["target"]),
                            values_in(args.folder / facts["model"]), facts["tokens"],
                            facts["positions"], facts["steps"])
        for key, found in zip(("logits_file", "hidden_file"), answers):
            path = args.folder / facts[key]
            text, is_near = f"spread by {found.std():.3g}, none to compare with", False
            if path.exists():
                stored = np.fromfile(path, "<f4").reshape(found.shape)
                distance = float(np.linalg.norm(found - stored) / np.linalg.norm(stored))
                is_near = distance < LOGITS_DISTANCE
                text = (f"{len(found)} rounds of {found.shape[1]}, at most "
                        f"{np.abs(found - stored).max():.3g} apart, relative {distance:.3g}")
            is_same &= report(facts[key], is_near, text)
            if args.write:
                found.tofile(path)
    return is_same


class Llama:
    """A model in llama.cpp, through its shared library."""

    class Params(ctypes.Structure):  # larger than any version's; only passed on
        _fields_ = [("bytes", ctypes.c_uint8 * 1024)]

    class Batch(ctypes.Structure):
        _fields_ = [("n", ctypes.c_int32), *((name, ctypes.c_void_p) for name in
                                             ("ids", "embd", "pos", "n_seq", "seq", "logits"))]

    def __init__(self, library, model):
        self.lib = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        pointer, number, ids = ctypes.c_void_p, ctypes.c_int32, ctypes.POINTER(ctypes.c_int32)
        self.quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, pointer)(
            lambda level, text, user: None)
        self.lib.llama_log_set(self.quiet, None)
        if hasattr(self.lib, "ggml_backend_load_all_from_path"):  # libraries of their own
            folder = pathlib.Path(library).resolve().parent
            self.lib.ggml_backend_load_all_from_path(os.fsencode(folder))
        load = self.declare("model_load_from_file", pointer, ctypes.c_char_p, self.Params)
        self.model = load(os.fsencode(model), self.declare("model_default_params", self.Params)())
        if not self.model:
            sys.exit(f"{library} cannot load {model}")
        self.vocab = self.declare("model_get_vocab", pointer, pointer)(self.model)
        self.n_vocab = self.declare("vocab_n_tokens", number, pointer)(self.vocab)
        self.tokenize = self.declare("tokenize", number, pointer, ctypes.c_char_p, number, ids,
                                     number, ctypes.c_bool, ctypes.c_bool)
        self.one_batch = self.declare("batch_get_one", self.Batch, ids, number)
        self.decode = self.declare("decode", number, pointer, self.Batch)
        self.last_logits = self.declare("get_logits_ith", ctypes.POINTER(ctypes.c_float), pointer,
                                        number)

    def declare(self, name, result, *arguments):
        function = getattr(self.lib, "llama_" + name)
        function.restype, function.argtypes = result, arguments
        return function

    def encode(self, text, parse_special):
        raw = text.encode()
        ids = (ctypes.c_int32 * (len(raw) + 16))()
        n = self.tokenize(self.vocab, raw, len(raw), ids, len(ids), False, parse_special)
        return list(ids[:n])

    def answer(self, prompt, n_max):
        """Greedy ids up to the end of the turn, and the smallest lead of a best logit."""
        defaults = self.declare("context_default_params", self.Params)()
        start = self.declare("init_from_model", ctypes.c_void_p, ctypes.c_void_p, self.Params)
        context = start(self.model, defaults)
        self.declare("set_n_threads", None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)(
            context, 1, 1)
        ids, lead, step = [], np.inf, list(prompt)
        while len(ids) < n_max and END_OF_TURN not in ids:
            array = (ctypes.c_int32 * len(step))(*step)  # the batch only points to it
            if self.decode(context, self.one_batch(array, len(step))):
                sys.exit("llama_decode failed")
            logits = np.ctypeslib.as_array(self.last_logits(context, -1), (self.n_vocab,))
            second, best = np.sort(logits)[-2:]
            lead, step = min(lead, float(best - second)), [int(logits.argmax())]
            ids += step
        self.declare("free", None, ctypes.c_void_p)(context)
        return ids, lead


def remake_tokens(args):
    cases = load(args.folder, "tokens.json")
    llama = Llama(args.llama, args.folder / f"{next(iter(SHAPES))}.gguf")
    n_other = 0
    for case in cases:
        ids = llama.encode(case["text"], case["parse_special"])
        if ids != case["ids"]:
            n_other += 1
            print(f"{case['text']!r}: {case['ids']} became {ids}")
        case["ids"] = ids
    if args.write:
        store(args.folder, "tokens.json", cases, 0)
    return report("tokens.json", not n_other, f"{len(cases)} texts, {n_other} with other ids")


def remake_demo(args):
    found = load(args.folder, "demo-greedy.json")
    llama, is_same = Llama(args.llama, DEMO_MODEL), True
    for case in found["cases"]:
        ids, lead = llama.answer(case["prompt"], n_max=250)
        is_good = ids == case["answer"] and lead > LEAD_MIN
        is_same &= report(f"{case['text'][:50]!r}", is_good,
                          f"{len(ids)} ids, the best logit leads by {lead:.2f} or more")
        case["answer"] = ids
    if args.write:
        store(args.folder, "demo-greedy.json", found, None)
    return is_same


def remake_chat(args):
    import jinja2
    import jinja2.sandbox

    def fail(message):
        raise jinja2.TemplateError(message)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = lambda x, **more: json.dumps(x, ensure_ascii=False, **more)
    environment.globals["raise_exception"] = fail
    templates = {size: environment.from_string(pathlib.Path(path).read_text(encoding="utf-8"))
                 for size, path in (("small", args.small), ("large", args.large))}
    cases, n_other = load(args.folder, "chat.json"), 0
    for case in cases:
        prompt = templates[case["size"]].render(bos_token="<bos>", **case["request"])
        if prompt != case["prompt"]:
            n_other += 1
            print(f"{case['name']}, {case['size']}: {case['prompt']!r} became {prompt!r}")
        case["prompt"] = prompt
    if args.write:
        store(args.folder, "chat.json", cases, 1)
    return report("chat.json", not n_other, f"{len(cases)} chats, {n_other} rendered otherwise")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--folder", type=pathlib.Path, default=FIXTURES, help="of the fixtures")
    parser.add_argument("--write", action="store_true", help="replace the answers that are there")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, remake in (("logits", remake_logits), ("drafts", remake_drafts)):
        command = commands.add_parser(name)
        command.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SHAPES))
        command.set_defaults(remake=remake)
    for name, remake in (("tokens", remake_tokens), ("demo", remake_demo)):
        command = commands.add_parser(name)
        command.add_argument("llama", help="libllama.so")
        command.set_defaults(remake=remake)
    chat = commands.add_parser("chat")
    chat.add_argument("small", help="template of E2B and E4B")
    chat.add_argument("large", help="template of the others")
    chat.set_defaults(remake=remake_chat)
    args = parser.parse_args()
    return 0 if args.remake(args) else 1


if __name__ == "__main__":
    sys.exit(main())
