"""Builds the tokenizer, trains, evaluates the exported weights, writes the GGUF file.

    python3 train.py --minutes 18 --out OUT             all in one go on a machine with one GPU
    python3 train.py --minutes 18 --stop 9 --out OUT    stop after 9 of the 18 minutes; the same command continues
"""
import argparse
import csv
import math
import multiprocessing as mp
import os
import pickle
import random
import time
from queue import Empty

import numpy as np

import bpe
import corpus

ROWS, LENGTH = 64, 1024


def pack(r, tok, pool):
    """One row: whole documents, each with its own positions."""
    ids = np.zeros(LENGTH, np.int16)
    pos = np.zeros(LENGTH, np.int16)
    seg = np.full(LENGTH, 255, np.uint8)
    wt = np.zeros(LENGTH, np.float16)
    at, n = 0, 0
    while True:
        while len(pool) < 48:
            d = corpus.tokens_of(corpus.document(r), tok)
            if len(d[0]) <= LENGTH:
                pool.append(d)
        k = next((i for i, d in enumerate(pool) if len(d[0]) <= LENGTH - at), None)
        if k is None:
            return ids, pos, seg, wt
        t, w = pool.pop(k)
        e = at + len(t)
        ids[at:e], pos[at:e], seg[at:e] = t, np.arange(len(t)), n
        wt[at:e - 1] = w[1:]                 # the weight of predicting the next token
        at, n = e, n + 1


def worker(seed, tok, queue):
    r = random.Random(seed)
    pool = []
    while True:
        rows = [pack(r, tok, pool) for _ in range(ROWS)]
        queue.put(tuple(np.stack(x) for x in zip(*rows)))


def orthogonal(g):
    """Newton-Schulz iteration on a stack of matrices: every singular value goes to about one."""
    import torch
    x = g.bfloat16()
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


class Muon:
    """Momentum, then the nearest orthogonal matrix as the step; matrices of one shape are handled together."""

    def __init__(self, params, momentum=0.95, decay=0.05):
        import torch
        self.momentum, self.decay = momentum, decay
        self.groups = {}
        for p in params:
            self.groups.setdefault(tuple(sorted(p.shape)), []).append(p)
        self.buf = {k: torch.zeros(len(ps), *k, device=ps[0].device) for k, ps in self.groups.items()}
        self.fn = torch.compile(orthogonal, dynamic=False)

    def step(self, lr):
        import torch
        for k, ps in self.groups.items():
            g = torch.stack([p.grad if p.shape[0] <= p.shape[1] else p.grad.mT for p in ps])
            m = self.buf[k]
            m.lerp_(g, 1 - self.momentum)
            u = self.fn(g.lerp(m, self.momentum)).float()
            for p, x in zip(ps, u):
                x = x if p.shape[0] <= p.shape[1] else x.mT
                p.mul_(1 - lr * self.decay)
                p.add_(x, alpha=-lr * max(1, p.shape[0] / p.shape[1]) ** 0.5)


