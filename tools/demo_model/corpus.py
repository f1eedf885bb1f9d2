"""The training text: small tasks a person can check, written as conversations.

Every task is a function of a random generator and returns an Example.  Instances whose key hashes
into one sixteenth of the space are held out: training never sees them, the evaluation uses only
them.
"""
import random
import re

import scenes
import story
from arithmetic import (
    add, add3, bigger, div, divide, double, mixed, mul, mul2, parity, prime, square, sub, too_hard,
    word_problem, word_sum)
from example import Example, held, noisy
from facts import animal_fact, days, fact, opposite, plural
from lists import alphabet, count, extreme, list_task, sort_numbers, sort_words
from recall import LEAD, memory, recall
from talk import talk, unknown
from words import letters, repeat, reverse, spell

SEED = 20261120


def recall_turns(r):
    """A fact in one turn, other talk in between, the question in a later turn."""
    m = memory(r)
    t = story.cap(r.choice(LEAD) + m.tell) + "."
    if m.slot == "my name" and r.random() < 0.8:
        t = r.choice([story.cap(m.tell) + ".", "Hello, " + m.tell + ".",
                      "Hi! " + story.cap(m.tell) + ".", story.cap(m.tell)])
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
    return Example("nomem:" + m.ask,
                   turns + [("user", m.ask), ("model", "You have not told me that.")])


def reading(r):
    """A story in the prompt and a question about it."""
    s = story.Scene(r)
    t = story.tell(r, s)
    q, a = story_question(r, s)
    form = r.choice(["{t}\n{q}", "{t} {q}", "Read this story: {t} {q}", "Read this: {t}\n\n{q}",
                     "{t}\n\nQuestion: {q}", "Here is a story: {t}\n{q}"])
    return Example("read:" + t[:60], [("user", form.format(t=t, q=q)), ("model", a)], weight=2)


def story_question(r, s):
    x = r.random()
    hero = story.article(s.hero)
    if x < 0.4:
        q = r.choice(["What is the name of the {h}?", "What was the name of the {h}?",
                      "How was the {h} called?", "What is the {h} called?", "Who is the {h}?"])
        a = f"The {s.hero} is called {s.name}."
    elif x < 0.65:
        q = r.choice(["Where did {N} live?", "Where does {N} live?", "Where did the {h} live?",
                      "Where does the story happen?"])
        a = f"{s.name} lived {s.prep} the {s.place}."
    elif x < 0.85:
        q = r.choice(["What kind of animal is {N}?", "Who is {N}?", "What is {N}?", "Who was {N}?"])
        a = f"{s.name} is {hero}."
    else:
        q = r.choice(["What thing is in the story?", "What is the story about?",
                      "What is this story about?", "What was the story about?"])
        a = f"It is about {hero} and {story.article(s.obj)}."
    return q.format(h=s.hero, N=s.name), a


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
        s = r.choice(["You are called {}.", "Your name is {}.", "You are {}.",
                      "You are an assistant called {}.", "You are {}, a helpful assistant.",
                      "Your name is {}. Be kind.", "You are called {}. You help people."]).format(n)
        q = r.choice(["Who are you?", "What is your name?", "What's your name?",
                      "Tell me your name.", "Hello, who are you?", "What should I call you?",
                      "Your name?", "How are you called?", "Introduce yourself."])
        turns = [("system", s)]
        if r.random() < 0.3:
            turns += single(r).turns
        return Example("sys:" + s,
                       turns + [("user", q), ("model", f"I am {n}, the demo model of carat.")])
    s = r.choice(["You are a helpful assistant.", "Be concise.", "Be kind.",
                  "You are a helpful assistant. Answer in English.", "Answer the question.",
                  "Be helpful and polite.", "You are a friendly assistant.", "Help the user."])
    e = single(r)
    return Example(e.key, [("system", s)] + e.turns, e.want, e.exact, e.weight)


def chain(r):
    """Several tasks in one conversation."""
    turns = []
    for _ in range(r.choice([2, 2, 3, 3, 4, 5])):
        turns += single(r).turns
    if r.random() < 0.25:
        turns += [("user", r.choice(["Thanks", "Thank you", "Thank you!", "Thanks a lot"])),
                  ("model", "You are welcome!")]
    return Example("", turns, weight=1.2)


