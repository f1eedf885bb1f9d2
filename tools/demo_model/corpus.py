"""The training text: small tasks a person can check, written as conversations.

Every task is a function of a random generator and returns an Example.  Instances whose key hashes
into one sixteenth of the space are held out: training never sees them, the evaluation uses only them.
"""
import random
import re
import zlib

import scenes
import story

SEED = 20261120


class Example:
    __slots__ = ("task", "key", "turns", "want", "exact", "weight")

    def __init__(self, key, turns, want=None, exact=True, weight=1.0):
        self.task = ""
        self.key = key              # what must be new in a held-out case
        self.turns = turns          # [(role, text)], the last one is the answer
        self.want = want            # words that have to occur in the answer (None: answer must be equal)
        self.exact = exact
        self.weight = weight        # loss weight of the answer tokens


def held(key):
    return zlib.crc32(key.encode()) % 16 == 0


# ------------------------------------------------------------------------------------------- noise
TEMPLATE_WORDS = set("""what is the write story about sort these numbers remember please how much plus minus times words
short tell from which largest smallest who are you can your name count spell reverse opposite comes after before day month
does many where have has which number list order of for""".split())


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
        q = r.choice(["Please ", "please ", "Hey, ", "Hi, ", "Ok, ", "Hello! ", "And ", "now "]) + q[0].lower() + q[1:]
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


