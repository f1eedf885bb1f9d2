"""Short stories from a described scene, and the requests that ask for them.

A story is one of a dozen plots with one sentence a slot. What a request leaves open is drawn with a
clear favourite, and the favourite depends on words of the request: greedy decoding then never has
to decide between equals, stories for different requests differ, and sampled ones still vary.
"""
import zlib

from scenes import (
    ANIMALS, ASK, ASK_ANY, ASK_MOOD, ASK_MOOD_ANY, COLOURS, FEARS, HE, LOOKS, MOOD_END, MOOD_LINE,
    MOOD_WORDS, MOODS, NAMES, NAMES_F, NAMES_M, OBJECT_PLOTS, OBJECTS, OPEN, PEOPLE, PLACE_LIST,
    PLOT_LIST, PLOTS, RARE_HEROES, RARE_NAMES, RARE_OBJECTS, RARE_PLACES, RARE_SHE, SHE, SKILLS,
    TRAITS, VERBS, WHEN)

KNOWN = {*ANIMALS, *PEOPLE, *RARE_HEROES, *OBJECTS, *RARE_OBJECTS, *dict(PLACE_LIST), *RARE_PLACES,
         *FEARS, *SKILLS, *MOODS, *ASK_ANY}
CONSONANTS = "b c d f g h j k l m n p r s t v w z br st tr gl pl sh ch".split()
VOWELS = "a e i o u a e i o oo ee ai".split()
AFTER_FIRST = 1 / 3             # the chance that a favourite is passed over, and the next one, ...


def article(noun):
    vowel = noun[0] in "aeiouAEIOU" and not noun.startswith(("uni", "one"))
    return ("an " if vowel else "a ") + noun


def cap(s):
    return s[0].upper() + s[1:]


def pseudo(r, lo=2, hi=3):
    """A made-up but pronounceable word, so that unknown words are met in training."""
    syllables = [r.choice(CONSONANTS) + r.choice(VOWELS) for _ in range(r.randint(lo, hi))]
    return "".join(syllables) + r.choice(["", "", "n", "x", "t", "r", "l", "m"])


def skewed(r, options, start):
    """The option at `start` in two of three cases, the one after it in two of nine, and so on."""
    i = 0
    while i < len(options) - 1 and r.random() < AFTER_FIRST:
        i += 1
    return options[(start + i) % len(options)]


def favourite(word, options):
    """Which option goes with a word. Nobody could learn it for made-up words: they share one."""
    return zlib.crc32(word.encode()) % len(options) if word in KNOWN else 0


def skewed_for(r, options, word):
    return skewed(r, options, favourite(word, options))


class Scene:
    """What a story is about. All of it is drawn here; `request` notes in `told` what it mentions,
    and `settle` draws the rest again."""

    def __init__(self, r, rare=0.12):
        x = r.random()
        if x < rare * 0.15:
            self.hero = pseudo(r)
        elif x < rare:
            self.hero = r.choice(RARE_HEROES)
        else:
            self.hero = r.choice(ANIMALS) if r.random() < 0.8 else r.choice(PEOPLE)
        x = r.random()
        if x < rare * 0.15:
            self.obj = pseudo(r)
        else:
            self.obj = r.choice(RARE_OBJECTS) if x < rare else r.choice(OBJECTS)
        known = r.random() >= rare
        self.place, self.prep = r.choice(PLACE_LIST if known else list(RARE_PLACES.items()))
        self.she = self.hero in SHE or (self.hero not in HE and r.random() < 0.5)
        self.name = r.choice(NAMES_F if self.she else NAMES_M)
        self.friend = r.choice(ANIMALS)
        while self.friend == self.hero:
            self.friend = r.choice(ANIMALS)
        self.mood = ""
        self.must_friend = False
        self.look = r.choice(COLOURS + LOOKS) if r.random() < 0.6 else ""
        self.trait = r.choice(TRAITS) if r.random() < 0.5 else ""
        self.plot = r.choice(PLOT_LIST)
        self.thing = r.choice(FEARS if self.plot == "fear" else SKILLS)    # feared or learned
        self.plots = []                 # which plots a request leaves open; none: it tells the plot
        self.told = set()
        self.hint = ""                  # what a request without a hero says


# ----------------------------------------------------------------------------------------- stories
def words_for(r, s, when, o2):
    """What the holes of the sentences are filled with."""
    he, him, his = ("she", "her", "her") if s.she else ("he", "him", "his")
    inp = f"{s.prep} the {s.place}"
    friend = "the " + s.friend
    return {
        "N": s.name, "h": s.hero, "ta": article((s.trait + " " if s.trait else "") + s.hero),
        "he": he, "him": him, "his": his, "He": cap(he), "His": cap(his),
        "himself": "herself" if s.she else "himself",
        "inP": inp, "Inp": cap(inp), "X": s.thing, "X2": cap(s.thing), "o2": o2,
        "o": article((s.look + " " if s.look else "") + s.obj), "O": "the " + s.obj,
        "O2": "The " + s.obj, "on": s.obj, "F": friend, "F2": friend, "F2c": cap(friend),
        "f": article(s.friend), "him2": "it", "When": when, "when": when[0].lower() + when[1:]}