SINGLE = [(add, 18), (sub, 20), (mul, 4), (mul2, 5), (div, 2), (add3, 3), (bigger, 2),
          (parity, 1.5), (word_problem, 6), (double, 1.5), (prime, 1), (square, 1), (divide, 3),
          (too_hard, 2), (alphabet, 2.5), (word_sum, 2), (mixed, 3), (sort_numbers, 15),
          (sort_words, 13), (extreme, 4), (list_task, 3), (count, 4),
          (spell, 4), (reverse, 5), (letters, 3), (repeat, 4), (opposite, 3), (plural, 1.5),
          (days, 2.5), (animal_fact, 3), (fact, 3.5), (talk, 8), (unknown, 5), (make_story, 16),
          (reading, 4)]
DOCS = [(None, 180), (recall, 26), (recall_turns, 10), (no_memory, 2), (story_chat, 5), (named, 4),
        (chain, 10)]
_SF, _SW = [f for f, _ in SINGLE], [w for _, w in SINGLE]
_DF, _DW = [f for f, _ in DOCS], [w for _, w in DOCS]


def draw(r, f, want_held=False):
    """An instance on the right side of the line between training and evaluation."""
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
        q = noisy(r, q, lower=e.task not in ("spell", "reverse", "letters"))
        e.turns = [(role, q)] + e.turns[1:]
    return e


def document(r):
    f = r.choices(_DF, _DW)[0]
    return single(r) if f is None else draw(r, f)


def _dig(f, d):
    return lambda r: f(r, d)


def _recall(lo, hi, kind=None):
    return lambda r: recall(r, r.randrange(lo, hi), kind)


# What is measured, always on held-out instances: name -> (function, cases)
EVAL = {
    "add, 1 and 2 digits": (_dig(add, (2, 1)), 200), "add, 2 digits": (_dig(add, (2, 2)), 400),
    "add, 3 digits": (_dig(add, (3, 3)), 400), "add, 4 digits": (_dig(add, (4, 4)), 200),
    "subtract, 2 digits": (_dig(sub, (2, 2)), 400), "subtract, 3 digits": (_dig(sub, (3, 3)), 400),
    "multiply, table to 12": (mul, 200), "multiply, 2 by 1 digit": (mul2, 200),
    "divide, table to 12": (div, 200), "add three numbers": (add3, 200),
    "word problems": (word_problem, 200), "compare two numbers": (bigger, 200),
    "odd or even": (parity, 60), "double, half": (double, 60),
    "larger quotients, remainders": (divide, 200), "prime or not": (prime, 60),
    "letters in order": (alphabet, 100), "sums that are too hard": (too_hard, 60),
    "numbers as words": (word_sum, 100), "two operations": (mixed, 200),
    "sort 3 to 6 numbers": (lambda r: sort_numbers(r, r.randrange(3, 7)), 400),
    "sort 7 or 8 numbers": (lambda r: sort_numbers(r, r.randrange(7, 9)), 200),
    "sort 3 to 6 words": (lambda r: sort_words(r, r.randrange(3, 7)), 300),
    "largest, smallest": (extreme, 200), "lists": (list_task, 200), "count": (count, 150),
    "spell": (spell, 200), "reverse a word": (reverse, 200), "letters of a word": (letters, 200),
    "repeat": (repeat, 200),
    "opposites": (opposite, 100), "plurals": (plural, 60), "days and months": (days, 100),
    "animals": (animal_fact, 100), "unknown things": (unknown, 100),
    "read and answer": (reading, 150), "questions about its story": (story_chat, 150),
    "name from the system turn": (named, 100), "not told": (no_memory, 60),
    "recall, 0 to 40 words": (_recall(0, 40), 300),
    "recall, 60 to 150 words": (_recall(60, 150), 300),
    "recall, 150 to 300 words": (_recall(150, 300), 300),
    "recall, 300 to 500 words": (_recall(300, 500), 300),
    "recall, 500 to 680 words": (_recall(500, 680), 200),
    "recall of a code, 300 to 500 words": (_recall(300, 500, "code"), 300),
    "recall in a later turn": (recall_turns, 200), "stories": (make_story_full, 200),
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
    """Equal, or where many answers are good, with all the words that have to be in it."""
    answer = answer.strip()
    if e.want is None:
        return answer == e.turns[-1][1]
    low = answer.lower()
    return bool(answer) and all(re.search(r"\b" + re.escape(w.lower()), low) for w in e.want)


PROMPT_WEIGHT = 0.05


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


def prompt_of(e, tok):
    ids = [2]
    for role, text in e.turns[:-1]:
        ids += [105] + tok.encode(role + "\n" + text) + [106, 107]
    return ids + [105] + tok.encode("model\n")