def evaluate(model, tok, scale=1.0, names=None, show=2):
    import model as mod
    rows = []
    for name in names or corpus.EVAL:
        n = max(20, int(corpus.EVAL[name][1] * scale))
        cases = corpus.eval_cases(name, n)
        prompts = [corpus.prompt_of(e, tok) for e in cases]
        limit = 230 if name == "stories" else 90
        answers = [tok.decode(a) for a in mod.generate(model, prompts, limit)]
        good = [corpus.right(e, a) for e, a in zip(cases, answers)]
        rows.append((name, sum(good), len(good)))
        print(f"{name:36s} {sum(good):4d} / {len(good):4d}  {100 * sum(good) / len(good):5.1f} %", flush=True)
        bad = [(e, a) for e, a, g in zip(cases, answers, good) if not g][:show]
        for e, a in bad:
            print(f"      asked {e.turns[-2][1][-100:]!r} answered {a[:120]!r} wanted {str(e.want or e.turns[-1][1])[:90]!r}", flush=True)
    return rows


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--minutes", type=float, default=18, help="length of the whole schedule")
    ap.add_argument("--stop", type=float, default=1e9, help="stop this call after so many minutes of training")
    ap.add_argument("--out", default=".")
    ap.add_argument("--work", default="/tmp/demo_model_work")
    ap.add_argument("--workers", type=int, default=15)
    ap.add_argument("--lr", type=float, default=0.02)
    ap.add_argument("--adam", type=float, default=3e-3)
    ap.add_argument("--eval-scale", type=float, default=1.0)
    ap.add_argument("--seed", type=int, default=corpus.SEED)
    a = ap.parse_args()
    t_start = time.time()
    os.makedirs(a.work, exist_ok=True)
    os.makedirs(a.out, exist_ok=True)
    ckpt = os.path.join(a.work, "state.pt")
    tok_file = os.path.join(a.work, "tok.pkl")
    tok = pickle.load(open(tok_file, "rb")) if os.path.exists(tok_file) else bpe.build()
    pickle.dump(tok, open(tok_file, "wb"))
    print(f"tokenizer: {len(tok.tokens)} tokens, {len(tok.merges)} merges, {time.time() - t_start:.1f} s", flush=True)
    queue = mp.Queue(48)
    salt = int(time.time()) if os.path.exists(ckpt) else 0       # a continued run must not see the same documents again
    procs = [mp.Process(target=worker, args=(f"{a.seed}:{salt}:{i}", tok, queue), daemon=True) for i in range(a.workers)]
    for p in procs:
        p.start()

    import torch
    import export
    import model as mod
    torch.set_float32_matmul_precision("high")
    dev = torch.device("cuda")
    cfg = dict(mod.CONFIG, vocab=len(tok.tokens))
    net = mod.Gemma(cfg, a.seed).to(dev)
    names = dict(net.p.items())
    print(f"{sum(p.numel() for p in names.values())} parameters on {torch.cuda.get_device_name()}", flush=True)
    matrices = [p for n, p in names.items() if p.ndim == 2 and not n.endswith("token_embd/weight")]
    tables = [p for n, p in names.items() if n.endswith("token_embd/weight")]
    vectors = [p for n, p in names.items() if p.ndim == 1]
    muon = Muon(matrices)
    adam = torch.optim.AdamW([{"params": tables, "weight_decay": 0.02}, {"params": vectors, "weight_decay": 0.0}], lr=a.adam, betas=(0.9, 0.98), eps=1e-10, fused=True)
    step, spent, log = 0, 0.0, []
    if os.path.exists(ckpt):
        s = torch.load(ckpt, map_location=dev, weights_only=False)
        net.load_state_dict(s["net"])
        adam.load_state_dict(s["adam"])
        for k in muon.buf:
            muon.buf[k].copy_(s["muon"][k])
        step, spent, log = s["step"], s["spent"], s["log"]
        print(f"continued at step {step}, {spent / 60:.1f} min", flush=True)
    loss_fn = torch.compile(net.loss, dynamic=False)
    total, stop = a.minutes * 60, min(a.minutes * 60, spent + a.stop * 60)

    def save():
        torch.save({"net": net.state_dict(), "adam": adam.state_dict(), "muon": muon.buf, "step": step, "spent": spent, "log": log}, ckpt)

    # The GPU is faster than the workers, so rows are kept and drawn again: each is used about twice.
    keep, have, put = 1500 * ROWS, 0, 0
    store = [torch.zeros(keep, LENGTH, dtype=t, device=dev) for t in (torch.int16, torch.int16, torch.uint8, torch.float16)]

    def take(block):
        nonlocal have, put
        x = queue.get(block)
        for s, y in zip(store, x):
            s[put:put + ROWS] = torch.from_numpy(y).to(dev)
        put = (put + ROWS) % keep
        have = min(keep, have + ROWS)

    def batch():
        nonlocal fresh
        while have < 40 * ROWS:
            take(True)
        try:
            while True:
                take(False)
                fresh += 1
        except Empty:
            pass
        i = torch.randint(have, (ROWS,), device=dev)
        ids, pos, seg, wt = (s[i] for s in store)
        return ids.long(), pos.long(), seg.int(), wt.float()

    fresh = 0
    t0, acc, first = None, 0.0, step
    base = spent
    while True:
        if t0 is not None:
            spent = base + time.time() - t0
        if spent >= stop:
            break
        p = spent / total
        lr = min(1.0, (step + 1) / 150) * (1.0 if p < 0.25 else max(0.02, (1 - p) / 0.75))
        loss = loss_fn(*batch())
        loss.backward()
        with torch.no_grad():
            muon.step(a.lr * lr)
            for g in adam.param_groups:
                g["lr"] = a.adam * lr
            adam.step()
        for q in names.values():
            q.grad = None
        step += 1
        if t0 is None:                                     # the clock starts after compilation
            torch.cuda.synchronize()
            print(f"first step after {time.time() - t_start:.1f} s", flush=True)
            t0 = time.time()
        if step % 20 == 0:
            acc = loss.item()                              # also keeps the host from running far ahead
        if step % 200 == 0:
            dt = time.time() - t0
            log.append((step, round(spent / 60, 2), acc))
            print(f"step {step} loss {acc:.4f} lr {lr:.3f} {spent / 60:.2f} min {(step - first) * ROWS * LENGTH / dt / 1e6:.2f} Mtok/s of them new {fresh * ROWS * LENGTH / dt / 1e6:.2f} mem {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB", flush=True)
    print(f"trained to step {step}, {step * ROWS * LENGTH / 1e6:.0f} M tokens, {spent / 60:.2f} min", flush=True)
    for p in procs:
        p.terminate()
    if spent < total:
        save()

    tensors = {n.replace("/", "."): p.detach().float().cpu().numpy() for n, p in names.items()}
    path = os.path.join(a.out, "demo.gguf")
    L = cfg["block_count"]
    export.write(path, cfg, tok, tensors, [mod.ff(cfg, l) for l in range(L)], [mod.is_local(l) for l in range(L)])
    print(f"{path}: {os.path.getsize(path)} bytes", flush=True)
    with open(os.path.join(a.out, "loss.csv"), "w", newline="") as f:
        csv.writer(f).writerows([("step", "minutes", "loss")] + log)

    # everything below is measured on the exported weights, in fp32
    _, back = export.read(path)
    with torch.no_grad():
        for n, p in names.items():
            p.copy_(torch.from_numpy(back[n.replace("/", ".")].copy()))
    net.dtype = torch.float32
    t1 = time.time()
    rows = evaluate(net, tok, a.eval_scale)
    with open(os.path.join(a.out, "accuracy.csv"), "w", newline="") as f:
        csv.writer(f).writerows([("task", "right", "cases", "percent")] + [(n, g, c, round(100 * g / c, 1)) for n, g, c in rows])
    print(f"evaluated in {time.time() - t1:.1f} s; all {time.time() - t_start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
