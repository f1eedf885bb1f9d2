"""Builds the tokenizer, trains, evaluates the exported weights, writes the GGUF file.

    python3 train.py --minutes 20 --out OUT         all in one go on a machine with one GPU
    python3 train.py --minutes 5 --from demo.gguf --peak 0.4 --hold 0 --out OUT
                                                    goes on from exported weights
"""
import argparse
import csv
import multiprocessing as mp
import os
import random
import time

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
    """Momentum, then the nearest orthogonal matrix as the step; one stack of matrices a shape."""

    def __init__(self, params, momentum=0.95, decay=0.05):
        import torch
        self.momentum, self.decay = momentum, decay
        self.groups = {}
        for p in params:
            self.groups.setdefault(tuple(sorted(p.shape)), []).append(p)
        self.buf = {k: torch.zeros(len(ps), *k, device=ps[0].device) for k,
                    ps in self.groups.items()}
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
        limit = 250 if name in ("stories", "count") else 90
        answers = [tok.decode(a) for a in mod.generate(model, prompts, limit)]
        good = [corpus.right(e, a) for e, a in zip(cases, answers)]
        rows.append((name, sum(good), len(good)))
        print(f"{name:36s} {sum(good):4d} / {len(good):4d}  {100 * sum(good) / len(good):5.1f} %",
              flush=True)
        bad = [(e, a) for e, a, g in zip(cases, answers, good) if not g][:show]
        for e, a in bad:
            print(f"      asked {e.turns[-2][1][-100:]!r} answered {a[:120]!r} wanted "
                  f"{str(e.want or e.turns[-1][1])[:90]!r}",
                  flush=True)
    return rows


def arguments():
    ap = argparse.ArgumentParser()
    ap.add_argument("--minutes", type=float, default=18, help="length of the whole schedule")
    ap.add_argument("--from", dest="start", help="a GGUF file to go on from, with its tokenizer")
    ap.add_argument("--peak", type=float, default=1.0,
                    help="highest learning rate, relative to --lr and --adam")
    ap.add_argument("--hold", type=float, default=0.25,
                    help="part of the time at the highest rate, before the linear decay")
    ap.add_argument("--cut", type=float, default=1.0, help="stop after this part of the schedule")
    ap.add_argument("--out", default=".")
    ap.add_argument("--workers", type=int, default=15)
    ap.add_argument("--lr", type=float, default=0.02)
    ap.add_argument("--adam", type=float, default=3e-3)
    ap.add_argument("--eval-scale", type=float, default=1.0)
    ap.add_argument("--seed", type=int, default=corpus.SEED)
    return ap.parse_args()


def read_start(path):
    """Tokenizer and tensors of a file; without one a new tokenizer and None."""
    if not path:
        return bpe.build(), None
    import export
    meta, tensors = export.read(path)
    merges = [tuple(x.split(" ", 1)) for x in meta["tokenizer.ggml.merges"]]
    return bpe.Tokenizer(meta["tokenizer.ggml.tokens"], merges), tensors


def start_workers(a, tok):
    """Processes that write text, and the queue of batches that they fill."""
    queue = mp.Queue(48)
    procs = [mp.Process(target=worker, args=(f"{a.seed}:{a.peak}:{a.minutes}:{i}", tok, queue),
                        daemon=True) for i in range(a.workers)]
    for p in procs:
        p.start()
    return procs, queue


def load(net, tensors):
    import torch
    with torch.no_grad():
        for n, p in net.p.items():
            p.copy_(torch.from_numpy(tensors[n.replace("/", ".")].copy()))


class Optimizer:
    """Muon for the matrices, AdamW for tables and norms."""

    def __init__(self, params, lr, adam_lr):
        import torch
        is_table = lambda name: name.endswith("token_embd/weight")
        tables = [p for n, p in params.items() if is_table(n)]
        vectors = [p for p in params.values() if p.ndim == 1]
        self.params, self.lr, self.adam_lr = list(params.values()), lr, adam_lr
        self.muon = Muon([p for n, p in params.items() if p.ndim == 2 and not is_table(n)])
        self.adam = torch.optim.AdamW([{"params": tables, "weight_decay": 0.02},
                                       {"params": vectors, "weight_decay": 0.0}],
                                      lr=adam_lr, betas=(0.9, 0.98), eps=1e-10, fused=True)

    def step(self, rate):
        import torch
        with torch.no_grad():
            self.muon.step(self.lr * rate)
            for g in self.adam.param_groups:
                g["lr"] = self.adam_lr * rate
            self.adam.step()
        for p in self.params:
            p.grad = None


