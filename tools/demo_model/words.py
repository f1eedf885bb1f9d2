"""Single words: spelling, reversing, counting letters, repeating."""
import scenes
import story
from example import NUM_WORDS, number, qa

SORT_WORDS = sorted({*scenes.ANIMALS, *scenes.OBJECTS, *scenes.COLOURS, *scenes.PLACES, *"""
fig plum grape melon onion bean rice soup salt milk
water fire wind rain cloud sun hand foot nose ear eye mouth arm leg head heart green tea sugar
butter iron wood paper glass wool silk bread cheese honey""".split()})
MORE_WORDS = sorted({*scenes.RARE_OBJECTS, *scenes.RARE_HEROES, *scenes.TRAITS, *scenes.LOOKS, *"""
mango kiwi peach apricot papaya coconut zebra yak iguana jaguar quail vulture walrus yellow
violet house mouse hello world good morning evening night thing idea music summer winter spring
autumn sister brother mother father finger table sofa carpet wall floor lemon jam juice pepper
oven engine motor wheel year week month hour minute one two three four five six seven eight nine
ten north south east west Monday Tuesday Friday London Paris Berlin""".split()})


def word(r):
    """Mostly well-known words, sometimes others, sometimes made-up ones."""
    x = r.random()
    if x < 0.8:
        return r.choice(SORT_WORDS)
    return r.choice(MORE_WORDS) if x < 0.95 else story.pseudo(r)


def words_of(r, n):
    xs = set()
    easy = r.random() < 0.6
    while len(xs) < n:
        xs.add(r.choice(SORT_WORDS) if easy else word(r).lower())
    xs = sorted(xs)                         # the order of a set is not the same in every run
    r.shuffle(xs)
    return xs


SPELLABLE = sorted({*SORT_WORDS, *scenes.TRAITS, *scenes.LOOKS, *scenes.RARE_OBJECTS,
                    *scenes.RARE_HEROES, *scenes.NAMES, *"""
house tree hello world morning evening friend
happy water summer winter spring autumn school teacher letter paper window garden story number
answer question sister brother mother father table chair door""".split()})


def a_word(r):
    return story.pseudo(r) if r.random() < 0.25 else r.choice(SPELLABLE)


def spell(r):
    w = a_word(r)
    return qa("spell:" + w,
              r.choice(["Spell the word {}.", "Spell {}.", "How do you spell {}?",
                        "Please spell the word {}.", "Can you spell {}?", "spell \"{}\""]).format(
                  w),
              "-".join(w), weight=1.5)


def reverse(r):
    w = a_word(r)
    q = r.choice(["Reverse the word {}.", "Spell {} backwards.", "Write the word {} backwards.",
                  "What is {} backwards?", "What is {} spelled backwards?", "Reverse {}.",
                  "Say {} backwards.", "reverse \"{}\"", "Spell the word {} backwards.",
                  "Can you reverse the word {}?", "What is the word {} in reverse?"])
    return qa("rev:" + w, q.format(w), f"{'-'.join(w)} backwards is {'-'.join(w[::-1])}.",
              weight=1.5)


def letters(r):
    w = a_word(r)
    x = r.random()
    if x < 0.5:
        return qa("len:" + w,
                  r.choice(["How many letters are in the word {}?",
                            "How many letters does {} have?", "How many letters are in {}?",
                            "How long is the word {}?", "Count the letters in {}."]).format(w),
                  f"{'-'.join(w)}: {len(w)} letters.")
    if x < 0.75:
        return qa("first:" + w,
                  r.choice(["What is the first letter of {}?", "What letter does {} start with?",
                            "Which letter does the word {} begin with?"]).format(w),
                  f"The first letter of {w} is {w[0]}.")
    return qa("last:" + w,
              r.choice(["What is the last letter of {}?", "What letter does {} end with?",
                        "Which letter does the word {} end with?"]).format(w),
              f"The last letter of {w} is {w[-1]}.")


def repeat(r):
    if r.random() < 0.35:
        known = ["hello", "hi", "yes", "no", "ha", "bye"] + SORT_WORDS
        w = r.choice(known) if r.random() < 0.8 else story.pseudo(r)
        n = r.randrange(2, 7)
        k = r.choice([str(n), NUM_WORDS[n]])
        return qa(f"say:{w}:{n}",
                  r.choice([f"Say {w} {k} times.", f"Write {w} {k} times.",
                            f"Repeat the word {w} {k} times.", f"Write the word {w} {k} times."]),
                  ", ".join([w] * n))
    x = r.random()
    if x < 0.4:
        t = " ".join(word(r) for _ in range(r.randrange(1, 8)))
    elif x < 0.6:
        t = " ".join(story.pseudo(r) for _ in range(r.randrange(1, 4)))
    elif x < 0.8:
        t = r.choice(story.filler(r).split(". ")).strip(".\"")
    else:
        t = " ".join(str(number(r, r.choice([1, 2, 3, 4]))) for _ in range(r.randrange(1, 6)))
    return qa("rep:" + t,
              r.choice(["Repeat after me: {}", "Repeat: {}", "Say: {}", "Repeat this: {}",
                        "Copy this: {}", "Please repeat: {}", "Echo: {}"]).format(t),
              t)
