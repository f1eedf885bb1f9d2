"""A byte-pair tokenizer with Gemma's layout: control ids, newline and space runs, byte tokens,
characters, merges.

A whole line is one BPE word for the reader of the file, so the training keeps merges inside words:
a product is letters with at most one leading U+2581, never a digit and never two words.  Then
merging a line by rank gives the same result as merging each word alone, which is what the cache in
encode() uses.
"""
import collections
import heapq
import re

SPACE = "\u2581"
NAMES = {0: "<pad>", 1: "<eos>", 2: "<bos>", 3: "<unk>", 4: "<mask>", 46: "<|tool>", 47: "<tool|>",
         48: "<|tool_call>", 49: "<tool_call|>", 50: "<|tool_response>",
         51: "<tool_response|>", 52: "<|\"|>", 98: "<|think|>", 100: "<|channel>",
         101: "<channel|>", 105: "<|turn>", 106: "<turn|>", 212: "</s>"}
CONTROL = {0, 1, 2, 3, 4, 46, 47, 98, 105, 106}
USER_DEFINED = {48, 49, 50, 51, 52, 100, 101}
FIRST_BYTE = 238
FIRST_CHAR = 494
CHARS = SPACE + "".join(chr(c) for c in range(33, 127)) + "éäöüß’“”–…"
CHUNK = re.compile(f"{SPACE}*[A-Za-z]+|{SPACE}+|\n+|.", re.S)
WORD = re.compile(f"{SPACE}?[A-Za-z]+")


def base_vocab():
    tokens = [NAMES.get(i, f"<unused{i}>") for i in range(107)]
    tokens += ["\n" * n for n in range(1, 32)] + [SPACE * n for n in range(2, 32)]
    tokens += [NAMES.get(i, f"<unused{i}>") for i in range(168, FIRST_BYTE)]
    tokens += [f"<0x{b:02X}>" for b in range(256)]
    return tokens + list(CHARS)


def run_merges():
    """Runs of newlines and of spaces come first, as in the published files."""
    return [("\n" * n, "\n") for n in range(1, 31)] + [(SPACE * n, SPACE) for n in range(1, 31)]


def train(texts, vocab_size):
    """The classic loop: merges the most frequent neighbours inside the words until the vocabulary
    is full."""
    words = collections.Counter()
    for t in texts:
        words.update(WORD.findall(t.replace(" ", SPACE)))
    seqs = [list(w) for w in words]
    counts = list(words.values())
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for i, s in enumerate(seqs):
        for p in zip(s, s[1:]):
            pairs[p] += counts[i]
            where[p].add(i)
    tokens, merges = base_vocab(), run_merges()
    known = set(tokens)
    heap = [(-n, p) for p, n in pairs.items()]
    heapq.heapify(heap)
    while len(tokens) < vocab_size:
        n, p = heapq.heappop(heap)
        if pairs[p] != -n:                               # stale entry
            if pairs[p] > 0:
                heapq.heappush(heap, (-pairs[p], p))
            continue
        if n == 0:
            raise ValueError("text too small for this vocabulary")
        a, b = p
        merges.append(p)
        if a + b not in known:
            known.add(a + b)
            tokens.append(a + b)
        changed = set()
        for i in list(where[p]):
            s, c = seqs[i], counts[i]
            for q in zip(s, s[1:]):
                pairs[q] -= c
                changed.add(q)
            out, k = [], 0
            while k < len(s):
                if k + 1 < len(s) and s[k] == a and s[k + 1] == b:
                    out.append(a + b)
                    k += 2
                else:
                    out.append(s[k])
                    k += 1
            seqs[i] = out
            for q in zip(out, out[1:]):
                pairs[q] += c
                where[q].add(i)
                changed.add(q)
        for q in changed:
            if pairs[q] > 0:
                heapq.heappush(heap, (-pairs[q], q))
    return tokens, merges


class Tokenizer:
    def __init__(self, tokens, merges):
        self.tokens = tokens
        self.merges = merges
        self.id = {t: i for i, t in enumerate(tokens)}
        self.rank = {}
        for i, p in enumerate(merges):
            self.rank.setdefault(p, i)
        self.cache = {}

    def types(self):
        return [3 if i in CONTROL else 4 if i in USER_DEFINED else 6 if FIRST_BYTE <= i < FIRST_CHAR
                else 1 for i in range(len(self.tokens))]

    def merge(self, text):
        """Merge by rank, leftmost first; characters outside the vocabulary become bytes."""
        s = list(text)
        while len(s) > 1:
            best = min(((self.rank[p], i) for i, p in enumerate(zip(s, s[1:])) if p in self.rank),
                       default=None)
            if best is None:
                break
            i = best[1]
            s[i:i + 2] = [s[i] + s[i + 1]]
        ids = []
        for x in s:
            ids += [self.id[x]] if x in self.id else [FIRST_BYTE + b for b in x.encode()]
        return ids

    def encode(self, text):
        out = []
        for chunk in CHUNK.findall(text.replace(" ", SPACE)):
            ids = self.cache.get(chunk)
            if ids is None:
                ids = [self.id[chunk]] if chunk[0] == "\n" and chunk in self.id else self.merge(
                    chunk)
                if len(self.cache) < 200000:
                    self.cache[chunk] = ids
            out += ids
        return out

    def encode_slow(self, text):
        """The rule as a reader of the file applies it: whole lines, no knowledge of words."""
        out = []
        for run in re.findall("\n+|[^\n]+", text.replace(" ", SPACE)):
            out += [self.id[run]] if run[0] == "\n" and run in self.id else self.merge(run)
        return out

    def decode(self, ids):
        out = b""
        for i in ids:
            if FIRST_BYTE <= i < FIRST_CHAR:
                out += bytes([i - FIRST_BYTE])
            elif i not in CONTROL:
                out += self.tokens[i].replace(SPACE, " ").encode()
        return out.decode("utf-8", "replace")


def build(vocab_size=2048, documents=60000):
    """The demo model's tokenizer: trained on a sample of its own training text."""
    import random
    import corpus
    r = random.Random(corpus.SEED)
    texts = []
    for _ in range(documents):
        e = corpus.document(r)
        # recall prompts are long; a part of their text is enough
        texts += [role + "\n" + t[:600] for role, t in e.turns]
    return Tokenizer(*train(texts, vocab_size))


if __name__ == "__main__":
    import random
    import corpus
    tok = build()
    r = random.Random(5)
    for _ in range(300):
        for _, t in corpus.document(r).turns:
            assert tok.encode(t) == tok.encode_slow(t), t
            assert tok.decode(tok.encode(t)) == t
    for t in ["  two  spaces   and 12 +3", "a\n\n\n b  \n", "Ünïcode 日本 \t tab", "'\"'", "   ",
              "word" * 9, "\n" * 40]:
        assert tok.encode(t) == tok.encode_slow(t), t
    print(len(tok.tokens), "tokens;", tok.tokens[-20:])
