"""Sums, products, comparisons and word problems.

Longer ones are answered in steps, because a small model cannot do them in one.
"""
import re

import scenes
from example import NUM_WORDS, number, qa


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


ADD_Q = ["What is {a} + {b}?", "What is {a} plus {b}?", "{a} + {b}", "{a}+{b}", "{a} + {b} =",
         "{a}+{b}=", "{a} + {b} = ?", "Add {a} and {b}.", "How much is {a} + {b}?",
         "How much is {a} plus {b}?", "What's {a} + {b}?", "Calculate {a} + {b}.",
         "What is the sum of {a} and {b}?", "{a} plus {b}", "Add {b} to {a}.", "Compute {a} + {b}",
         "Can you add {a} and {b}?", "whats {a} + {b}", "what does {a} + {b} make?"]
SUB_Q = ["What is {a} - {b}?", "What is {a} minus {b}?", "{a} - {b}", "{a}-{b}", "{a} - {b} =",
         "{a}-{b}=", "Subtract {b} from {a}.", "How much is {a} - {b}?",
         "How much is {a} minus {b}?", "What's {a} - {b}?", "Calculate {a} - {b}.",
         "What is the difference of {a} and {b}?", "{a} minus {b}", "Take {b} away from {a}.",
         "Compute {a} - {b}", "whats {a} - {b}"]
MUL_Q = ["What is {a} * {b}?", "What is {a} times {b}?", "{a} * {b}", "{a}*{b}", "{a} x {b}",
         "{a} times {b}", "Multiply {a} by {b}.", "Multiply {a} and {b}.",
         "How much is {a} times {b}?", "What's {a} x {b}?", "Calculate {a} * {b}.",
         "What is the product of {a} and {b}?", "{a} * {b} =", "What is {a} x {b}?",
         "whats {a} times {b}"]
DIV_Q = ["What is {a} / {b}?", "What is {a} divided by {b}?", "{a} / {b}", "{a}/{b}",
         "Divide {a} by {b}.", "How much is {a} divided by {b}?", "{a} divided by {b}",
         "Calculate {a} / {b}.", "{a} : {b}"]


def pair_key(op, a, b):
    return f"{op}:{min(a, b)}:{max(a, b)}"        # a+b and b+a are held out together


def add(r, digits=None):
    da, db = digits or sizes(r)
    a, b = number(r, da), number(r, db)
    return qa(pair_key("add", a, b), r.choice(ADD_Q).format(a=a, b=b), f"{a} + {b} = {a + b}.",
              weight=2)


def sub(r, digits=None):
    da, db = digits or sizes(r)
    a, b = number(r, da), number(r, db)
    if a < b and r.random() < 0.85:
        a, b = b, a
    return qa(pair_key("sub", a, b), r.choice(SUB_Q).format(a=a, b=b), f"{a} - {b} = {a - b}.",
              weight=2)


def word_sum(r):
    """Numbers written as words."""
    a, b = r.randrange(1, 21), r.randrange(1, 21)
    op = r.choice("+-*")
    if op == "-" and a < b:
        a, b = b, a
    if op == "*":
        a, b = r.randrange(0, 13), r.randrange(0, 13)
    w = {"+": ["plus", "and", "+"], "-": ["minus", "-"], "*": ["times"]}[op]
    q = r.choice(["What is {} {} {}?", "How much is {} {} {}?", "{} {} {}", "What's {} {} {}?",
                  "{} {} {}?"]).format(NUM_WORDS[a], r.choice(w), NUM_WORDS[b])
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
    return qa("mix:" + t, q.replace(" ", "") if q == t and r.random() < 0.3 else q,
              f"{t} = {first} = {v}.", weight=2)


def mul(r):
    a, b = r.randrange(0, 13), r.randrange(0, 13)
    q = r.choice(MUL_Q)
    # the table is taught; the wording is new
    return qa(f"mul:{q}:{a}:{b}", q.format(a=a, b=b), f"{a} * {b} = {a * b}.", weight=2)


def mul2(r):
    a, b = r.randrange(11, 100), r.randrange(2, 10)
    k = f"mul2:{a}:{b}"
    # tens first, then ones
    steps = "" if a < 13 or a % 10 == 0 else f"{a // 10 * 10 * b} + {a % 10 * b} = "
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
    q = r.choice(["What is {a} + {b} + {c}?", "{a} + {b} + {c}", "{a}+{b}+{c}",
                  "Add {a}, {b} and {c}.", "What is the sum of {a}, {b} and {c}?"])
    return qa(f"add3:{a}:{b}:{c}", q.format(a=a, b=b, c=c),
              f"{a} + {b} + {c} = {a + b} + {c} = {a + b + c}.", weight=2)


def bigger(r):
    d = r.choice([1, 2, 2, 3])
    a, b = number(r, d), number(r, r.choice([d, d, max(1, d - 1)]))
    if a == b:
        b += 1
    up = r.random() < 0.6
    w = r.choice(["bigger", "larger", "greater", "more"] if up else ["smaller", "less", "lower"])
    q = r.choice(["Which is {w}, {a} or {b}?", "What is {w}, {a} or {b}?",
                  "Which number is {w}: {a} or {b}?", "Which one is {w}, {a} or {b}?"])
    x, y = (max(a, b), min(a, b)) if up else (min(a, b), max(a, b))
    return qa(pair_key("cmp", a, b), q.format(w=w, a=a, b=b),
              f"{x} is {'bigger' if up else 'smaller'} than {y}.")


PRIMES = [p for p in range(2, 100) if all(p % k for k in range(2, p))]