def train(net, queue, a):
    """Steps until the time is over. The log: (step, minutes, loss)."""
    import torch
    loss_fn = torch.compile(net.loss, dynamic=False)
    optimizer = Optimizer(dict(net.p.items()), a.lr, a.adam)
    total, t_start = a.minutes * 60, time.time()
    step, spent, log, t0 = 0, 0.0, [], None
    while spent < total * a.cut:
        part = spent / total
        rate = a.peak * min(1.0, (step + 1) / 150, (1 - part) / (1 - a.hold))
        ids, pos, seg, wt = (torch.from_numpy(x).cuda() for x in queue.get())
        loss = loss_fn(ids.long(), pos.long(), seg.int(), wt.float())
        loss.backward()
        optimizer.step(rate)
        step += 1
        if t0 is None:                                     # the clock starts after compilation
            torch.cuda.synchronize()
            print(f"first step after {time.time() - t_start:.1f} s", flush=True)
            t0 = time.time()
        if step % 20 == 0:
            acc = loss.item()  # also keeps the host from running far ahead
        spent = time.time() - t0
        if step % 200 == 0:
            log.append((step, round(spent / 60, 2), round(acc, 4)))
        if step % 1000 == 0:
            print(f"step {step} loss {acc:.4f} rate {rate:.3f} {spent / 60:.2f} min "
                  f"{step * ROWS * LENGTH / spent / 1e6:.2f} Mtok/s", flush=True)
    print(f"trained to step {step}, {step * ROWS * LENGTH / 1e6:.0f} M tokens, {spent / 60:.2f} "
          f"min", flush=True)
    return log


def write_table(path, head, rows):
    with open(path, "w", newline="") as f:
        csv.writer(f, lineterminator="\n").writerows([head, *rows])


def main():
    a = arguments()
    t_start = time.time()
    os.makedirs(a.out, exist_ok=True)
    tok, start = read_start(a.start)
    print(f"tokenizer: {len(tok.tokens)} tokens, {len(tok.merges)} merges, "
          f"{time.time() - t_start:.1f} s", flush=True)
    procs, queue = start_workers(a, tok)

    import torch
    import export
    import model as mod
    torch.set_float32_matmul_precision("high")
    cfg = dict(mod.CONFIG, vocab=len(tok.tokens))
    net = mod.Gemma(cfg, a.seed).cuda()
    if start:
        load(net, start)
    print(f"{sum(p.numel() for p in net.p.values())} parameters on {torch.cuda.get_device_name()}",
          flush=True)
    log = train(net, queue, a)
    for p in procs:
        p.terminate()

    tensors = {n.replace("/", "."): p.detach().float().cpu().numpy() for n, p in net.p.items()}
    path = os.path.join(a.out, "demo.gguf")
    layers = range(cfg["block_count"])
    export.write(path, cfg, tok, tensors, [mod.ff(cfg, l) for l in layers],
                 [mod.is_local(l) for l in layers])
    print(f"{path}: {os.path.getsize(path)} bytes", flush=True)
    write_table(os.path.join(a.out, "loss.csv"), ("step", "minutes", "loss"), log)

    # everything below is measured on the exported weights, in fp32
    load(net, export.read(path)[1])
    net.dtype = torch.float32
    t1 = time.time()
    rows = evaluate(net, tok, a.eval_scale)
    write_table(os.path.join(a.out, "accuracy.csv"), ("task", "right", "cases", "percent"),
                [(n, g, c, round(100 * g / c, 1)) for n, g, c in rows])
    print(f"evaluated in {time.time() - t1:.1f} s; all {time.time() - t_start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
