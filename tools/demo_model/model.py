"""Gemma 4 of the small kind in PyTorch, for training: per-layer embeddings, a tail that shares keys
and values and has a double-wide FFN.

Rows hold several documents; `seg` numbers them and `pos` restarts in each, so that a document sees
what it would see alone.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIG = dict(block_count=9, embedding_length=224, feed_forward=288, vocab=2048, ple=32, heads=2,
              kv_heads=1, head_local=256, head_global=512, window=64, shared=3, context=1024,
              eps=1e-6, softcap=30.0, base_local=1e4, base_global=1e6, rotated=64)


def is_local(layer):
    return (layer + 1) % 3 != 0            # L L G


def ff(cfg, layer):
    return cfg["feed_forward"] * (2 if layer >= cfg["block_count"] - cfg["shared"] else 1)


def shapes(cfg):
    """GGUF name -> shape as PyTorch has it: [output, input]."""
    L, H, V, P = cfg["block_count"], cfg["embedding_length"], cfg["vocab"], cfg["ple"]
    out = {"token_embd.weight": (V, H), "output_norm.weight": (H,),
           "per_layer_token_embd.weight": (V, P * L),
           "per_layer_model_proj.weight": (P * L, H), "per_layer_proj_norm.weight": (P,)}
    for l in range(L):
        d = cfg["head_local"] if is_local(l) else cfg["head_global"]
        f = ff(cfg, l)
        b = f"blk.{l}."
        out[b + "attn_norm.weight"] = (H,)
        out[b + "attn_q.weight"] = (cfg["heads"] * d, H)
        out[b + "attn_q_norm.weight"] = (d,)
        if l < L - cfg["shared"]:
            out[b + "attn_k.weight"] = (cfg["kv_heads"] * d, H)
            out[b + "attn_k_norm.weight"] = (d,)
            out[b + "attn_v.weight"] = (cfg["kv_heads"] * d, H)
        out[b + "attn_output.weight"] = (H, cfg["heads"] * d)
        out[b + "post_attention_norm.weight"] = (H,)
        out[b + "ffn_norm.weight"] = (H,)
        out[b + "ffn_gate.weight"] = (f, H)
        out[b + "ffn_up.weight"] = (f, H)
        out[b + "ffn_down.weight"] = (H, f)
        out[b + "post_ffw_norm.weight"] = (H,)
        out[b + "inp_gate.weight"] = (P, H)
        out[b + "proj.weight"] = (H, P)
        out[b + "post_norm.weight"] = (H,)
        out[b + "layer_output_scale.weight"] = (1,)
    return out


def rms(x, w, eps):
    x = x.float()
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return y if w is None else y * w


class Gemma(nn.Module):
    def __init__(self, cfg, seed=0):
        super().__init__()
        self.cfg = cfg
        g = torch.Generator().manual_seed(seed)
        self.p = nn.ParameterDict()
        for name, shape in shapes(cfg).items():
            if name == "token_embd.weight":
                t = torch.randn(shape, generator=g) / math.sqrt(cfg["embedding_length"])
            elif name == "per_layer_token_embd.weight":
                t = torch.randn(shape, generator=g) * 0.5 / math.sqrt(cfg["ple"])
            elif len(shape) == 2:
                t = torch.randn(shape, generator=g) / math.sqrt(shape[1])
            elif name.endswith("attn_k_norm.weight"):
                # the attention scale is 1, so the keys are kept small
                t = torch.full(shape, 2 / math.sqrt(shape[0]))
            elif "post_" in name:
                t = torch.full(shape, 0.3)  # let the residual stream dominate at first
            else:
                t = torch.ones(shape)
            self.p[name.replace(".", "/")] = nn.Parameter(t)
        self.dtype = torch.bfloat16
        T = cfg["context"]
        for kind, d, base, n in (("local", cfg["head_local"], cfg["base_local"],
                                  cfg["head_local"] // 2),
                                 ("global", cfg["head_global"], cfg["base_global"],
                                  cfg["rotated"])):
            th = torch.arange(T, dtype=torch.float64)[:, None] * base ** (
                -2 * torch.arange(d // 2, dtype=torch.float64) / d)
            th[:, n:] = 0  # pairs past the first 64 of a global head are not rotated
            self.register_buffer("cos_" + kind, th.cos().float(), persistent=False)
            self.register_buffer("sin_" + kind, th.sin().float(), persistent=False)

    def w(self, name):
        return self.p[name.replace(".", "/")]

    def lin(self, x, name):
        return F.linear(x.to(self.dtype), self.w(name).to(self.dtype))

    def rope(self, x, cs):
        c, s = cs
        a, b = x.chunk(2, -1)
        return torch.cat([a * c - b * s, b * c + a * s], -1)

    def attend_local(self, q, k, v, mask):
        """Blocks of W queries against their own block and the one before."""
        B, T, nh, d = q.shape
        W = self.cfg["window"]
        n = T // W
        q = q.view(B, n, W, nh, d).transpose(2, 3).reshape(B, n, nh * W, d)
        k, v = k.view(B, n, W, d), v.view(B, n, W, d)
        k = torch.cat([F.pad(k, (0, 0, 0, 0, 1, 0))[:, :-1], k], 2)
        v = torch.cat([F.pad(v, (0, 0, 0, 0, 1, 0))[:, :-1], v], 2)
        s = (q @ k.transpose(-1, -2)).float().view(B, n, nh, W, 2 * W)
        s = s.masked_fill(~mask[:, :, None], -1e30).softmax(-1).to(v.dtype).view(
            B, n, nh * W, 2 * W)
        o = (s @ v).view(B, n, nh, W, d).transpose(2, 3)
        return o.reshape(B, T, nh * d)

    def attend_global(self, q, k, v, seg):
        B, T, nh, d = q.shape
        # query chunks: nothing is computed for keys after the chunk
        C = T // 4 if T % 4 == 0 and T >= 512 else T
        out = []
        for i in range(0, T, C):
            e = i + C
            qc = q[:, i:e].transpose(1, 2).reshape(B, nh * C, d)
            s = (qc @ k[:, :e].transpose(-1, -2)).float().view(B, nh, C, e)
            t = torch.arange(i, e, device=q.device)
            m = seg[:, i:e, None] == seg[:, None, :e]
            m = m & (t[:, None] >= torch.arange(e, device=q.device)[None])
            s = s.masked_fill(~m[:, None], -1e30).softmax(-1).to(v.dtype).view(B, nh * C, e)
            out.append((s @ v[:, :e]).view(B, nh, C, d).transpose(1, 2).reshape(B, C, nh * d))
        return torch.cat(out, 1)

    def forward(self, tok, pos, seg):
        cfg = self.cfg
        B, T = tok.shape
        H, L, P = cfg["embedding_length"], cfg["block_count"], cfg["ple"]
        eps, W = cfg["eps"], cfg["window"]
        x = self.w("token_embd.weight")[tok].float() * math.sqrt(H)
        a = (self.lin(x, "per_layer_model_proj.weight").float() / math.sqrt(H)).view(B, T, L, P)
        e = self.w("per_layer_token_embd.weight")[tok].view(B, T, L, P) * math.sqrt(P)
        ple = (rms(a, self.w("per_layer_proj_norm.weight"), eps) + e) * (1 / math.sqrt(2))
        cs = {True: (self.cos_local[pos][:, :, None], self.sin_local[pos][:, :, None]),
              False: (self.cos_global[pos][:, :, None], self.sin_global[pos][:, :, None])}
        n = T // W
        sb = seg.view(B, n, W)
        kb = torch.cat([F.pad(sb, (0, 0, 1, 0), value=-1)[:, :-1], sb], 2)
        i = torch.arange(W, device=tok.device)[:, None]
        j = torch.arange(-W, W, device=tok.device)[None]
        local_mask = (sb[..., :, None] == kb[..., None, :]) & (j <= i) & (j > i - W)
        kv = {}
        for l in range(L):
            b, local = f"blk.{l}.", is_local(l)
            d = cfg["head_local"] if local else cfg["head_global"]
            h = rms(x, self.w(b + "attn_norm.weight"), eps)
            q = self.lin(h, b + "attn_q.weight").view(B, T, cfg["heads"], d)
            q = self.rope(rms(q, self.w(b + "attn_q_norm.weight"), eps), cs[local]).to(self.dtype)
            if l < L - cfg["shared"]:
                k = self.lin(h, b + "attn_k.weight").view(B, T, 1, d)
                k = self.rope(rms(k, self.w(b + "attn_k_norm.weight"), eps), cs[local])
                k = k.to(self.dtype).view(B, T, d)
                v = rms(self.lin(h, b + "attn_v.weight"), None, eps).to(self.dtype)
                kv[local] = (k, v)  # the last owner of a kind is the donor of the tail
            k, v = kv[local]
            o = (self.attend_local(q, k, v, local_mask) if local
                 else self.attend_global(q, k, v, seg))
            x = x + rms(self.lin(o, b + "attn_output.weight"),
                        self.w(b + "post_attention_norm.weight"), eps)
            h = rms(x, self.w(b + "ffn_norm.weight"), eps)
            f = F.gelu(self.lin(h, b + "ffn_gate.weight").float(), approximate="tanh")
            f = f * self.lin(h, b + "ffn_up.weight").float()
            x = x + rms(self.lin(f, b + "ffn_down.weight"), self.w(b + "post_ffw_norm.weight"), eps)
            g = F.gelu(self.lin(x, b + "inp_gate.weight").float(), approximate="tanh")
            g = g * ple[:, :, l]
            x = x + rms(self.lin(g, b + "proj.weight"), self.w(b + "post_norm.weight"), eps)
            x = x * self.w(b + "layer_output_scale.weight")
        return rms(x, self.w("output_norm.weight"), eps)

    def logits(self, y):
        z = self.lin(y, "token_embd.weight").float()
        return self.cfg["softcap"] * torch.tanh(z / self.cfg["softcap"])

    def loss(self, tok, pos, seg, weight):
        """weight[b, t] is that of predicting tok[b, t + 1] at t."""
        y = self.forward(tok, pos, seg)
        z = self.logits(y)
        target = torch.roll(tok, -1, 1)
        ce = F.cross_entropy(z.view(-1, z.shape[-1]), target.reshape(-1), reduction="none").view(
            tok.shape)
        return (ce * weight).sum() / weight.sum()


@torch.no_grad()
def generate(model, prompts, limit, stop=106):
    """Greedy answers for a list of prompts; each step computes the whole row, the model is tiny."""
    dev = model.w("token_embd.weight").device
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    answers = [None] * len(prompts)
    W, C = model.cfg["window"], model.cfg["context"]
    at = 0
    while at < len(order):
        n = max(16,
                min(256, 120000 // (len(prompts[order[min(at + 255, len(order) - 1)]]) + limit)))
        group = order[at:at + n]
        at += n
        lens = torch.tensor([len(prompts[i]) for i in group], device=dev)
        T = min(C, int(lens.max()) + limit)
        full = (T + W - 1) // W * W
        tok = torch.zeros(len(group), full, dtype=torch.long)
        for r, i in enumerate(group):
            tok[r, :len(prompts[i])] = torch.tensor(prompts[i])
        tok = tok.to(dev)
        done = torch.zeros(len(group), dtype=torch.bool, device=dev)
        rows = torch.arange(len(group), device=dev)
        cur = lens.clone()
        for _ in range(limit):
            used = min(full, (int(cur.max()) + W - 1) // W * W)
            pos = torch.arange(used, device=dev)[None].expand(len(group), -1)
            y = model(tok[:, :used], pos, torch.zeros_like(pos))
            nxt = model.logits(y[rows, cur - 1]).argmax(-1)
            ok = ~done & (cur < T)
            tok[rows[ok], cur[ok]] = nxt[ok]
            done |= (nxt == stop) | (cur >= T - 1)
            cur = torch.where(ok, cur + 1, cur)
            if bool(done.all()):
                break
        tok, cur = tok.cpu(), cur.cpu()
        for r, i in enumerate(group):
            a = tok[r, len(prompts[i]):int(cur[r])].tolist()
            answers[i] = a[:a.index(stop)] if stop in a else a
    return answers
