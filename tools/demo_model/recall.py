"""Facts that are told, some text, then a question about one of them.

The text is longer than the sliding window most of the time, so the global layers have to answer.
"""
import re

import scenes
import story
from example import Example
from facts import DAYS
from talk import CITIES
from words import MORE_WORDS, SORT_WORDS

HOLDERS = """box door safe bag chest room gate locker bike car drawer house case cabin boat
phone""".split()
WHERE = ["under the {}", "behind the {}", "in the {}", "on the {}", "next to the {}"]
SPOTS = """chair table bed door window tree stone bridge basket barn mill well chest clock mirror
sofa oven stairs fence bush lamp roof wall""".split()
LIKES = """apples pears cakes cookies carrots nuts lemons honey cheese soup bread tea milk chess
music dancing singing swimming reading painting running football stories flowers stars""".split()
FAV = {"colour": scenes.COLOURS[:11], "animal": scenes.ANIMALS,
       "food": ["soup", "bread", "cheese", "cake", "honey", "rice", "pizza", "fish", "pasta"],
       "number": None, "place": list(scenes.PLACES), "day": DAYS}


def code(r):
    return str(r.randrange(10 ** (r.choice([2, 3, 4, 4, 4, 5]) - 1), 10 ** 5))[
        :r.choice([2, 3, 4, 4, 4, 4, 5])]


def a_name(r):
    x = r.random()
    return r.choice(scenes.NAMES) if x < 0.85 else r.choice(
        scenes.RARE_NAMES) if x < 0.95 else story.cap(story.pseudo(r))


class Memory:
    """One fact in three forms: as told, as asked, as answered."""

    kind = ""

    def __init__(self, tell_, ask, answer, slot, value, noun=""):
        self.tell, self.ask, self.answer, self.slot, self.value, self.noun = (
            tell_, ask, answer, slot, value, noun)


def number_fact(r, like):
    """A number or code without a place."""
    v = code(r)
    k = r.choice(["number", "number", "code"])
    return Memory(f"the {k} is {v}" if r.random() < 0.5 else f"the {k} {v}",
                  r.choice(["What {k} did I tell you?", "What is the {k}?", "What was the {k}?",
                            "Which {k} did I tell you?", "Tell me the {k}.",
                            "What {k} did I give you?"]).format(k=k),
                  f"The {k} is {v}.", "the " + k, v)


def code_fact(r, like):
    """The code of a coloured box or door."""
    c, h, v = r.choice(scenes.COLOURS), r.choice(HOLDERS), code(r)
    item = f"the {c} {h}" if r.random() < 0.85 else f"the {h}"
    k = r.choice(["code", "code", "code", "number", "pin", "key number"])
    t = r.choice(["the {k} of {i} is {v}", "the {k} of {i} is {v}", "the {k} for {i} is {v}",
                  "{i} has the {k} {v}"]).format(k=k, i=item, v=v)
    a = r.choice(["What is the {k} of {i}?", "What is the {k} of {i}?",
                  "What is the {k} for {i}?", "Which {k} does {i} have?",
                  "What was the {k} of {i}?", "Tell me the {k} of {i}.",
                  "Do you remember the {k} of {i}?", "{k} of {i}?"]).format(k=k, i=item)
    return Memory(t, story.cap(a), f"The {k} of {item} is {v}.", item + k, v)


def place_fact(r, like):
    """Where a thing is; sometimes the thing of the other fact in another colour."""
    o = r.choice(scenes.OBJECTS) if r.random() < 0.9 else r.choice(scenes.RARE_OBJECTS)
    c = r.choice(["", r.choice(scenes.COLOURS) + " "])
    if like and r.random() < 0.3:
        o, c = like.noun, r.choice(scenes.COLOURS) + " "
    if r.random() < 0.85:
        spot = r.choice(SPOTS)
    else:
        spot = r.choice(MORE_WORDS) if r.random() < 0.7 else story.pseudo(r)
    v = r.choice(WHERE).format((r.choice(scenes.COLOURS) + " " if r.random() < 0.5 else "")
                               + spot)
    return Memory(f"the {c}{o} is {v}",
                  r.choice(["Where is the {i}?", "Where can I find the {i}?",
                            "Where is the {i} now?", "Do you know where the {i} is?",
                            "Where was the {i}?"]).format(i=c + o),
                  f"The {c}{o} is {v}.", c + o, v, o)


def likes_fact(r, like):
    """What somebody likes."""
    n, v = a_name(r), r.choice(LIKES)
    return Memory(f"{n} likes {v}",
                  r.choice(["What does {} like?", "What did {} like?",
                            "Do you remember what {} likes?"]).format(n),
                  f"{n} likes {v}.", n, v)


def has_fact(r, like):
    """Who has what; sometimes the thing of the other fact."""
    n, c, o = a_name(r), r.choice(scenes.COLOURS), r.choice(scenes.OBJECTS)
    if like and r.random() < 0.5:
        o = like.noun
    if r.random() < 0.6:
        t = r.choice([f"{n} has the {c} {o}", f"{n} has {story.article(c)} {o}"])
        if r.random() < 0.3:
            q = r.choice(["What does {} have?", "Do you know what {} has?"]).format(n)
            return Memory(t, q, f"{n} has the {c} {o}.", c + o, c, o)
        q = r.choice(["Who has the {} {}?", "Do you know who has the {} {}?"]).format(c, o)
        return Memory(t, q, f"{n} has the {c} {o}.", c + o, n, o)
    return Memory(f"the {c} {o} belongs to {n}",
                  r.choice(["Who owns the {} {}?", "To whom does the {} {} belong?",
                            "Who does the {} {} belong to?"]).format(c, o),
                  f"The {c} {o} belongs to {n}.", c + o, n, o)