def slots_of(s):
    """The slots of the plot; where the second animal is told, the sentences that bring it in."""
    slots = PLOTS[s.plot]
    if not s.must_friend:
        return slots
    meet = {len(slots) - 2, {"find": 3, "make": 2}.get(s.plot)}
    return [[t for t in slot if "{F" in t or "{f" in t] or slot if i in meet else slot
            for i, slot in enumerate(slots)]


def linked(sentences, s, f):
    """The second animal and the object come with "a" at first and with "the" afterwards."""
    is_new, seen = True, False
    for t in sentences:
        if is_new and "{F}" in t:
            t = t.replace("{F}", "{f}", 1)
            is_new = False
        elif "{f}" in t:
            is_new = False
        if t.startswith("{f}"):
            t = cap(f["f"]) + t[3:]
        elif t.startswith("{F}"):
            t = cap(f["F"]) + t[3:]
        elif t.startswith("{o}"):
            t = cap(f["o"]) + t[3:]
        if seen and s.plot != "want":           # there "a lamp" is still any lamp
            t = t.replace("{o}", "{O}")
        seen = seen or "{o}" in t
        yield t


def tell(r, s, short=False, skew=False):
    """The story of a scene; in answers (`skew`) its sentences depend on what the request told."""
    def pick(options, word, shift=0):
        return skewed(r, options, favourite(word, options) + shift) if skew else r.choice(options)

    about = s.thing if s.plot in ("fear", "learn") else s.obj if "object" in s.told else s.hero
    when = pick(WHEN, s.place)
    f = words_for(r, s, when, pick(["a bush", "the mud", "a pile of leaves", "a basket"], s.hero))
    lines = [pick(OPEN, s.hero if "hero" in s.told else "")]
    if s.mood:
        lines.append(pick(MOOD_LINE[s.mood], s.hero))
    sentences = [pick(slot, about if i % 2 else s.hero, i) for i, slot in enumerate(slots_of(s))]
    body = list(linked(sentences, s, f))
    if short and not s.must_friend and s.plot not in ("fear", "learn"):
        drop = 2 if skew else r.choice([2, 3]) if len(body) > 5 else 2
        if "{o}" not in body[drop] and "{f}" not in body[drop]:
            del body[drop]
    lines += body
    if s.mood or r.random() < (0.9 if skew else 0.7):
        lines.append(pick(MOOD_END[s.mood], s.place))
    return " ".join(x.format_map(f) for x in lines)


# ---------------------------------------------------------------------------------------- requests
def ask_anything(r, s):
    """No scene at all, at most a mood."""
    s.plots = OBJECT_PLOTS
    if r.random() < 0.4:
        s.hint = s.mood = r.choice(MOODS)
        m = r.choice(MOOD_WORDS[s.mood])
        return r.choice(ASK_MOOD_ANY).format(m=m, am=article(m)) + r.choice([".", "", "!"]), []
    s.hint = r.choice(ASK_ANY)
    return s.hint + r.choice([".", "", "!", "?"]), []


def ask_little(r, s):
    """Only a place, or a child and an animal."""
    if r.random() < 0.5:
        s.plots, s.hint = OBJECT_PLOTS, s.place
        s.told = {"place"}
        return r.choice(ASK).format("the " + s.place) + r.choice([".", "", "!"]), [s.place]
    if r.random() < 0.4:
        s.name = r.choice(RARE_NAMES)
        s.she = s.name in RARE_SHE
    else:
        s.name = r.choice(NAMES_F if s.she else NAMES_M)
    s.hero, s.plots, s.trait = "girl" if s.she else "boy", ["steal", "share", "help"], ""
    s.told = {"hero", "name", "friend"}
    who = f"{s.name} and {'her' if s.she else 'his'} {s.friend}"
    return r.choice(ASK).format(who) + r.choice([".", "", "!"]), [s.name, s.friend]


def say_hero(r, s):
    """The hero, perhaps with a trait and a name; returns it and the words it brings."""
    s.told.add("hero")
    if s.trait and r.random() < 0.5:
        s.told.add("trait")
    elif r.random() < 0.5:
        s.trait = ""
    x = r.random()
    if x < 0.16:
        s.told.add("name")
        if r.random() < 0.2:
            s.name = r.choice(RARE_NAMES)
            s.she = s.hero in SHE or (s.name in RARE_SHE and s.hero not in HE)
        elif r.random() < 0.1:
            s.name, s.she = cap(pseudo(r)), s.hero in SHE
    if 0.12 <= x < 0.16:
        s.trait = ""
        s.told.discard("trait")
        return f"{s.name} the {s.hero}", [s.hero, s.name]
    is_told = "trait" in s.told
    who = article((s.trait + " " if is_told else "") + s.hero)
    want = [s.hero] + [s.trait] * is_told
    if x < 0.12:
        who += r.choice([" called ", " named "]) + s.name
        want.append(s.name)
    return who, want