def prime(r):
    a = r.choice(PRIMES) if r.random() < 0.4 else r.randrange(1, 100)
    q = r.choice(["Is {} a prime number?", "Is {} prime?", "Is {} a prime?"]).format(a)
    return qa("prime:" + q, q,
              f"{'Yes' if a in PRIMES else 'No'}, {a} is {'a' if a in PRIMES else 'not a'} prime "
              f"number.")


def square(r):
    a = r.randrange(1, 13) if r.random() < 0.7 else r.choice([13, 14, 15, 16, 20])
    q = r.choice(["What is the square of {}?", "What is {} squared?", "{} squared",
                  "Square of {}?"]).format(a)
    return qa("sq:" + q, q, f"{a} * {a} = {a * a}.")


def divide(r):
    """Larger quotients, and remainders."""
    if r.random() < 0.5:
        b, c = r.randrange(2, 10), r.randrange(13, 60)
        return qa(f"div2:{b}:{c}", r.choice(DIV_Q).format(a=b * c, b=b), f"{b * c} / {b} = {c}.",
                  weight=2)
    b, c = r.randrange(2, 13), r.randrange(0, 13)
    m = r.randrange(1, b)
    a = b * c + m
    return qa(f"rem:{a}:{b}", r.choice(DIV_Q).format(a=a, b=b), f"{a} / {b} = {c}, remainder {m}.",
              weight=2)


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
        q = r.choice(["What is {a}% of {b}?", "{a}% of {b}", "How much is {a}% of {b}?",
                      "What is {a} percent of {b}?"]).format(
            a=number(r, 2), b=number(r, r.choice([2, 3])))
    return qa("hard:" + q, q, "I can only calculate with whole numbers.")


def parity(r):
    a = number(r, r.choice([1, 2, 2, 3]))
    w = "even" if a % 2 == 0 else "odd"
    if r.random() < 0.5:
        q = r.choice(["Is {a} odd or even?", "Is {a} even or odd?",
                      "Is the number {a} odd or even?"])
        return qa(f"par:{a}", q.format(a=a), f"{a} is {w}.")
    ask = r.choice(["even", "odd"])
    q = r.choice(["Is {a} an {k} number?", "Is {a} {k}?"])
    return qa(f"par:{a}", q.format(a=a, k=ask), f"{'Yes' if ask == w else 'No'}, {a} is {w}.")


THINGS = """apples pears eggs coins books balls stones cookies nuts flowers pencils shells cakes
carrots stars lemons buttons cups""".split()


FOOD = ("apples", "pears", "cookies", "nuts", "cakes", "carrots", "lemons", "eggs")


def word_problem(r):
    """Somebody has things and gets or loses some."""
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
        uses = "eats {b} of them" if t in FOOD else "sells {b}"
        v = r.choice(["gives away {b}", uses, "loses {b}", "sells {b}"])
        op, c = "-", a - b
    v = v.format(b=b)
    key = pair_key("word" + op, a, b)
    y = r.random()
    if y < 0.12:                                        # two kinds of things
        t2 = r.choice([x for x in THINGS if x != t])
        whole = r.choice(["things", "things", "fruits", "pieces"])
        v = r.choice(["I have {a} {t} and {b} {t2}. How many {w} do I have?",
                      "I have {a} {t} and {b} {t2}. How many {w} do I have in total?",
                      "I have {a} {t} and {b} {t2}. How many {w} are that together?"])
        return qa(pair_key("word+", a, b), v.format(a=a, b=b, t=t, t2=t2, w=whole),
                  f"{a} + {b} = {a + b}. You have {a + b} {whole}.", weight=2)
    if y < 0.24:                                        # one sentence
        plus = r.random() < 0.5
        if not plus and a < b:
            a, b = b, a
        v = r.choice(["buy", "get", "find"] if plus else ["give away", "lose", "sell"])
        c, op = (a + b, "+") if plus else (a - b, "-")
        more = " more" if plus else ""
        q = r.choice([f"If I have {a} {t} and {v} {b}{more}, how many {t} do I have?",
                      f"If I have {a} {t} and {v} {b}{more}, how many do I have"
                      + ("?" if plus else " left?"),
                      f"I had {a} {t} and {v} {b}{more}. How many {t} do I have now?".replace(
                          "give away", "gave away")])
        return qa(pair_key("word" + op, a, b), q, f"{a} {op} {b} = {c}. You have {c} {t}.",
                  weight=2)
    if me:
        v = re.sub(r"^(\w+?)s\b", r"\1", v)
        q = f"I have {a} {t}. I {v}. " + r.choice(
            [f"How many {t} do I have now?", f"How many {t} do I have?",
             f"How many {t} are left?" if op == "-" else f"How many {t} do I have?"])
        return qa(key, q, f"{a} {op} {b} = {c}. You have {c} {t}.", weight=2)
    asks = [f"How many {t} does {n} have now?", f"How many {t} does {he.lower()} have?",
            f"How many {t} does {n} have?"]
    if op == "-":
        asks += ["How many are left?", f"How many {t} are left?"]
    q = f"{n} has {a} {t}. {he} {v}. " + r.choice(asks)
    return qa(key, q, f"{a} {op} {b} = {c}. {n} has {c} {t}.", weight=2)


def double(r):
    a = number(r, r.choice([1, 2, 2]))
    if r.random() < 0.6:
        q = r.choice(["What is twice {a}?", "Double {a}.", "What is the double of {a}?",
                      "What is two times {a}?"])
        return qa(f"dbl:{a}", q.format(a=a), f"2 * {a} = {2 * a}.", weight=2)
    a *= 2
    return qa(f"half:{a}",
              r.choice(["What is half of {a}?", "Half of {a}?", "What is the half of {a}?"]).format(
                  a=a),
              f"{a} / 2 = {a // 2}.", weight=2)
