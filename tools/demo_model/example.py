"""One case of a task, and what every task needs: held-out instances, typing errors, numbers."""
import zlib


class Example:
    __slots__ = ("task", "key", "turns", "want", "exact", "weight")

    def __init__(self, key, turns, want=None, exact=True, weight=1.0):
        self.task = ""
        self.key = key              # what must be new in a held-out case
        self.turns = turns          # [(role, text)], the last one is the answer
        self.want = want            # words that the answer needs; None: it must be equal
        self.exact = exact
        self.weight = weight        # loss weight of the answer tokens


def held(key):
    """Whether an instance is kept for the evaluation."""
    return zlib.crc32(key.encode()) % 16 == 0


TEMPLATE_WORDS = set("""what is the write story about sort these numbers remember please how much
plus minus times words short tell from which largest smallest who are you can your name count
spell reverse opposite comes after before day month does many where have has which number list
order of for""".split())


def typo(r, w):
    i = r.randrange(len(w) - 1)
    x = r.random()
    if x < 0.4:
        return w[:i] + w[i + 1] + w[i] + w[i + 2:]
    if x < 0.8:
        return w[:i] + w[i + 1:]
    return w[:i] + w[i] + w[i:]


def noisy(r, q, lower=True):
    """What people type: lower case, missing punctuation, a slip of the finger, a polite word."""
    x = r.random()
    if x < 0.10 and lower:
        q = q.lower()
    elif x < 0.25:
        q = q[0].lower() + q[1:]
    if r.random() < 0.15 and q[-1] in ".?!":
        q = q[:-1]
    x = r.random()
    if x < 0.02 and q[-1].isalnum():
        q += " please"
    elif x < 0.03:
        q = (r.choice(["Please ", "please ", "Hey, ", "Hi, ", "Ok, ", "Hello! ", "And ", "now "])
             + q[0].lower() + q[1:])
    if r.random() < 0.06:
        ws = q.split(" ")
        c = [i for i, w in enumerate(ws) if w.lower() in TEMPLATE_WORDS and len(w) > 2]
        if c:
            i = r.choice(c)
            ws[i] = typo(r, ws[i])
            q = " ".join(ws)
    if "'" in q and r.random() < 0.3:
        q = q.replace("'", r.choice(["\u2019", ""]))
    return q


def qa(key, q, a, want=None, weight=1.0):
    return Example(key, [("user", q), ("model", a)], want, want is None, weight)


NUM_WORDS = """zero one two three four five six seven eight nine ten eleven twelve thirteen
fourteen fifteen sixteen seventeen eighteen nineteen twenty""".split()


def number(r, digits):
    return r.randrange(10) if digits == 1 else r.randrange(10 ** (digits - 1), 10 ** digits)