def say_thing(r, s):
    """What is feared or learned."""
    s.told.add("thing")
    if s.plot == "fear":
        says = [" who is afraid of ", " who was afraid of ", " who fears ", " that is afraid of "]
    else:
        says = [" who learns to ", " who wants to ", " who cannot ", " who wants to learn to ",
                " who learned to "]
    return r.choice(says) + s.thing, [s.thing.replace("the ", "")]


def say_object(r, s):
    """The object, with or without what happens to it."""
    if s.plot not in OBJECT_PLOTS:
        s.plot = r.choice(OBJECT_PLOTS)
    s.told.add("object")
    is_told = s.look and r.random() < 0.4
    if not is_told and r.random() < 0.6:
        s.look = ""
    o = article((s.look + " " if is_told else "") + s.obj)
    want = [s.obj] + [s.look] * bool(is_told)
    y = r.random()
    if y < 0.06 and s.plot in ("find", "lose", "make") and "name" not in s.told:
        s.must_friend = True
        s.told.add("friend")
        return f" and {article(s.friend)} who {s.plot} {o}", want + [s.friend]
    if y < 0.7:
        verb = r.choice(VERBS[s.plot]).replace("and {o}", "has {o}")
        return " who " + verb.format(o=o), want
    s.plots = OBJECT_PLOTS
    return (" and " if y < 0.9 else " with ") + o, want


def ask_for_list(r, s):
    """A bare list of hero, object and place."""
    s.plots = OBJECT_PLOTS
    s.told = {"hero", "object", "place"}
    s.trait = s.look = ""
    things = f"{article(s.hero)}, {article(s.obj)} and {article(s.place)}"
    q = r.choice(["Write a story with {}", "Write a short story with {}", "Story: {}",
                  "Tell me a story with {}", "Make a story out of this: {}",
                  "Write a story about {}"])
    return q.format(things) + r.choice([".", ""]), [s.hero, s.obj, s.place]


def ask_for(r, s, who):
    """The whole request, perhaps with a mood."""
    if r.random() >= 0.25:
        q = r.choice(ASK).format(who)
    else:
        s.mood = r.choice(MOODS)
        m = r.choice(MOOD_WORDS[s.mood])
        if r.random() < 0.7:
            q = r.choice(ASK_MOOD).format(who, m=m, am=article(m))
        else:
            make_it = r.choice([". Make it {}", ", please make it {}", ". It should be {}"])
            q = r.choice(ASK).format(who) + make_it.format(m)
    end = "?" if q.startswith(("Can", "Could")) else r.choice([".", ".", "", "!", " please"])
    return q + end


def request(r, s, full=False):
    """A request for the scene; returns the text and the words that the story has to mention."""
    if not full and r.random() < 0.06:
        return ask_anything(r, s)
    if not full and r.random() < 0.05:
        return ask_little(r, s)
    if r.random() < 0.03:
        return ask_for_list(r, s)
    who, want = say_hero(r, s)
    more, words = "", []
    if s.plot not in OBJECT_PLOTS and (full or r.random() < 0.85):
        more, words = say_thing(r, s)
    elif full or r.random() < 0.8:
        more, words = say_object(r, s)
    elif r.random() < 0.35:             # plots in which the second animal always appears
        s.told.add("friend")
        s.plots = ["steal", "share", "help", "gift"]
        more, words = " and " + article(s.friend), [s.friend]
    else:
        s.plots = OBJECT_PLOTS
    who, want = who + more, want + words
    if full or r.random() < 0.65:
        s.told.add("place")
        who += f" {s.prep} the {s.place}"
        want.append(s.place)
    return ask_for(r, s, who), want


def settle(r, s):
    """Draws what the request has left open, each with a favourite that goes with what it told."""
    if "hero" not in s.told:
        s.hero, s.trait = skewed_for(r, ANIMALS, s.hint), ""
    if "name" not in s.told:
        s.name = skewed_for(
            r, NAMES_F if s.hero in SHE else NAMES_M if s.hero in HE else NAMES, s.hero)
        s.she = s.name in NAMES_F
    if "place" not in s.told:
        s.place, s.prep = skewed_for(r, PLACE_LIST, s.hero)
    if s.plots:
        told = s.obj if "object" in s.told else s.friend if "friend" in s.told else s.hero
        s.plot = skewed_for(r, s.plots, told)
    if "object" not in s.told:
        s.obj, s.look = skewed_for(r, OBJECTS, s.hero), ""
    if "friend" not in s.told:
        s.friend = skewed_for(r, [a for a in ANIMALS if a != s.hero], s.hero)


def make(r, full=False):
    """Scene, request, story, and the words that the story has to mention."""
    s = Scene(r, rare=0.0 if full else 0.12)
    q, want = request(r, s, full)
    settle(r, s)
    return s, q, tell(r, s, short=r.random() < 0.1, skew=True), want


def filler(r):
    """A story for a prompt: nothing in it has to be predicted, so all choices are even."""
    s = Scene(r, rare=0.02)
    if r.random() < 0.3:
        s.mood = r.choice(MOODS)
    return tell(r, s, short=r.random() < 0.3)
