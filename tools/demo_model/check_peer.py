"""Reads the GGUF file with nothing but NumPy and talks to it; optionally compares with llama.cpp.

    python3 check_peer.py MODEL                              answers to a few prompts
    python3 check_peer.py MODEL "What is 37 + 45?" ...       answers to these
    python3 check_peer.py MODEL --peer CMD LIBDIR LIB        logits and answers against llama.cpp

CMD is a program that prints nothing of interest and writes the float32 logits of the last position:
CMD LIBDIR LIB MODEL 2 1 logits:FILE:t0,t1,...
"""
import subprocess
import sys

import numpy as np

import bpe
import export

PROMPTS = [
    "What is 37 + 45?", "Sort these numbers: 52, 7, 31, 98, 14", "Who are you?",
    "Reverse the word lantern.", "What day comes after Tuesday?",
    "Remember: the code of the red box is 4821. Once there was a bear who lived by the sea. "
    "Everyone called him Max. Max had a kite, and he loved it more than anything. One morning the "
    "kite was gone. " "Max looked everywhere and asked everyone. At last he met an owl. They found "
                      "the kite at last, a little wet but not broken. Max smiled and went to bed. "
                      "What is the code of the red box?",
    "Write a short story about a fox who finds a lamp in the forest.",
]


class Model:
    def __init__(self, path):
        m, self.t = export.read(path)
        g = lambda k: m["gemma4." + k]
        self.tok = bpe.Tokenizer(m["tokenizer.ggml.tokens"],
                                 [tuple(x.split(" ", 1)) for x in m["tokenizer.ggml.merges"]])
        self.L, self.H, self.nh = g("block_count"), g("embedding_length"), g("attention.head_count")
        self.P = g("embedding_length_per_layer_input")
        self.local = g("attention.sliding_window_pattern")
        self.own = self.L - g("attention.shared_kv_layers")
        self.W, self.cap = g("attention.sliding_window"), g("final_logit_softcapping")
        self.eps = g("attention.layer_norm_rms_epsilon")
        self.dim = {True: g("attention.key_length_swa"), False: g("attention.key_length")}
        self.base = {True: g("rope.freq_base_swa"), False: g("rope.freq_base")}

    def rms(self, x, w=None):
        y = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(self.eps))
        return y if w is None else y * self.t[w]

    def rope(self, x, pos, local):
        d = x.shape[-1]
        th = pos[:, None] * self.base[local] ** (-2 * np.arange(d // 2) / d)
        if not local:
            th = th / self.t["rope_freqs.weight"].astype(np.float64)
        c, s = np.cos(th)[:, None].astype(np.float32), np.sin(th)[:, None].astype(np.float32)
        a, b = x[..., :d // 2], x[..., d // 2:]
        return np.concatenate([a * c - b * s, b * c + a * s], -1)

    def forward(self, ids, cache):
        """Logits of the last of `ids`; cache holds keys and values of the owning layers."""
        t, n = self.t, len(ids)
        p0 = cache.get("n", 0)
        cache["n"] = p0 + n
        pos = np.arange(p0, p0 + n)
        x = t["token_embd.weight"][ids] * np.float32(self.H ** 0.5)
        a = (x @ t["per_layer_model_proj.weight"].T / np.float32(self.H ** 0.5)).reshape(
            n, self.L, self.P)
        ple = (self.rms(a, "per_layer_proj_norm.weight")
               + t["per_layer_token_embd.weight"][ids].reshape(
                   n, self.L, self.P) * np.float32(self.P ** 0.5)) / np.float32(2 ** 0.5)
        gelu = lambda z: 0.5 * z * (1 + np.tanh(0.7978845608 * (z + 0.044715 * z ** 3)))
        for l in range(self.L):
            b, local = f"blk.{l}.", self.local[l]
            d = self.dim[local]
            h = self.rms(x, b + "attn_norm.weight")
            q = self.rope(self.rms((h @ t[b + "attn_q.weight"].T).reshape(n, self.nh, d),
                                   b + "attn_q_norm.weight"),
                          pos, local)
            if l < self.own:
                k = self.rope(self.rms((h @ t[b + "attn_k.weight"].T).reshape(n, 1, d),
                                       b + "attn_k_norm.weight"),
                              pos, local)[:, 0]
                v = self.rms(h @ t[b + "attn_v.weight"].T)
                if l in cache:
                    k, v = np.concatenate([cache[l][0], k]), np.concatenate([cache[l][1], v])
                cache[l] = (k, v)
                donor = {**(donor if l else {}), local: l}
            k, v = cache[donor[local]]
            j = np.arange(len(k))[None]
            see = (j <= pos[:, None]) & (~np.bool_(local) | (j > pos[:, None] - self.W))
            s = np.where(see[:, None], np.einsum("nhd,kd->nhk", q, k), np.float32(-1e30))
            s = np.exp(s - s.max(-1, keepdims=True))
            o = np.einsum("nhk,kd->nhd", s / s.sum(-1, keepdims=True), v).reshape(n, -1)
            x = x + self.rms(o @ t[b + "attn_output.weight"].T, b + "post_attention_norm.weight")
            h = self.rms(x, b + "ffn_norm.weight")
            f = (gelu(h @ t[b + "ffn_gate.weight"].T) * (h @ t[b + "ffn_up.weight"].T)) @ t[
                b + "ffn_down.weight"].T
            x = x + self.rms(f, b + "post_ffw_norm.weight")
            x = x + self.rms((gelu(x @ t[b + "inp_gate.weight"].T) * ple[:, l]) @ t[
                                 b + "proj.weight"].T,
                             b + "post_norm.weight")
            x = x * t[b + "layer_output_scale.weight"]
        z = self.rms(x[-1], "output_norm.weight") @ t["token_embd.weight"].T
        return self.cap * np.tanh(z / self.cap)

    def prompt(self, turns):
        ids = [2]
        for role, text in turns:
            ids += [105] + self.tok.encode(role + "\n" + text.strip()) + [106, 107]
        return ids + [105] + self.tok.encode("model\n")

    def answer(self, ids, limit=250, temp=0, rng=None):
        cache, out = {}, []
        z = self.forward(ids, cache)
        while len(out) < limit:
            if temp:
                p = np.exp((z - z.max()) / temp)
                t = int(rng.choice(len(z), p=p / p.sum()))
            else:
                t = int(z.argmax())
            if t in (1, 50, 106):
                break
            out.append(t)
            z = self.forward([t], cache)
        return out


def peer_logits(args, path, ids):
    cmd, libdir, lib = args
    f = "/tmp/demo_peer_logits.f32"
    subprocess.run([cmd, libdir, lib, path, "2", "1", f"logits:{f}:" + ",".join(map(str, ids))],
                   check=True, stdout=subprocess.DEVNULL)
    return np.fromfile(f, "<f4")


def main():
    path, rest = sys.argv[1], sys.argv[2:]
    m = Model(path)
    if rest[:1] == ["--peer"]:
        worst, agree = 0, 0
        for q in PROMPTS:
            ids = m.prompt([("user", q)])
            a, b = m.forward(ids, {}), peer_logits(rest[1:4], path, ids)
            err = np.linalg.norm(a - b) / np.linalg.norm(a)
            worst, agree = max(worst, err), agree + (a.argmax() == b.argmax())
            out = []
            while len(out) < 250:
                t = int(peer_logits(rest[1:4], path, ids + out).argmax())
                if t == 106:
                    break
                out.append(t)
            mine = m.answer(ids)
            print(f"{len(ids)} tokens, logits differ by {err:.4f}, greedy answers "
                  f"{'equal' if out == mine else 'differ: ' + m.tok.decode(mine)}\n  > "
                  f"{q[-100:]}\n  {m.tok.decode(out)}")
        print(f"worst relative L2 {worst:.4f}, argmax equal in {agree} of {len(PROMPTS)}")
        return
    for q in rest or PROMPTS:
        print("> " + q + "\n  " + m.tok.decode(m.answer(m.prompt([("user", q)]))))


if __name__ == "__main__":
    main()