def word_fact(r, like):
    """A password."""
    if r.random() < 0.4:
        v = story.pseudo(r)
    else:
        v = r.choice(SORT_WORDS) + (r.choice(SORT_WORDS) if r.random() < 0.5 else "")
    k = r.choice(["password", "secret word", "magic word"])
    return Memory(f"the {k} is {v}",
                  r.choice([f"What is the {k}?", f"What was the {k}?", f"Tell me the {k}.",
                            f"Do you remember the {k}?"]),
                  f"The {k} is {v}.", k, v)


def other_fact(r, like):
    """Where people live, how old they are, what is in a box."""
    x = r.random()
    n, c = a_name(r), r.choice(scenes.COLOURS)
    if x < 0.25:
        v = r.choice(CITIES) if r.random() < 0.8 else story.cap(story.pseudo(r))
        if r.random() < 0.5:
            return Memory(f"I live in {v}",
                          r.choice(["Where do I live?", "In which place do I live?",
                                    "Do you know where I live?"]),
                          f"You live in {v}.", "my home", v)
        q = r.choice(["Where does {} live?", "Do you know where {} lives?"]).format(n)
        return Memory(f"{n} lives in {v}", q, f"{n} lives in {v}.", n, v)
    if x < 0.45:
        v = r.randrange(2, 99)
        return Memory(f"{n} is {v} years old",
                      r.choice(["How old is {}?", "What is the age of {}?"]).format(n),
                      f"{n} is {v} years old.", n, str(v))
    if x < 0.6:
        v = r.choice(scenes.ANIMALS[:24])
        q = r.choice(["What is my {} called?", "What is the name of my {}?"]).format(v)
        return Memory(f"my {v} is called {n}", q, f"Your {v} is called {n}.", v, n)
    o, h = r.choice(scenes.OBJECTS), r.choice(HOLDERS)
    if like and like.noun:
        h = like.noun
    t = r.choice(["the {c} {h} contains {o}", "there is {o} in the {c} {h}",
                  "in the {c} {h} there is {o}"]).format(c=c, h=h, o=story.article(o))
    return Memory(t,
                  r.choice(["What is in the {} {}?", "What does the {} {} contain?",
                            "What can I find in the {} {}?"]).format(c, h),
                  f"There is {story.article(o)} in the {c} {h}.", c + h, o, h)


def mine_fact(r, like):
    """About the person who asks."""
    x = r.random()
    if x < 0.4:
        if r.random() < 0.6:
            v = r.choice(scenes.NAMES)
        else:
            v = r.choice(scenes.RARE_NAMES) if r.random() < 0.6 else story.cap(story.pseudo(r))
        return Memory(r.choice([f"my name is {v}", f"my name is {v}", f"I am called {v}"]),
                      r.choice(["What is my name?", "Do you know my name?", "What's my name?",
                                "Do you remember my name?", "Who am I?", "How am I called?"]),
                      f"Your name is {v}.", "my name", v)
    if x < 0.5:
        v = str(r.randrange(5, 99))
        return Memory(f"I am {v} years old", r.choice(["How old am I?", "What is my age?"]),
                      f"You are {v} years old.", "my age", v)
    if x < 0.6:
        v, n = r.choice(scenes.ANIMALS), r.choice(scenes.NAMES)
        return Memory(f"I have {story.article(v)} called {n}",
                      r.choice([f"What is my {v} called?", f"What is the name of my {v}?"]),
                      f"Your {v} is called {n}.", v, n)
    k = r.choice(list(FAV))
    v = r.choice(FAV[k]) if FAV[k] else str(r.randrange(100))
    kk = r.choice(["color", "colour"]) if k == "colour" else k
    return Memory(f"my {r.choice(['favourite', 'favorite'])} {kk} is {v}",
                  r.choice(["What is my {f} {k}?", "What's my {f} {k}?",
                            "Do you remember my {f} {k}?", "Which {k} do I like best?"]).format(
                      f=r.choice(["favourite", "favorite"]), k=kk),
                  f"Your favourite {k} is {v}.", k, v)


FACT_OF = {"number": number_fact, "code": code_fact, "place": place_fact, "likes": likes_fact,
           "has": has_fact, "word": word_fact, "other": other_fact, "mine": mine_fact}
KINDS = """code code code code place place likes has has word number mine mine other
other""".split()


def memory(r, kind=None, like=None):
    """A random fact; `like` is one that it should be easy to confuse with."""
    if not kind:
        kind = like.kind if like and r.random() < 0.7 else r.choice(KINDS)
    m = FACT_OF[kind](r, like if like and like.kind == kind else None)
    m.kind = kind
    return m


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


LEAD = ["Remember: ", "Remember: ", "Please remember: ", "Remember that ", "Please remember that ",
        "Note: ", "Do not forget: ", "Remember this: ", ""]


def recall(r, words=None, kind=None):
    """A fact, then text, then the question: all in one turn."""
    words = distance(r) if words is None else words
    n = r.choice([1, 1, 1, 2, 3, 4])
    ms, slots = [], set()
    first = memory(r, kind)
    while len(ms) < n:
        m = first if not ms else memory(r, kind if r.random() < 0.5 else None, first)
        # no two facts about one thing or one person
        mine = {m.slot, *re.findall(r"[A-Z]\w+", m.tell)}
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
        apart = r.random() < 0.7
        head = (" ".join(story.cap(t) + "." for t in told) if apart
                else story.cap(" and ".join(told)) + ".")
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
    return Example("mem:" + m.tell, [("user", sep.join(parts) + sep + q), ("model", m.answer)],
                   weight=2)