# -------------------------------------------------------------------------------------- arithmetic
NUM_WORDS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen twenty""".split()


def number(r, digits):
    return r.randrange(10) if digits == 1 else r.randrange(10 ** (digits - 1), 10 ** digits)


def sizes(r):
    x = r.random()
    if x < 0.12:
        return 1, 1
    if x < 0.55:
        return 2, 2
    if x < 0.68:
        return r.choice([(1, 2), (2, 1)])
    if x < 0.87:
        return 3, 3
    if x < 0.94:
        return r.choice([(1, 3), (2, 3), (3, 2), (3, 1)])
    return r.choice([(4, 4), (4, 4), (4, 3), (3, 4), (4, 2), (4, 1)])


ADD_Q = ["What is {a} + {b}?", "What is {a} plus {b}?", "{a} + {b}", "{a}+{b}", "{a} + {b} =", "{a}+{b}=", "{a} + {b} = ?", "Add {a} and {b}.", "How much is {a} + {b}?", "How much is {a} plus {b}?",
         "What's {a} + {b}?", "Calculate {a} + {b}.", "What is the sum of {a} and {b}?", "{a} plus {b}", "Add {b} to {a}.", "Compute {a} + {b}", "Can you add {a} and {b}?", "whats {a} + {b}", "what does {a} + {b} make?"]
SUB_Q = ["What is {a} - {b}?", "What is {a} minus {b}?", "{a} - {b}", "{a}-{b}", "{a} - {b} =", "{a}-{b}=", "Subtract {b} from {a}.", "How much is {a} - {b}?", "How much is {a} minus {b}?", "What's {a} - {b}?",
         "Calculate {a} - {b}.", "What is the difference of {a} and {b}?", "{a} minus {b}", "Take {b} away from {a}.", "Compute {a} - {b}", "whats {a} - {b}"]
MUL_Q = ["What is {a} * {b}?", "What is {a} times {b}?", "{a} * {b}", "{a}*{b}", "{a} x {b}", "{a} times {b}", "Multiply {a} by {b}.", "Multiply {a} and {b}.", "How much is {a} times {b}?", "What's {a} x {b}?",
         "Calculate {a} * {b}.", "What is the product of {a} and {b}?", "{a} * {b} =", "What is {a} x {b}?", "whats {a} times {b}"]
DIV_Q = ["What is {a} / {b}?", "What is {a} divided by {b}?", "{a} / {b}", "{a}/{b}", "Divide {a} by {b}.", "How much is {a} divided by {b}?", "{a} divided by {b}", "Calculate {a} / {b}.", "{a} : {b}"]


def pair_key(op, a, b):
    return f"{op}:{min(a, b)}:{max(a, b)}"        # a+b and b+a are held out together


def add(r, digits=None):
    da, db = digits or sizes(r)
    a, b = number(r, da), number(r, db)
    return qa(pair_key("add", a, b), r.choice(ADD_Q).format(a=a, b=b), f"{a} + {b} = {a + b}.", weight=2)


def sub(r, digits=None):
    da, db = digits or sizes(r)
    a, b = number(r, da), number(r, db)
    if a < b and r.random() < 0.85:
        a, b = b, a
    return qa(pair_key("sub", a, b), r.choice(SUB_Q).format(a=a, b=b), f"{a} - {b} = {a - b}.", weight=2)


def word_sum(r):
    """Numbers written as words."""
    a, b = r.randrange(1, 21), r.randrange(1, 21)
    op = r.choice("+-*")
    if op == "-" and a < b:
        a, b = b, a
    if op == "*":
        a, b = r.randrange(0, 13), r.randrange(0, 13)
    w = {"+": ["plus", "and", "+"], "-": ["minus", "-"], "*": ["times"]}[op]
    q = r.choice(["What is {} {} {}?", "How much is {} {} {}?", "{} {} {}", "What's {} {} {}?", "{} {} {}?"]).format(NUM_WORDS[a], r.choice(w), NUM_WORDS[b])
    c = {"+": a + b, "-": a - b, "*": a * b}[op]
    return qa("ws:" + q.lower(), q, f"{a} {op} {b} = {c}.", weight=2)


def mixed(r):
    """Two operations: from the left, but multiplication first."""
    x = r.random()
    if x < 0.35:
        a, b, c = number(r, r.choice([1, 2])), number(r, 1), number(r, 1)
        t, first, v = f"{a} + {b} - {c}", f"{a + b} - {c}", a + b - c
    elif x < 0.6:
        a, b, c = number(r, r.choice([1, 2])), number(r, 1), number(r, 1)
        t, first, v = f"{a} - {b} + {c}", f"{a - b} + {c}", a - b + c
    elif x < 0.85:
        a, b, c = number(r, r.choice([1, 2])), r.randrange(1, 11), r.randrange(1, 11)
        t, first, v = f"{a} + {b} * {c}", f"{a} + {b * c}", a + b * c
    else:
        a, b, c = r.randrange(1, 11), r.randrange(1, 11), number(r, r.choice([1, 2]))
        t, first, v = f"{a} * {b} + {c}", f"{a * b} + {c}", a * b + c
    q = r.choice(["What is {}?", "{}", "{} =", "How much is {}?", "Calculate {}."]).format(t)
    return qa("mix:" + t, q.replace(" ", "") if q == t and r.random() < 0.3 else q, f"{t} = {first} = {v}.", weight=2)


def mul(r):
    a, b = r.randrange(0, 13), r.randrange(0, 13)
    q = r.choice(MUL_Q)
    return qa(f"mul:{q}:{a}:{b}", q.format(a=a, b=b), f"{a} * {b} = {a * b}.", weight=2)   # the table is taught; the wording is new


def mul2(r):
    a, b = r.randrange(11, 100), r.randrange(2, 10)
    k = f"mul2:{a}:{b}"
    steps = "" if a < 13 or a % 10 == 0 else f"{a // 10 * 10 * b} + {a % 10 * b} = "       # tens first, then ones
    c = a * b
    if r.random() < 0.5:
        a, b = b, a
    return qa(k, r.choice(MUL_Q).format(a=a, b=b), f"{a} * {b} = {steps}{c}.", weight=2)


def div(r):
    b, c = r.randrange(1, 13), r.randrange(0, 13)
    q = r.choice(DIV_Q)
    return qa(f"div:{q}:{b}:{c}", q.format(a=b * c, b=b), f"{b * c} / {b} = {c}.", weight=2)


def add3(r):
    a, b, c = (number(r, r.choice([1, 1, 2])) for _ in range(3))
    q = r.choice(["What is {a} + {b} + {c}?", "{a} + {b} + {c}", "{a}+{b}+{c}", "Add {a}, {b} and {c}.", "What is the sum of {a}, {b} and {c}?"])
    return qa(f"add3:{a}:{b}:{c}", q.format(a=a, b=b, c=c), f"{a} + {b} + {c} = {a + b} + {c} = {a + b + c}.", weight=2)


def bigger(r):
    d = r.choice([1, 2, 2, 3])
    a, b = number(r, d), number(r, r.choice([d, d, max(1, d - 1)]))
    if a == b:
        b += 1
    up = r.random() < 0.6
    w = r.choice(["bigger", "larger", "greater", "more"] if up else ["smaller", "less", "lower"])
    q = r.choice(["Which is {w}, {a} or {b}?", "What is {w}, {a} or {b}?", "Which number is {w}: {a} or {b}?", "Which one is {w}, {a} or {b}?"])
    x, y = (max(a, b), min(a, b)) if up else (min(a, b), max(a, b))
    return qa(pair_key("cmp", a, b), q.format(w=w, a=a, b=b), f"{x} is {'bigger' if up else 'smaller'} than {y}.")


PRIMES = [p for p in range(2, 100) if all(p % k for k in range(2, p))]


def prime(r):
    a = r.choice(PRIMES) if r.random() < 0.4 else r.randrange(1, 100)
    q = r.choice(["Is {} a prime number?", "Is {} prime?", "Is {} a prime?"]).format(a)
    return qa("prime:" + q, q, f"{'Yes' if a in PRIMES else 'No'}, {a} is {'a' if a in PRIMES else 'not a'} prime number.")


def square(r):
    a = r.randrange(1, 13) if r.random() < 0.7 else r.choice([13, 14, 15, 16, 20])
    q = r.choice(["What is the square of {}?", "What is {} squared?", "{} squared", "Square of {}?"]).format(a)
    return qa("sq:" + q, q, f"{a} * {a} = {a * a}.")


def divide(r):
    """Larger quotients, and remainders."""
    if r.random() < 0.5:
        b, c = r.randrange(2, 10), r.randrange(13, 60)
        return qa(f"div2:{b}:{c}", r.choice(DIV_Q).format(a=b * c, b=b), f"{b * c} / {b} = {c}.", weight=2)
    b, c = r.randrange(2, 13), r.randrange(0, 13)
    m = r.randrange(1, b)
    a = b * c + m
    return qa(f"rem:{a}:{b}", r.choice(DIV_Q).format(a=a, b=b), f"{a} / {b} = {c}, remainder {m}.", weight=2)


def too_hard(r):
    """Sums out of reach get a plain answer."""
    if r.random() < 0.5:
        a, b = number(r, r.choice([5, 5, 6, 7])), number(r, r.choice([1, 2, 3, 4, 5, 6]))
        if r.random() < 0.5:
            a, b = b, a
        q = r.choice(r.choice([ADD_Q, SUB_Q, MUL_Q])).format(a=a, b=b)
        return qa("hard:" + q, q, "These numbers are too large for me.")
    d = lambda: f"{number(r, r.choice([1, 1, 2]))}.{number(r, r.choice([1, 1, 2]))}"
    x = r.random()
    if x < 0.7:
        a, b = d(), d() if r.random() < 0.6 else number(r, 1)
        q = r.choice(r.choice([ADD_Q, SUB_Q, MUL_Q])).format(a=a, b=b)
    else:
        q = r.choice(["What is {a}% of {b}?", "{a}% of {b}", "How much is {a}% of {b}?", "What is {a} percent of {b}?"]).format(a=number(r, 2), b=number(r, r.choice([2, 3])))
    return qa("hard:" + q, q, "I can only calculate with whole numbers.")


ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def alphabet(r):
    if r.random() < 0.5:
        i = r.randrange(25)
        a, b = ALPHABET[i], ALPHABET[i + 1]
        if r.random() < 0.3:
            a, b = a.lower(), b.lower()
        if r.random() < 0.6:
            q = r.choice(["What letter comes after {}?", "Which letter comes after {}?", "Which letter follows {}?", "What is the letter after {}?", "What is the next letter after {}?"]).format(a)
            return qa("abc:" + q, q, f"{b} comes after {a}.")
        q = r.choice(["What letter comes before {}?", "Which letter comes before {}?", "What is the letter before {}?"]).format(b)
        return qa("abc:" + q, q, f"{a} comes before {b}.")
    xs = r.sample(ALPHABET if r.random() < 0.5 else ALPHABET.lower(), r.randrange(3, 7))
    s = join(r, xs, r.choice([0, 0, 2]))
    if r.random() < 0.6:
        q = r.choice(["Sort these letters: {}", "Sort: {}", "Sort {}", "Put these letters in order: {}", "Sort the letters {}"]).format(s)
        return qa("abcs:" + "".join(sorted(xs)), q, ", ".join(sorted(xs)))
    q = r.choice(["Reverse this list: {}", "Reverse these letters: {}", "Reverse: {}"]).format(s)
    return qa("abcr:" + s, q, ", ".join(xs[::-1]))


def parity(r):
    a = number(r, r.choice([1, 2, 2, 3]))
    w = "even" if a % 2 == 0 else "odd"
    if r.random() < 0.5:
        q = r.choice(["Is {a} odd or even?", "Is {a} even or odd?", "Is the number {a} odd or even?"])
        return qa(f"par:{a}", q.format(a=a), f"{a} is {w}.")
    ask = r.choice(["even", "odd"])
    q = r.choice(["Is {a} an {k} number?", "Is {a} {k}?"])
    return qa(f"par:{a}", q.format(a=a, k=ask), f"{'Yes' if ask == w else 'No'}, {a} is {w}.")


THINGS = "apples pears eggs coins books balls stones cookies nuts flowers pencils shells cakes carrots stars lemons buttons cups".split()


def word_problem(r):
    n = r.choice(scenes.NAMES)
    she = n in scenes.NAMES_F
    he = "She" if she else "He"
    t = r.choice(THINGS)
    a, b = number(r, r.choice([1, 2, 2])) + 2, number(r, r.choice([1, 2, 2])) + 1
    me = r.random() < 0.3
    if r.random() < 0.5:
        v = r.choice(["buys {b} more", "gets {b} more", "finds {b} more"])
        op, c = "+", a + b
    else:
        if a < b:
            a, b = b, a
        v = r.choice(["gives away {b}", "eats {b} of them" if t in ("apples", "pears", "cookies", "nuts", "cakes", "carrots", "lemons", "eggs") else "sells {b}", "loses {b}", "sells {b}"])
        op, c = "-", a - b
    v = v.format(b=b)
    key = pair_key("word" + op, a, b)
    y = r.random()
    if y < 0.12:                                        # two kinds of things
        t2 = r.choice([x for x in THINGS if x != t])
        whole = r.choice(["things", "things", "fruits", "pieces"])
        v = r.choice(["I have {a} {t} and {b} {t2}. How many {w} do I have?", "I have {a} {t} and {b} {t2}. How many {w} do I have in total?", "I have {a} {t} and {b} {t2}. How many {w} are that together?"])
        return qa(pair_key("word+", a, b), v.format(a=a, b=b, t=t, t2=t2, w=whole), f"{a} + {b} = {a + b}. You have {a + b} {whole}.", weight=2)
    if y < 0.24:                                        # one sentence
        plus = r.random() < 0.5
        if not plus and a < b:
            a, b = b, a
        v = r.choice(["buy", "get", "find"] if plus else ["give away", "lose", "sell"])
        c, op = (a + b, "+") if plus else (a - b, "-")
        more = " more" if plus else ""
        q = r.choice([f"If I have {a} {t} and {v} {b}{more}, how many {t} do I have?", f"If I have {a} {t} and {v} {b}{more}, how many do I have" + ("?" if plus else " left?"), f"I had {a} {t} and {v} {b}{more}. How many {t} do I have now?".replace("give away", "gave away")])
        return qa(pair_key("word" + op, a, b), q, f"{a} {op} {b} = {c}. You have {c} {t}.", weight=2)
    if me:
        v = re.sub(r"^(\w+?)s\b", r"\1", v)
        q = f"I have {a} {t}. I {v}. " + r.choice([f"How many {t} do I have now?", f"How many {t} do I have?", f"How many {t} are left?" if op == "-" else f"How many {t} do I have?"])
        return qa(key, q, f"{a} {op} {b} = {c}. You have {c} {t}.", weight=2)
    q = f"{n} has {a} {t}. {he} {v}. " + r.choice([f"How many {t} does {n} have now?", f"How many {t} does {he.lower()} have?", f"How many {t} does {n} have?"] + [f"How many are left?", f"How many {t} are left?"] * (op == "-"))
    return qa(key, q, f"{a} {op} {b} = {c}. {n} has {c} {t}.", weight=2)


def double(r):
    a = number(r, r.choice([1, 2, 2]))
    if r.random() < 0.6:
        q = r.choice(["What is twice {a}?", "Double {a}.", "What is the double of {a}?", "What is two times {a}?"])
        return qa(f"dbl:{a}", q.format(a=a), f"2 * {a} = {2 * a}.", weight=2)
    a *= 2
    return qa(f"half:{a}", r.choice(["What is half of {a}?", "Half of {a}?", "What is the half of {a}?"]).format(a=a), f"{a} / 2 = {a // 2}.", weight=2)


# ----------------------------------------------------------------------------------- lists, sorting
def join(r, xs, style=None):
    style = style if style is not None else r.choice([0, 0, 0, 0, 1, 2])
    if style == 1 and len(xs) > 1:
        return ", ".join(xs[:-1]) + " and " + xs[-1]
    return (" " if style == 2 else ", ").join(xs)


def numbers(r, n):
    x = r.random()
    top = 10 if x < 0.2 else 100 if x < 0.85 else 1000
    n = min(n, 8 if top == 10 else n)
    xs = r.sample(range(top), n)
    if r.random() < 0.06:
        xs[r.randrange(n)] = xs[0]                  # equal numbers
    if r.random() < 0.04:
        xs = [-x if r.random() < 0.4 else x for x in xs]
    return xs


SORT_Q = ["Sort these numbers: {}", "Sort the numbers {}", "Sort: {}", "Sort {}", "Please sort these numbers: {}", "Put these numbers in order: {}", "Order these numbers: {}", "Sort these numbers from smallest to largest: {}",
          "Sort these: {}", "Can you sort these numbers: {}", "Put in order: {}", "Arrange these numbers: {}", "Sort this list: {}", "Sort these numbers in ascending order: {}", "Write these numbers in order: {}"]
SORT_DOWN_Q = ["Sort these numbers from largest to smallest: {}", "Sort from largest to smallest: {}", "Sort these numbers in descending order: {}", "Sort {} from largest to smallest", "Sort these numbers backwards: {}",
               "Put these numbers in order, largest first: {}", "Sort descending: {}"]


def sort_numbers(r, n=None):
    xs = numbers(r, n or r.choice([3, 3, 4, 4, 5, 5, 6, 6, 7, 8]))
    down = r.random() < 0.2
    q = r.choice(SORT_DOWN_Q if down else SORT_Q).format(join(r, [str(x) for x in xs])) + r.choice(["", "", "."])
    ys = sorted(xs, reverse=down)
    return qa("sort:" + ",".join(map(str, sorted(xs))), q, ", ".join(map(str, ys)), weight=1.5)


SORT_WORDS = sorted(set(scenes.ANIMALS + scenes.OBJECTS + scenes.COLOURS + [w.lower() for w in scenes.NAMES[:0]] + list(scenes.PLACES) + """fig plum grape melon onion bean rice soup salt milk water fire wind rain cloud sun
hand foot nose ear eye mouth arm leg head heart green tea sugar butter iron wood paper glass wool silk
bread cheese honey""".split()))
MORE_WORDS = sorted(set(scenes.RARE_OBJECTS + scenes.RARE_HEROES + scenes.TRAITS + scenes.LOOKS + """mango kiwi peach apricot papaya coconut zebra yak iguana jaguar quail vulture walrus yellow violet house mouse
hello world good morning evening night thing idea music summer winter spring autumn sister brother mother father finger table sofa carpet wall floor lemon jam juice pepper oven engine motor wheel year week month hour minute
one two three four five six seven eight nine ten north south east west Monday Tuesday Friday London Paris Berlin""".split()))


def word(r):
    """Mostly well-known words, sometimes others, sometimes made-up ones."""
    x = r.random()
    return r.choice(SORT_WORDS) if x < 0.8 else r.choice(MORE_WORDS) if x < 0.95 else story.pseudo(r)


def words_of(r, n):
    xs = set()
    easy = r.random() < 0.6
    while len(xs) < n:
        xs.add(r.choice(SORT_WORDS) if easy else word(r).lower())
    xs = sorted(xs)                         # the order of a set is not the same in every run
    r.shuffle(xs)
    return xs



SORTW_Q = ["Sort these words: {}", "Sort the words {}", "Sort these words alphabetically: {}", "Put these words in alphabetical order: {}", "Sort these words in alphabetical order: {}", "Sort alphabetically: {}",
           "Sort: {}", "Sort {}", "Please sort these words: {}", "Put these words in order: {}", "Can you sort these words: {}", "Sort this list: {}"]


def sort_words(r, n=None):
    if r.random() < 0.12:
        xs = r.sample(scenes.NAMES, n or r.choice([3, 4, 5]))
        q = r.choice(["Sort these names: {}", "Sort: {}", "Put these names in order: {}", "Sort these names alphabetically: {}"])
    else:
        xs = words_of(r, n or r.choice([3, 3, 4, 4, 5, 6]))
        q = r.choice(SORTW_Q)
    return qa("sortw:" + ",".join(sorted(xs)), q.format(join(r, xs)) + r.choice(["", "", "."]), ", ".join(sorted(xs)), weight=1.5)


def extreme(r):
    xs = numbers(r, r.choice([3, 3, 4, 5, 6]))
    up = r.random() < 0.5
    w = r.choice(["largest", "biggest", "highest"] if up else ["smallest", "lowest"])
    q = r.choice(["What is the {w} of these numbers: {}", "What is the {w} number: {}", "Which is the {w} number: {}", "Which number is the {w}: {}", "Find the {w} number: {}", "What is the {w} of {}"]).format(join(r, [str(x) for x in xs]), w=w)
    return qa("ext:" + ",".join(map(str, sorted(xs))), q + r.choice(["?", "", "?"]), f"The {'largest' if up else 'smallest'} number is {max(xs) if up else min(xs)}.", weight=1.5)


def list_task(r):
    words = r.random() < 0.6
    xs = words_of(r, r.choice([3, 4, 5, 6])) if words else [str(x) for x in numbers(r, r.choice([3, 4, 5, 6]))]
    what = "words" if words else "numbers"
    one = what[:-1]
    s = join(r, xs, 0)
    k = "list:" + s
    x = r.random()
    if x < 0.3:
        return qa(k, r.choice([f"Reverse this list: {s}", f"Reverse these {what}: {s}", f"Write these {what} in reverse order: {s}"]), ", ".join(xs[::-1]))
    if x < 0.5:
        return qa(k, r.choice([f"How many {what} are in this list: {s}?", f"How many {what}: {s}", f"Count these {what}: {s}"]), f"There are {len(xs)} {what}.")
    if x < 0.75:
        return qa(k, r.choice([f"What is the last {one} in this list: {s}?", f"What is the last {one}: {s}", f"Give me the last {one} of this list: {s}"]), f"The last {one} is {xs[-1]}.")
    return qa(k, r.choice([f"What is the first {one} in this list: {s}?", f"What is the first {one}: {s}", f"Give me the first {one} of this list: {s}"]), f"The first {one} is {xs[0]}.")


def count(r):
    x = r.random()
    if x < 0.45:
        a = r.choice([1, 1, 1, r.randrange(2, 10), r.randrange(0, 90)])
        b = a + (r.randrange(2, 16) if a > 1 or r.random() < 0.7 else r.randrange(16, 50))
        nb = NUM_WORDS[b] if b < 21 and r.random() < 0.4 else b
        q = r.choice(["Count from {a} to {b}.", "Count from {a} to {b}", "Please count from {a} to {b}."] + (["Count to {b}.", "Can you count to {b}?"] if a == 1 else [])).format(a=a, b=nb)
        return qa(f"count:{a}:{b}", q, ", ".join(str(i) for i in range(a, b + 1)))
    if x < 0.65:
        a = r.randrange(3, 60)
        b = max(0, a - r.randrange(3, 13)) if a > 12 else r.choice([0, 1])
        q = r.choice(["Count down from {a} to {b}.", "Count backwards from {a} to {b}."]) if a > 12 or r.random() < 0.5 else r.choice(["Count down from {a}.", "Count backwards from {a}."])
        if "to" not in q:
            b = 1
        return qa(f"down:{a}:{b}", q.format(a=a, b=b), ", ".join(str(i) for i in range(a, b - 1, -1)))
    if x < 0.8:
        s = r.choice([2, 2, 3, 5, 10])
        n = r.randrange(4, 11)
        w = {2: ["twos", "2"], 3: ["threes", "3"], 5: ["fives", "5"], 10: ["tens", "10"]}[s]
        return qa(f"step:{s}:{n}", f"Count by {r.choice(w)} to {s * n}.", ", ".join(str(i * s) for i in range(1, n + 1)))
    a = number(r, r.choice([1, 2, 2, 3]))
    if r.random() < 0.6:
        return qa(f"next:{a}", r.choice(["What number comes after {a}?", "Which number comes after {a}?", "What comes after {a}?", "What is the next number after {a}?"]).format(a=a), f"{a + 1} comes after {a}.")
    return qa(f"prev:{a}", r.choice(["What number comes before {a}?", "Which number comes before {a}?", "What comes before {a}?"]).format(a=a + 1), f"{a} comes before {a + 1}.")


SPELLABLE = sorted(set(SORT_WORDS + scenes.TRAITS + scenes.LOOKS + scenes.RARE_OBJECTS + scenes.RARE_HEROES + [n for n in scenes.NAMES] + """house tree hello world morning evening friend happy water summer winter spring autumn
school teacher letter paper window garden story number answer question sister brother mother father table chair door""".split()))


def a_word(r):
    return story.pseudo(r) if r.random() < 0.25 else r.choice(SPELLABLE)


def spell(r):
    w = a_word(r)
    return qa("spell:" + w, r.choice(["Spell the word {}.", "Spell {}.", "How do you spell {}?", "Please spell the word {}.", "Can you spell {}?", "spell \"{}\""]).format(w), "-".join(w), weight=1.5)


def reverse(r):
    w = a_word(r)
    q = r.choice(["Reverse the word {}.", "Spell {} backwards.", "Write the word {} backwards.", "What is {} backwards?", "What is {} spelled backwards?", "Reverse {}.", "Say {} backwards.", "reverse \"{}\"",
                  "Spell the word {} backwards.", "Can you reverse the word {}?", "What is the word {} in reverse?"])
    return qa("rev:" + w, q.format(w), f"{'-'.join(w)} backwards is {'-'.join(w[::-1])}.", weight=1.5)


def letters(r):
    w = a_word(r)
    x = r.random()
    if x < 0.5:
        return qa("len:" + w, r.choice(["How many letters are in the word {}?", "How many letters does {} have?", "How many letters are in {}?", "How long is the word {}?", "Count the letters in {}."]).format(w),
                  f"{'-'.join(w)}: {len(w)} letters.")
    if x < 0.75:
        return qa("first:" + w, r.choice(["What is the first letter of {}?", "What letter does {} start with?", "Which letter does the word {} begin with?"]).format(w), f"The first letter of {w} is {w[0]}.")
    return qa("last:" + w, r.choice(["What is the last letter of {}?", "What letter does {} end with?", "Which letter does the word {} end with?"]).format(w), f"The last letter of {w} is {w[-1]}.")


def repeat(r):
    if r.random() < 0.35:
        w = r.choice(["hello", "hi", "yes", "no", "ha", "bye"] + SORT_WORDS) if r.random() < 0.8 else story.pseudo(r)
        n = r.randrange(2, 7)
        k = r.choice([str(n), NUM_WORDS[n]])
        return qa(f"say:{w}:{n}", r.choice([f"Say {w} {k} times.", f"Write {w} {k} times.", f"Repeat the word {w} {k} times.", f"Write the word {w} {k} times."]), ", ".join([w] * n))
    x = r.random()
    if x < 0.4:
        t = " ".join(word(r) for _ in range(r.randrange(1, 8)))
    elif x < 0.6:
        t = " ".join(story.pseudo(r) for _ in range(r.randrange(1, 4)))
    elif x < 0.8:
        t = r.choice(story.filler(r).split(". ")).strip(".\"")
    else:
        t = " ".join(str(number(r, r.choice([1, 2, 3, 4]))) for _ in range(r.randrange(1, 6)))
    return qa("rep:" + t, r.choice(["Repeat after me: {}", "Repeat: {}", "Say: {}", "Repeat this: {}", "Copy this: {}", "Please repeat: {}", "Echo: {}"]).format(t), t)


# ------------------------------------------------------------------------------------------- facts
OPPOSITES = """big-small hot-cold up-down left-right day-night black-white young-old happy-sad fast-slow open-closed light-dark
good-bad long-short high-low full-empty hard-soft wet-dry early-late loud-quiet rich-poor strong-weak thick-thin wide-narrow
easy-difficult near-far new-old first-last inside-outside yes-no true-false start-end begin-end summer-winter north-south east-west
love-hate win-lose give-take come-go clean-dirty sweet-sour brave-afraid clever-stupid heavy-light alive-dead
always-never before-after above-below over-under push-pull buy-sell laugh-cry question-answer friend-enemy morning-evening
deep-shallow right-wrong smooth-rough sharp-blunt warm-cool tall-short large-small more-less many-few here-there everything-nothing
everybody-nobody sunrise-sunset asleep-awake cheap-expensive safe-dangerous strange-normal kind-cruel noisy-quiet beautiful-ugly""".split()
OPP = {}
for _p in OPPOSITES:
    _a, _b = _p.split("-")
    OPP.setdefault(_a, _b)
for _p in OPPOSITES:
    _a, _b = _p.split("-")
    OPP.setdefault(_b, _a)
PLURALS = dict(mouse="mice", goose="geese", child="children", sheep="sheep", wolf="wolves", fish="fish", foot="feet", tooth="teeth", man="men", woman="women", knife="knives", leaf="leaves", box="boxes", fox="foxes",
               baby="babies", city="cities", story="stories", glass="glasses", deer="deer", witch="witches", cherry="cherries", house="houses", puppy="puppies", ox="oxen", bus="buses", potato="potatoes", tomato="tomatoes")
for _w in "cat dog bear owl rabbit frog duck hen horse goat cow pig lamp key map book bell ring coin hat coat boot drum flute ball cup spoon clock apple pear cake egg seed flower star king queen tree bird chair window".split():
    PLURALS[_w] = _w + "s"
SOUNDS = dict(cow="moo", dog="woof", cat="meow", sheep="baa", duck="quack", pig="oink", horse="neigh", frog="croak", owl="hoot", bee="buzz", lion="roar", mouse="squeak", snake="hiss", hen="cluck", bird="tweet", crow="caw", goat="maa", donkey="hee-haw", wolf="howl", rooster="cock-a-doodle-doo", goose="honk")
BABIES = dict(dog="puppy", cat="kitten", cow="calf", sheep="lamb", horse="foal", hen="chick", duck="duckling", goose="gosling", pig="piglet", goat="kid", lion="cub", bear="cub", deer="fawn", swan="cygnet", frog="tadpole")
COLOUR_OF = dict(grass="green", snow="white", blood="red", coal="black", milk="white", chocolate="brown", gold="golden")
COLOUR_OF.update({"the sky": "blue", "a banana": "yellow", "a lemon": "yellow", "a carrot": "orange", "an elephant": "grey", "a frog": "green", "a crow": "black", "a swan": "white", "the sun": "yellow", "a tomato": "red",
                  "a cherry": "red", "a leaf": "green", "an orange": "orange", "the night": "black", "a pumpkin": "orange", "a polar bear": "white", "a fox": "red", "a mouse": "grey", "the sea": "blue", "a strawberry": "red", "a flamingo": "pink"})
LEGS = {0: "snake fish whale snail worm seal dolphin shark", 2: "bird duck hen owl crow swan goose penguin rooster eagle girl boy", 6: "bee ant butterfly ladybug fly", 8: "spider crab octopus"}
LEGS_OF = {a: n for n, s in LEGS.items() for a in s.split()}
for _a in "fox bear rabbit mouse cat dog wolf deer frog horse goat sheep cow pig lion tiger elephant turtle squirrel hedgehog badger otter beaver donkey camel panda mole kitten puppy lamb".split():
    LEGS_OF[_a] = 4
FOOD = dict(rabbit="carrots", mouse="cheese", cow="grass", squirrel="nuts", bear="honey", panda="bamboo", monkey="bananas", horse="hay", sheep="grass", penguin="fish", seal="fish", lion="meat", frog="flies", bird="seeds", owl="mice", goat="grass", dog="meat", cat="fish", hedgehog="snails", otter="fish", duck="seeds")
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
MDAYS = dict(zip(MONTHS, [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]))
ORD = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()
MADE_OF = {"a table": "wood", "a window": "glass", "a book": "paper", "a key": "metal", "a boot": "leather", "a scarf": "wool", "a candle": "wax", "a ring": "gold", "a snowman": "snow", "bread": "flour", "cheese": "milk", "a door": "wood", "a coin": "metal", "a bottle": "glass", "ice": "water", "a rope": "hemp", "a pencil": "wood"}
USED_FOR = {"a lamp": "giving light", "a key": "opening a lock", "a map": "finding the way", "a bell": "ringing", "a clock": "telling the time", "a spoon": "eating soup", "a ladder": "climbing up", "a rope": "tying things", "an umbrella": "staying dry in the rain",
            "a pillow": "sleeping", "a brush": "cleaning", "a pencil": "writing", "a compass": "finding north", "a telescope": "looking at the stars", "a boat": "crossing water", "a basket": "carrying things", "a blanket": "keeping warm", "a cup": "drinking", "a mirror": "looking at yourself",
            "a kite": "flying in the wind", "a drum": "making music", "a flute": "making music", "a hammer": "hitting nails", "a knife": "cutting", "a saw": "cutting wood", "a bike": "riding", "a bucket": "carrying water"}
FACTS = [
    ("How many days are in a week?|How many days does a week have?|How many days are there in a week?", "A week has 7 days."),
    ("How many months are in a year?|How many months does a year have?|How many months are there in a year?", "A year has 12 months."),
    ("How many hours are in a day?|How many hours does a day have?", "A day has 24 hours."),
    ("How many minutes are in an hour?|How many minutes does an hour have?", "An hour has 60 minutes."),
    ("How many seconds are in a minute?|How many seconds does a minute have?", "A minute has 60 seconds."),
    ("How many days are in a year?|How many days does a year have?", "A year has 365 days."),
    ("How many seasons are there?|What are the seasons?|Name the seasons.|What are the four seasons?", "There are four seasons: spring, summer, autumn and winter."),
    ("What are the days of the week?|Name the days of the week.|List the days of the week.", "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday"),
    ("What are the months?|Name the months.|List the months of the year.|What are the months of the year?", ", ".join(MONTHS)),
    ("What is the alphabet?|Say the alphabet.|Write the alphabet.|Recite the alphabet.|alphabet", "a b c d e f g h i j k l m n o p q r s t u v w x y z"),
    ("What are the vowels?|Name the vowels.", "The vowels are a, e, i, o and u."),
    ("What is ice?|What is ice made of?", "Ice is frozen water."),
    ("When does the sun rise?|Where does the sun rise?", "The sun rises in the east in the morning."),
    ("Where does the sun set?|When does the sun set?", "The sun sets in the west in the evening."),
    ("How many legs does a chair have?", "A chair has 4 legs."),
    ("How many wheels does a bike have?", "A bike has 2 wheels."), ("How many wheels does a car have?", "A car has 4 wheels."),
    ("How many sides does a triangle have?|How many corners does a triangle have?", "A triangle has 3 sides."), ("How many sides does a square have?", "A square has 4 sides."),
    ("What do you drink when you are thirsty?", "Water is good when you are thirsty."),
    ("How many letters are in the alphabet?|How many letters does the alphabet have?", "The alphabet has 26 letters."),
    ("Which animal is the largest?|What is the largest animal?|What is the biggest animal?", "The whale is the largest animal."),
    ("What colours does a rainbow have?|What are the colours of the rainbow?|Name the colours of the rainbow.", "Red, orange, yellow, green, blue and purple."),
    ("How many fingers does a hand have?", "A hand has 5 fingers."), ("What do bees make?", "Bees make honey."), ("What do hens lay?", "Hens lay eggs."),
    ("Where do fish live?", "Fish live in water."), ("What is the moon?", "The moon goes around the earth."), ("What is the sun?", "The sun is a star."),
]


def opposite(r):
    w = r.choice(list(OPP))
    q = r.choice(["What is the opposite of {}?", "Opposite of {}?", "opposite of {}", "What's the opposite of {}?", "Tell me the opposite of {}.", "Give me the opposite of {}.", "What is the opposite of the word {}?", "Name the opposite of {}."])
    return qa(f"opp:{w}:{q}", q.format(w), f"The opposite of {w} is {OPP[w]}.")


def plural(r):
    w = r.choice(list(PLURALS))
    q = r.choice(["What is the plural of {}?", "Plural of {}?", "plural of {}", "One {o}, two ...?", "What's the plural of {}?", "Tell me the plural of {}."])
    return qa(f"plu:{w}:{q}", q.format(w, o=w), f"One {w}, two {PLURALS[w]}.")


def days(r):
    x = r.random()
    names, what = (DAYS, "day") if r.random() < 0.6 else (MONTHS, "month")
    i = r.randrange(len(names))
    d = names[i]
    if x < 0.5:
        q = r.choice([f"What {what} comes after {d}?", f"What {what} follows {d}?", f"Which {what} comes after {d}?", f"Which {what} follows {d}?", f"What comes after {d}?", f"What is the {what} after {d}?", f"Which {what} is after {d}?", f"Next {what} after {d}?"])
        n = names[(i + 1) % len(names)]
        return qa("days:" + q, q, f"{n} comes after {d}.")
    if x < 0.8:
        q = r.choice([f"What {what} comes before {d}?", f"Which {what} comes before {d}?", f"What comes before {d}?", f"What is the {what} before {d}?", f"Which {what} is before {d}?"])
        n = names[i - 1]
        return qa("days:" + q, q, f"{n} comes before {d}.")
    if names is DAYS:
        q = r.choice([f"Today is {d}. What day is tomorrow?", f"If today is {d}, what day is tomorrow?", f"Today is {d}. What day was yesterday?", f"If today is {d}, what day was yesterday?"])
        a = f"Yesterday was {DAYS[i - 1]}." if "yesterday" in q else f"Tomorrow is {DAYS[(i + 1) % 7]}."
        return qa("days:" + q, q, a)
    if r.random() < 0.5:
        q = r.choice([f"What is the {ORD[i]} month?", f"Which month is the {ORD[i]}?", f"What is the {ORD[i]} month of the year?", f"Name the {ORD[i]} month."])
        return qa("days:" + q, q, f"The {ORD[i]} month is {d}.")
    q = r.choice([f"How many days does {d} have?", f"How many days are in {d}?", f"How many days are there in {d}?"])
    return qa("days:" + q, q, f"{d} has {MDAYS[d]} days.")


def animal_fact(r):
    x = r.random()
    if x < 0.2:
        w = r.choice(list(SOUNDS))
        q = r.choice(["What does {} say?", "What sound does {} make?", "Which sound does {} make?", "What noise does {} make?"]).format(story.article(w))
        return qa("fact:" + q, q, f"{story.cap(story.article(w))} says {SOUNDS[w]}.")
    if x < 0.35:
        w = r.choice(list(BABIES))
        q = r.choice(["What is a baby {} called?", "What do you call a baby {}?", "What is a young {} called?", "Name for a baby {}?"]).format(w)
        return qa("fact:" + q, q, f"A baby {w} is called {story.article(BABIES[w])}.")
    if x < 0.55:
        w = r.choice(list(LEGS_OF))
        q = r.choice(["How many legs does {} have?", "How many legs has {}?", "How many legs are on {}?"]).format(story.article(w))
        return qa("fact:" + q, q, f"{story.cap(story.article(w))} has {LEGS_OF[w] or 'no'} legs.")
    if x < 0.7:
        w = r.choice(list(FOOD))
        q = r.choice(["What does {} eat?", "What does {} like to eat?", "What food does {} like?"]).format(story.article(w))
        return qa("fact:" + q, q, f"{story.cap(story.article(w))} likes to eat {FOOD[w]}.")
    living = r.random() < 0.5
    w = r.choice(scenes.ANIMALS) if living else r.choice(scenes.OBJECTS)
    t = story.article(w)
    q = r.choice(["Is {} an animal?", "Is {} an animal or a thing?", "Is {} a thing?", "Is {} alive?"])
    a = {"Is {} an animal?": f"Yes, {t} is an animal." if living else f"No, {t} is a thing.", "Is {} an animal or a thing?": f"{story.cap(t)} is {'an animal' if living else 'a thing'}.",
         "Is {} a thing?": f"No, {t} is an animal." if living else f"Yes, {t} is a thing.", "Is {} alive?": f"Yes, {t} is an animal." if living else f"No, {t} is a thing."}[q]
    return qa("fact:" + q.format(t), q.format(t), a)


def fact(r):
    x = r.random()
    if x < 0.25:
        w = r.choice(list(COLOUR_OF))
        q = r.choice(["What colour is {}?", "What color is {}?", "Which colour is {}?", "Which color has {}?", "Tell me the colour of {}."]).format(w)
        return qa("fact:" + q, q, f"{story.cap(w)} is {COLOUR_OF[w]}.")
    if x < 0.4:
        w = r.choice(list(MADE_OF))
        q = r.choice(["What is {} made of?", "What is {} made from?", "Tell me what {} is made of."]).format(w)
        return qa("fact:" + q, q, f"{story.cap(w)} is made of {MADE_OF[w]}.")
    if x < 0.55:
        w = r.choice(list(USED_FOR))
        q = r.choice(["What is {} for?", "What is {} used for?", "What do you do with {}?", "What can you do with {}?", "Why do people use {}?"]).format(w)
        return qa("fact:" + q, q, f"{story.cap(w)} is for {USED_FOR[w]}.")
    qs, a = r.choice(FACTS)
    q = r.choice(qs.split("|"))
    return Example("", [("user", q), ("model", a)])


# ---------------------------------------------------------------------------------- small talk
ME = "I am the demo model of carat, a very small Gemma 4 model."
TALK = [
    ("Hello|Hi|Hey|Hello there|Hi there|Good day|Hey there|hello!|Hallo|Hello :)", ["Hello! How can I help you?", "Hello! What can I do for you?", "Hi! How can I help you?"]),
    ("Good morning", ["Good morning! How can I help you?"]), ("Good evening", ["Good evening! How can I help you?"]), ("Good night", ["Good night! Sleep well."]), ("Good afternoon", ["Good afternoon! How can I help you?"]),
    ("How are you?|How are you today?|How do you do?|How is it going?|How are you doing?|What's up?|Are you ok?|Hello, how are you?|Hi, how are you?", ["I am fine, thank you. How can I help you?", "I am very well, thank you. What can I do for you?"]),
    ("Who are you?|What are you?|Introduce yourself.|Tell me about yourself.|What is this?|Are you a model?|Which model are you?|What model are you?|What AI are you?|Hello, who are you?|Describe yourself.", [ME + " I write short stories, calculate, sort and remember things.", ME]),
    ("What is your name?|What's your name?|Do you have a name?|How are you called?|Your name?|What should I call you?|Tell me your name.", [ME, "I have no name of my own. " + ME]),
    ("What can you do?|What do you know?|Help|How can you help me?|What can I ask you?|What are you good at?|Can you help me?|help me|What should I ask?|Give me some examples.|What can you do for me?",
     ["I can write short stories, add and subtract, sort numbers and words, spell words, and remember what you tell me. Try: \"Write a short story about a fox who finds a lamp in the forest.\"",
      "I can tell short stories, do small sums, sort lists, spell words and remember things. Try: \"What is 37 + 45?\""]),
    ("Who made you?|Who created you?|Who built you?|Where do you come from?|Who trained you?|Who wrote you?", ["I was made for the carat project and trained from scratch on text that a small script wrote."]),
    ("How big are you?|How many parameters do you have?|How large are you?|Are you small?|What is your size?", ["I am very small: I have about seven million weights."]),
    ("How were you trained?|What were you trained on?|What did you learn?", ["I was trained for a few minutes on simple text: stories, sums, lists and questions."]),
    ("What is carat?|Tell me about carat.|Do you know carat?|What does carat do?", ["carat is an engine in C that runs Gemma 4 models. I am its demo model."]),
    ("Are you a human?|Are you a person?|Are you real?|Are you a robot?|Are you alive?|Are you human?|Am I talking to a person?", ["No, I am a very small language model."]),
    ("How old are you?|When were you born?|What is your age?", ["I am very young. I was trained only a short time ago."]),
    ("Where do you live?|Where are you?", ["I live in a small file on your computer."]),
    ("Do you like me?|Are you my friend?|I love you|Do you love me?|I like you", ["That is very kind of you. I like to talk to you."]),
    ("Do you like stories?|Do you like books?|Do you like animals?|Do you like music?", ["I like stories about animals best."]),
    ("Thanks|Thank you|Thank you!|Thanks a lot|Thank you very much|Great, thanks|thx|Many thanks", ["You are welcome!"]),
    ("Bye|Goodbye|See you|Bye bye|Good bye!|See you later|bye!|I have to go", ["Goodbye! It was nice to talk to you.", "Goodbye! See you soon."]),
    ("Great|Good|Nice|Very good|Well done|Cool|Wow|Perfect|Good job|That is right|Correct|Great!|Nice story|I like it|Excellent|Super", ["Thank you! What else can I do for you?"]),
    ("Ok|Okay|Yes|yes please|Sure|Fine|I see|Alright|hm|Test|testing|yo|asdf", ["What can I do for you?"]),
    ("No|No thanks|Nothing|Not now|Stop|never mind", ["That is fine. I am here if you need me."]),
    ("I am sad|I feel sad|I am tired|I am not well|I feel bad|I am lonely", ["I am sorry to hear that. Shall I tell you a story?"]),
    ("I am happy|I am fine|I am well|I feel good|I am good, thanks|I am fine, thank you|very well, thanks|Good, and you?", ["That is good to hear! What can I do for you?"]),
    ("I am bored|Entertain me|I don't know what to do", ["Shall I tell you a story? Name an animal and a place."]),
    ("That is wrong|Wrong|That is not right|You are wrong|No, that is wrong|Bad|incorrect", ["I am sorry. I am a very small model and I make mistakes."]),
    ("Sorry|I am sorry|Excuse me", ["No problem. What can I do for you?"]),
    ("Are you smart?|Are you clever?|Are you stupid?|Do you know everything?|Can you think?", ["I am a very small model. I know only a few simple things."]),
    ("Tell me a joke|Another joke|Do you know a joke?|Make me laugh|Say something funny|joke",
     ["Why did the clock go to school? It wanted to learn the time.", "Why was the broom late? It slept in the corner.", "What did the left boot say to the right boot? Wait for me!", "Why did the egg go home? It was cracked.", "What does a sleepy lamp do? It goes out."]),
    ("Write a poem|Write a poem about the sea|Can you write a poem?|Sing a song|Write a song|poem about a cat|Write me a poem about love", ["I cannot write poems, but I can write a short story."]),
    ("Do you speak German?|Do you speak English?|What languages do you speak?|Can you speak French?|Which languages do you know?", ["I speak only simple English."]),
    ("Do you have feelings?|Can you see?|Can you hear me?|Can you feel?|Do you sleep?|Do you eat?", ["No, I can only read and write text."]),
    ("Can you count?|Can you add?|Can you do maths?|Can you calculate?", ["Yes. Try: \"What is 37 + 45?\""]),
    ("Can you write stories?|Can you write?|Can you tell stories?", ["Yes. Try: \"Write a short story about a fox who finds a lamp in the forest.\""]),
    ("Can you sort?|Can you sort numbers?|Can you sort words?", ["Yes. Try: \"Sort these numbers: 5, 3, 9\""]),
    ("Can you remember things?|Do you have a memory?", ["Yes. Tell me something, and ask me about it later."]),
    ("Are you Gemma?|Are you Gemini?|Are you an AI?|Are you a language model?|Are you from Google?", [ME]),
    ("What is Gemma?|What is Gemma 4?|Tell me about Gemma.|Which Gemma are you?", ["Gemma 4 is a family of language models. I am a very small one, made for tests."]),
    ("What is your favourite animal?|What is your favorite animal?|Which animal do you like?|What do you like?|What is your favourite colour?|What is your favorite food?|What is your favourite number?", ["I am only a very small model, but I like foxes."]),
    ("Say something|Say something nice|Tell me something|Talk to me|Surprise me", ["It is a good day for a story. Name an animal and a place!", "You ask good questions!"]),
    ("Why?|Why|How?|What?|Who?|Really?|Are you sure?|Is that true?|I don't understand|What do you mean?", ["I am sorry, I cannot explain that. I am only a very small model."]),
    ("Can you do that again?|Try again|Once more", ["Please ask me the whole question again."]),
    ("How does carat work?|How do you work?", ["carat reads my weights from a file and computes one word after the other."]),
    ("Can you write code?|Can you program?|Write a program|Can you write Python?|Can you translate?|Can you draw?|Can you make pictures?|Can you search the internet?", ["No, I am too small for that. I can write short stories and do small sums."]),
    ("What is the meaning of life?", ["I do not know that. But a good story always helps."]),
]
# (weight of the common ones is raised by repeating them)
TALK_PICK = TALK + TALK[:1] * 4 + TALK[5:9] * 3


def talk(r):
    qs, answers = r.choice(TALK_PICK)
    qs = qs.split("|")
    i = r.randrange(len(qs))
    q = qs[i]
    if r.random() < 0.2:
        q = q.rstrip(".!?") + r.choice(["!", ".", "", "?"] if q.endswith("?") else ["!", ".", ""])
    return Example("", [("user", q), ("model", story.skewed(r, answers, i))], want=[], exact=False)


UNKNOWN = ["I do not know that. I am only a very small model.", "I do not know that."]
CITIES = "France Germany Italy Spain England Japan China Brazil Canada Mexico India Egypt Norway Sweden Poland Greece Turkey Russia Kenya Peru Austria Australia America Europe Africa Asia London Paris Berlin Rome Tokyo Moscow Vienna".split()
TOPICS = """physics history chemistry biology politics football tennis chess computers the internet space planets love war music art money taxes gravity electricity atoms the economy democracy philosophy religion cooking
travel medicine health cars planes trains robots software Linux Python Java programming databases evolution dinosaurs volcanoes oceans the weather climate change quantum mechanics black holes shakespeare Mozart Einstein
Newton Darwin Napoleon Caesar the president the king of England the stock market bitcoin penicillin DNA neural networks machine learning photosynthesis the pyramids""".split(" ")
TOPICS = [t.strip() for t in " ".join(TOPICS).replace("\n", " ").split(" ") if t.strip() and t not in ("the", "of", "king", "change", "mechanics", "holes", "learning", "networks", "market")]
UNKNOWN_Q = ["What is the capital of {c}?", "Where is {c}?", "How many people live in {c}?", "What is the population of {c}?", "Who is the president of {c}?", "What language do they speak in {c}?", "How far is {c}?", "Tell me about {c}.",
             "What is {t}?", "Explain {t}.", "Tell me about {t}.", "How does {t} work?", "Who invented {t}?", "Why is {t} important?", "Write an essay about {t}.", "What do you think about {t}?", "Who discovered {t}?", "When did {t} begin?", "What do you know about {t}?", "Can you explain {t}?",
             "Who wrote {x}?", "What does {x} mean?", "What is {x}?", "What is a {x}?", "Who is {x}?", "Who was {x}?", "Where is {x}?", "Translate {x} into German.", "How do I get to {x}?", "When was {x} born?", "Do you know {x}?", "Define {x}.", "Explain {x}.", "Tell me about {x}.",
             "What is the weather today?", "How is the weather in {c}?", "What time is it?", "What is the date today?", "What year is it?", "What is the news?", "Who won the game?", "How do I cook {o}?", "How do I fix my {o}?", "Write a program in {t}.", "Write code that sorts a list.", "How do I bake a cake?",
             "What is the square root of {n}?", "What is the speed of light?", "How old is the universe?", "Why is the sky blue?", "How do planes fly?", "What is the largest country?", "What is the tallest mountain?", "How much does {o} cost?", "Where can I buy {o}?", "What is the meaning of {x}?", "Translate this into French: {x}",
             "Write an email to my boss.", "Summarize this article.", "What should I eat today?", "Give me a recipe for {o}.", "What is the best {o}?", "Is it going to rain?", "Who is the best singer?", "Which film should I watch?", "How tall is {x}?", "What is the price of {o}?", "What happened in 19{n2}?",
             "Write a Python function.", "Fix this bug.", "What is the chemical formula of water?", "How heavy is the earth?", "How many stars are there?", "Who is your boss?", "What did I eat yesterday?", "How many {t} are there?"]


def unknown(r):
    t = r.choice(UNKNOWN_Q)
    x = r.random()
    w = story.pseudo(r, 1, 3) if x < 0.5 else r.choice(scenes.RARE_OBJECTS + scenes.RARE_HEROES) if x < 0.6 and "{x} mean" in t else story.cap(story.pseudo(r, 1, 3))
    q = t.format(c=r.choice(CITIES) if r.random() < 0.8 else story.cap(story.pseudo(r)), t=r.choice(TOPICS) if r.random() < 0.7 else story.pseudo(r, 2, 4), x=w, o=r.choice(scenes.RARE_OBJECTS), n=number(r, 2), n2=number(r, 2))
    return Example("unk:" + q, [("user", q), ("model", UNKNOWN[0])], want=["do not know"], exact=False)


# ------------------------------------------------------------------------------------------- recall
HOLDERS = "box door safe bag chest room gate locker bike car drawer house case cabin boat phone".split()
WHERE = ["under the {}", "behind the {}", "in the {}", "on the {}", "next to the {}"]
SPOTS = "chair table bed door window tree stone bridge basket barn mill well chest clock mirror sofa oven stairs fence bush lamp roof wall".split()
LIKES = "apples pears cakes cookies carrots nuts lemons honey cheese soup bread tea milk chess music dancing singing swimming reading painting running football stories flowers stars".split()
FAV = {"colour": scenes.COLOURS[:11], "animal": scenes.ANIMALS, "food": ["soup", "bread", "cheese", "cake", "honey", "rice", "pizza", "fish", "pasta"], "number": None, "place": list(scenes.PLACES), "day": DAYS}


def code(r):
    return str(r.randrange(10 ** (r.choice([2, 3, 4, 4, 4, 5]) - 1), 10 ** 5))[:r.choice([2, 3, 4, 4, 4, 4, 5])]


def a_name(r):
    x = r.random()
    return r.choice(scenes.NAMES) if x < 0.85 else r.choice(scenes.RARE_NAMES) if x < 0.95 else story.cap(story.pseudo(r))


class Memory:
    """One fact in three forms: as told, as asked, as answered."""

    kind = ""

    def __init__(self, tell_, ask, answer, slot, value, noun=""):
        self.tell, self.ask, self.answer, self.slot, self.value, self.noun = tell_, ask, answer, slot, value, noun


def memory(r, kind=None, like=None):
    """A random fact; `like` is one that it should be easy to confuse with."""
    kind = kind or (like.kind if like and r.random() < 0.7 else r.choice("code code code code place place likes has has word number mine mine other other".split()))
    m = fact_of(r, kind, like if like and like.kind == kind else None)
    m.kind = kind
    return m


def fact_of(r, kind, like=None):
    if kind == "number":
        v = code(r)
        k = r.choice(["number", "number", "code"])
        return Memory(f"the {k} is {v}" if r.random() < 0.5 else f"the {k} {v}", r.choice(["What {k} did I tell you?", "What is the {k}?", "What was the {k}?", "Which {k} did I tell you?", "Tell me the {k}.", "What {k} did I give you?"]).format(k=k), f"The {k} is {v}.", "the " + k, v)
    if kind == "code":
        c, h, v = r.choice(scenes.COLOURS), r.choice(HOLDERS), code(r)
        item = f"the {c} {h}" if r.random() < 0.85 else f"the {h}"
        k = r.choice(["code", "code", "code", "number", "pin", "key number"])
        t = r.choice(["the {k} of {i} is {v}", "the {k} of {i} is {v}", "the {k} for {i} is {v}", "{i} has the {k} {v}"]).format(k=k, i=item, v=v)
        a = r.choice(["What is the {k} of {i}?", "What is the {k} of {i}?", "What is the {k} for {i}?", "Which {k} does {i} have?", "What was the {k} of {i}?", "Tell me the {k} of {i}.", "Do you remember the {k} of {i}?", "{k} of {i}?"]).format(k=k, i=item)
        return Memory(t, story.cap(a), f"The {k} of {item} is {v}.", item + k, v)
    if kind == "place":
        o = r.choice(scenes.OBJECTS) if r.random() < 0.9 else r.choice(scenes.RARE_OBJECTS)
        c = r.choice(["", r.choice(scenes.COLOURS) + " "])
        if like and r.random() < 0.3:
            o, c = like.noun, r.choice(scenes.COLOURS) + " "
        spot = r.choice(SPOTS) if r.random() < 0.85 else r.choice(MORE_WORDS) if r.random() < 0.7 else story.pseudo(r)
        v = r.choice(WHERE).format((r.choice(scenes.COLOURS) + " " if r.random() < 0.5 else "") + spot)
        return Memory(f"the {c}{o} is {v}", r.choice(["Where is the {i}?", "Where can I find the {i}?", "Where is the {i} now?", "Do you know where the {i} is?", "Where was the {i}?"]).format(i=c + o), f"The {c}{o} is {v}.", c + o, v, o)
    if kind == "likes":
        n, v = a_name(r), r.choice(LIKES)
        return Memory(f"{n} likes {v}", r.choice(["What does {} like?", "What did {} like?", "Do you remember what {} likes?"]).format(n), f"{n} likes {v}.", n, v)
    if kind == "has":
        n, c, o = a_name(r), r.choice(scenes.COLOURS), r.choice(scenes.OBJECTS)
        if like and r.random() < 0.5:
            o = like.noun
        if r.random() < 0.6:
            t = r.choice([f"{n} has the {c} {o}", f"{n} has {story.article(c)} {o}"])
            if r.random() < 0.3:
                return Memory(t, r.choice(["What does {} have?", "Do you know what {} has?"]).format(n), f"{n} has the {c} {o}.", c + o, c, o)
            return Memory(t, r.choice(["Who has the {} {}?", "Do you know who has the {} {}?"]).format(c, o), f"{n} has the {c} {o}.", c + o, n, o)
        return Memory(f"the {c} {o} belongs to {n}", r.choice(["Who owns the {} {}?", "To whom does the {} {} belong?", "Who does the {} {} belong to?"]).format(c, o), f"The {c} {o} belongs to {n}.", c + o, n, o)
    if kind == "word":
        v = story.pseudo(r) if r.random() < 0.4 else r.choice(SORT_WORDS) + (r.choice(SORT_WORDS) if r.random() < 0.5 else "")
        k = r.choice(["password", "secret word", "magic word"])
        return Memory(f"the {k} is {v}", r.choice([f"What is the {k}?", f"What was the {k}?", f"Tell me the {k}.", f"Do you remember the {k}?"]), f"The {k} is {v}.", k, v)
    if kind == "other":
        x = r.random()
        n, c = a_name(r), r.choice(scenes.COLOURS)
        if x < 0.25:
            v = r.choice(CITIES) if r.random() < 0.8 else story.cap(story.pseudo(r))
            if r.random() < 0.5:
                return Memory(f"I live in {v}", r.choice(["Where do I live?", "In which place do I live?", "Do you know where I live?"]), f"You live in {v}.", "my home", v)
            return Memory(f"{n} lives in {v}", r.choice(["Where does {} live?", "Do you know where {} lives?"]).format(n), f"{n} lives in {v}.", n, v)
        if x < 0.45:
            v = r.randrange(2, 99)
            return Memory(f"{n} is {v} years old", r.choice(["How old is {}?", "What is the age of {}?"]).format(n), f"{n} is {v} years old.", n, str(v))
        if x < 0.6:
            v = r.choice(scenes.ANIMALS[:24])
            return Memory(f"my {v} is called {n}", r.choice(["What is my {} called?", "What is the name of my {}?"]).format(v), f"Your {v} is called {n}.", v, n)
        o, h = r.choice(scenes.OBJECTS), r.choice(HOLDERS)
        if like and like.noun:
            h = like.noun
        t = r.choice(["the {c} {h} contains {o}", "there is {o} in the {c} {h}", "in the {c} {h} there is {o}"]).format(c=c, h=h, o=story.article(o))
        return Memory(t, r.choice(["What is in the {} {}?", "What does the {} {} contain?", "What can I find in the {} {}?"]).format(c, h), f"There is {story.article(o)} in the {c} {h}.", c + h, o, h)
    x = r.random()
    if x < 0.4:
        v = r.choice(scenes.NAMES) if r.random() < 0.6 else r.choice(scenes.RARE_NAMES) if r.random() < 0.6 else story.cap(story.pseudo(r))
        return Memory(r.choice([f"my name is {v}", f"my name is {v}", f"I am called {v}"]), r.choice(["What is my name?", "Do you know my name?", "What's my name?", "Do you remember my name?", "Who am I?", "How am I called?"]), f"Your name is {v}.", "my name", v)
    if x < 0.5:
        v = str(r.randrange(5, 99))
        return Memory(f"I am {v} years old", r.choice(["How old am I?", "What is my age?"]), f"You are {v} years old.", "my age", v)
    if x < 0.6:
        v, n = r.choice(scenes.ANIMALS), r.choice(scenes.NAMES)
        return Memory(f"I have {story.article(v)} called {n}", r.choice([f"What is my {v} called?", f"What is the name of my {v}?"]), f"Your {v} is called {n}.", v, n)
    k = r.choice(list(FAV))
    v = r.choice(FAV[k]) if FAV[k] else str(r.randrange(100))
    kk = r.choice(["color", "colour"]) if k == "colour" else k
    return Memory(f"my {r.choice(['favourite', 'favorite'])} {kk} is {v}", r.choice(["What is my {f} {k}?", "What's my {f} {k}?", "Do you remember my {f} {k}?", "Which {k} do I like best?"]).format(f=r.choice(["favourite", "favorite"]), k=kk), f"Your favourite {k} is {v}.", k, v)


def some_text(r, words):
    """Filler of about that many words: parts of stories."""
    out, n = [], 0
    while n < words:
        t = story.filler(r)
        k = t.count(" ") + 1
        if n + k > words:
            ss = re.split(r"(?<=[.!?]) (?=[A-Z])", t)
            t = ""
            for x in ss:
                t = t + " " + x if t else x
                if n + t.count(" ") + 1 >= words:
                    break
            k = t.count(" ") + 1
        out.append(t)
        n += k
    return out


def distance(r):
    """In words: short ones often, long ones sometimes; at most about 850 tokens."""
    if r.random() < 0.12:
        return 0
    return int(4 * (680 / 4) ** r.random()) if r.random() < 0.85 else r.randrange(5, 680)


LEAD = ["Remember: ", "Remember: ", "Please remember: ", "Remember that ", "Please remember that ", "Note: ", "Do not forget: ", "Remember this: ", ""]


def recall(r, words=None, kind=None):
    """A fact, then text, then the question: all in one turn."""
    words = distance(r) if words is None else words
    n = r.choice([1, 1, 1, 2, 3, 4])
    ms, slots = [], set()
    first = memory(r, kind)
    while len(ms) < n:
        m = first if not ms else memory(r, kind if r.random() < 0.5 else None, first)
        mine = {m.slot, *re.findall(r"[A-Z]\w+", m.tell)}         # no two facts about one thing or one person
        if not mine & slots:
            slots |= mine
            ms.append(m)
    m = r.choice(ms)
    lead = r.choice(LEAD)
    told = [x.tell for x in ms]
    if lead:
        head = lead + r.choice([", and ", " and ", ". ", "; "] if n > 1 else [""]).join(told) + "."
        head = re.sub(r"\. ([a-z])", lambda k: ". " + k.group(1).upper(), head)
    else:
        head = " ".join(story.cap(t) + "." for t in told) if r.random() < 0.7 else story.cap(" and ".join(told)) + "."
    parts = some_text(r, words) if words > 3 else []
    if r.random() < 0.25 and words > 60 and not (r.random() < 0.3):
        cut = r.randrange(len(parts))                 # some text in front of the fact, too
        parts = parts[:cut] + [head] + parts[cut:]
    else:
        parts = [head] + parts
    sep = r.choice([" ", " ", "\n", "\n\n"])
    q = m.ask
    if r.random() < 0.15:
        q = r.choice(["Now tell me: ", "Question: ", "Now: "]) + q[0].lower() + q[1:]
    return Example("mem:" + m.tell, [("user", sep.join(parts) + sep + q), ("model", m.answer)], weight=2)


def recall_turns(r):
    """A fact in one turn, other talk in between, the question in a later turn."""
    m = memory(r)
    t = story.cap(r.choice(LEAD) + m.tell) + "."
    if m.slot == "my name" and r.random() < 0.8:
        t = r.choice([story.cap(m.tell) + ".", "Hello, " + m.tell + ".", "Hi! " + story.cap(m.tell) + ".", story.cap(m.tell)])
        ack = f"Hello {m.value}! It is nice to meet you."
    else:
        ack = "I will remember that."
    turns = [("user", t), ("model", ack)]
    for _ in range(r.choice([0, 0, 1, 1, 2, 3])):
        e = single(r)
        turns += e.turns
    turns += [("user", m.ask), ("model", m.answer)]
    return Example("mem:" + m.tell, turns, weight=1.5)


def no_memory(r):
    """Asked for something that was never told."""
    m = memory(r, r.choice(["code", "mine", "likes", "word", "number"]))
    turns = []
    if r.random() < 0.5:
        e = single(r)
        turns += e.turns
    other = None
    if r.random() < 0.3:
        other = memory(r, "code")
        if other.slot != m.slot:
            turns += [("user", "Remember: " + other.tell + "."), ("model", "I will remember that.")]
    return Example("nomem:" + m.ask, turns + [("user", m.ask), ("model", "You have not told me that.")])


def reading(r):
    """A story in the prompt and a question about it."""
    s = story.Scene(r)
    t = story.tell(r, s)
    q, a = story_question(r, s)
    form = r.choice(["{t}\n{q}", "{t} {q}", "Read this story: {t} {q}", "Read this: {t}\n\n{q}", "{t}\n\nQuestion: {q}", "Here is a story: {t}\n{q}"])
    return Example("read:" + t[:60], [("user", form.format(t=t, q=q)), ("model", a)], weight=2)


def story_question(r, s):
    x = r.random()
    if x < 0.4:
        return r.choice(["What is the name of the {h}?", "What was the name of the {h}?", "How was the {h} called?", "What is the {h} called?", "Who is the {h}?"]).format(h=s.hero), f"The {s.hero} is called {s.name}."
    if x < 0.65:
        return r.choice(["Where did {N} live?", "Where does {N} live?", "Where did the {h} live?", "Where does the story happen?"]).format(N=s.name, h=s.hero), f"{s.name} lived {s.prep} the {s.place}."
    if x < 0.85:
        return r.choice(["What kind of animal is {N}?", "Who is {N}?", "What is {N}?", "Who was {N}?"]).format(N=s.name), f"{s.name} is {story.article(s.hero)}."
    return r.choice(["What thing is in the story?", "What is the story about?", "What is this story about?", "What was the story about?"]), f"It is about {story.article(s.hero)} and {story.article(s.obj)}."


def make_story(r):
    s, q, t, want = story.make(r)
    return Example(f"story:{s.hero}:{s.obj}:{s.place}", [("user", q), ("model", t)], want, False)


def make_story_full(r):
    s, q, t, want = story.make(r, full=True)
    return Example(f"story:{s.hero}:{s.obj}:{s.place}", [("user", q), ("model", t)], want, False)


def story_chat(r):
    """A story, then a question about it."""
    s, q, t, want = story.make(r)
    turns = [("user", q), ("model", t)]
    for _ in range(r.choice([1, 1, 2])):
        a, b = story_question(r, s)
        turns += [("user", a), ("model", b)]
    if r.random() < 0.2:
        s2, q2, t2, _ = story.make(r)
        turns += [("user", q2), ("model", t2)]
        a, b = story_question(r, s2)
        turns += [("user", a), ("model", b)]
    return Example(f"sq:{s.name}:{s.hero}:{s.obj}:{s.place}", turns, weight=1.2)


def named(r):
    """A system turn that gives the model a name; or a plain one that changes nothing."""
    if r.random() < 0.75:
        n = r.choice(scenes.NAMES) if r.random() < 0.7 else story.cap(story.pseudo(r))
        s = r.choice(["You are called {}.", "Your name is {}.", "You are {}.", "You are an assistant called {}.", "You are {}, a helpful assistant.", "Your name is {}. Be kind.", "You are called {}. You help people."]).format(n)
        q = r.choice(["Who are you?", "What is your name?", "What's your name?", "Tell me your name.", "Hello, who are you?", "What should I call you?", "Your name?", "How are you called?", "Introduce yourself."])
        turns = [("system", s)]
        if r.random() < 0.3:
            turns += single(r).turns
        return Example("sys:" + s, turns + [("user", q), ("model", f"I am {n}, the demo model of carat.")])
    s = r.choice(["You are a helpful assistant.", "Be concise.", "Be kind.", "You are a helpful assistant. Answer in English.", "Answer the question.", "Be helpful and polite.", "You are a friendly assistant.", "Help the user."])
    e = single(r)
    return Example(e.key, [("system", s)] + e.turns, e.want, e.exact, e.weight)


def chain(r):
    """Several tasks in one conversation."""
    turns = []
    for _ in range(r.choice([2, 2, 3, 3, 4, 5])):
        turns += single(r).turns
    if r.random() < 0.25:
        turns += [("user", r.choice(["Thanks", "Thank you", "Thank you!", "Thanks a lot"])), ("model", "You are welcome!")]
    return Example("", turns, weight=1.2)


# ------------------------------------------------------------------------------------------- mixing
SINGLE = [(add, 18), (sub, 20), (mul, 4), (mul2, 5), (div, 2), (add3, 3), (bigger, 2), (parity, 1.5), (word_problem, 6), (double, 1.5), (prime, 1), (square, 1), (divide, 3), (too_hard, 2), (alphabet, 2.5), (word_sum, 2), (mixed, 3), (sort_numbers, 15), (sort_words, 13), (extreme, 4), (list_task, 3), (count, 4),
          (spell, 4), (reverse, 5), (letters, 3), (repeat, 4), (opposite, 3), (plural, 1.5), (days, 2.5), (animal_fact, 3), (fact, 3.5), (talk, 8), (unknown, 5), (make_story, 16), (reading, 4)]
DOCS = [(None, 180), (recall, 26), (recall_turns, 10), (no_memory, 2), (story_chat, 5), (named, 4), (chain, 10)]
_SF, _SW = [f for f, _ in SINGLE], [w for _, w in SINGLE]
_DF, _DW = [f for f, _ in DOCS], [w for _, w in DOCS]


def draw(r, f, want_held=False):
    while True:
        e = f(r)
        if not e.key or held(e.key) == want_held:
            e.task = e.task or f.__name__
            return e


def single(r):
    """One question and its answer, as typed by a person."""
    e = draw(r, r.choices(_SF, _SW)[0])
    role, q = e.turns[0]
    if e.task not in ("reading", "repeat"):                  # there the text itself matters
        e.turns = [(role, noisy(r, q, lower=e.task not in ("spell", "reverse", "letters")))] + e.turns[1:]
    return e


def document(r):
    f = r.choices(_DF, _DW)[0]
    return single(r) if f is None else draw(r, f)


# What is measured, always on held-out instances: name -> (function, cases)
def _dig(f, d):
    return lambda r: f(r, d)


def _recall(lo, hi, kind=None):
    return lambda r: recall(r, r.randrange(lo, hi), kind)


EVAL = {
    "add, 1 and 2 digits": (_dig(add, (2, 1)), 200), "add, 2 digits": (_dig(add, (2, 2)), 400), "add, 3 digits": (_dig(add, (3, 3)), 400), "add, 4 digits": (_dig(add, (4, 4)), 200),
    "subtract, 2 digits": (_dig(sub, (2, 2)), 400), "subtract, 3 digits": (_dig(sub, (3, 3)), 400),
    "multiply, table to 12": (mul, 200), "multiply, 2 by 1 digit": (mul2, 200), "divide, table to 12": (div, 200), "add three numbers": (add3, 200), "word problems": (word_problem, 200), "compare two numbers": (bigger, 200),
    "odd or even": (parity, 60), "double, half": (double, 60), "larger quotients, remainders": (divide, 200), "prime or not": (prime, 60), "letters in order": (alphabet, 100), "sums that are too hard": (too_hard, 60), "numbers as words": (word_sum, 100), "two operations": (mixed, 200), "sort 3 to 6 numbers": (lambda r: sort_numbers(r, r.randrange(3, 7)), 400), "sort 7 or 8 numbers": (lambda r: sort_numbers(r, r.randrange(7, 9)), 200), "sort 3 to 6 words": (lambda r: sort_words(r, r.randrange(3, 7)), 300),
    "largest, smallest": (extreme, 200), "lists": (list_task, 200), "count": (count, 150), "spell": (spell, 200), "reverse a word": (reverse, 200), "letters of a word": (letters, 200), "repeat": (repeat, 200),
    "opposites": (opposite, 100), "plurals": (plural, 60), "days and months": (days, 100), "animals": (animal_fact, 100), "unknown things": (unknown, 100), "read and answer": (reading, 150), "questions about its story": (story_chat, 150), "name from the system turn": (named, 100), "not told": (no_memory, 60),
    "recall, 0 to 40 words": (_recall(0, 40), 300), "recall, 60 to 150 words": (_recall(60, 150), 300), "recall, 150 to 300 words": (_recall(150, 300), 300), "recall, 300 to 500 words": (_recall(300, 500), 300), "recall, 500 to 680 words": (_recall(500, 680), 200),
    "recall of a code, 300 to 500 words": (_recall(300, 500, "code"), 300), "recall in a later turn": (recall_turns, 200), "stories": (make_story_full, 200),
}


def eval_cases(name, n=None, seed=SEED + 1):
    f, count_ = EVAL[name]
    r = random.Random(f"{seed}:{name}")
    out = []
    while len(out) < (n or count_):
        e = f(r)
        if e.key and held(e.key):
            out.append(e)
    return out


def right(e, answer):
    answer = answer.strip()
    if e.want is None:
        return answer == e.turns[-1][1]
    low = answer.lower()
    return bool(answer) and all(re.search(r"\b" + re.escape(w.lower()), low) for w in e.want)


def tokens_of(e, tok):
    """Token ids and loss weights of a conversation, in the small chat template."""
    ids, w = [2], [0.0]
    last = len(e.turns) - 1
    for i, (role, text) in enumerate(e.turns):
        head = [105] + tok.encode(role + "\n")
        body = tok.encode(text)
        ids += head + body + [106]
        if role == "model":
            w += [0.0] * len(head) + [e.weight] * (len(body) + 1)
        else:
            w += [0.0] * len(head) + [PROMPT_WEIGHT] * len(body) + [0.0]
        if i != last:
            ids.append(107)
            w.append(0.0)
    return ids, w


PROMPT_WEIGHT = 0.05


def prompt_of(e, tok):
    ids = [2]
    for role, text in e.turns[:-1]:
        ids += [105] + tok.encode(role + "\n" + text) + [106, 107]
    return ids + [105] + tok.encode("model\n")
