"""Sorting, counting, and questions about lists."""
import scenes
from example import NUM_WORDS, number, qa
from words import words_of

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def alphabet(r):
    if r.random() < 0.5:
        i = r.randrange(25)
        a, b = ALPHABET[i], ALPHABET[i + 1]
        if r.random() < 0.3:
            a, b = a.lower(), b.lower()
        if r.random() < 0.6:
            q = r.choice(["What letter comes after {}?", "Which letter comes after {}?",
                          "Which letter follows {}?", "What is the letter after {}?",
                          "What is the next letter after {}?"]).format(a)
            return qa("abc:" + q, q, f"{b} comes after {a}.")
        q = r.choice(["What letter comes before {}?", "Which letter comes before {}?",
                      "What is the letter before {}?"]).format(b)
        return qa("abc:" + q, q, f"{a} comes before {b}.")
    xs = r.sample(ALPHABET if r.random() < 0.5 else ALPHABET.lower(), r.randrange(3, 7))
    s = join(r, xs, r.choice([0, 0, 2]))
    if r.random() < 0.6:
        q = r.choice(["Sort these letters: {}", "Sort: {}", "Sort {}",
                      "Put these letters in order: {}", "Sort the letters {}"]).format(s)
        return qa("abcs:" + "".join(sorted(xs)), q, ", ".join(sorted(xs)))
    q = r.choice(["Reverse this list: {}", "Reverse these letters: {}", "Reverse: {}"]).format(s)
    return qa("abcr:" + s, q, ", ".join(xs[::-1]))


def join(r, xs, style=None):
    """Commas, commas and "and", or blanks."""
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


SORT_Q = ["Sort these numbers: {}", "Sort the numbers {}", "Sort: {}", "Sort {}",
          "Please sort these numbers: {}", "Put these numbers in order: {}",
          "Order these numbers: {}", "Sort these numbers from smallest to largest: {}",
          "Sort these: {}", "Can you sort these numbers: {}", "Put in order: {}",
          "Arrange these numbers: {}", "Sort this list: {}",
          "Sort these numbers in ascending order: {}", "Write these numbers in order: {}"]
SORT_DOWN_Q = ["Sort these numbers from largest to smallest: {}",
               "Sort from largest to smallest: {}", "Sort these numbers in descending order: {}",
               "Sort {} from largest to smallest", "Sort these numbers backwards: {}",
               "Put these numbers in order, largest first: {}", "Sort descending: {}"]


def sort_numbers(r, n=None):
    xs = numbers(r, n or r.choice([3, 3, 4, 4, 5, 5, 6, 6, 7, 8]))
    down = r.random() < 0.2
    q = r.choice(SORT_DOWN_Q if down else SORT_Q).format(join(r, [str(x) for x in xs]))
    q += r.choice(["", "", "."])
    ys = sorted(xs, reverse=down)
    return qa("sort:" + ",".join(map(str, sorted(xs))), q, ", ".join(map(str, ys)), weight=1.5)


SORTW_Q = ["Sort these words: {}", "Sort the words {}", "Sort these words alphabetically: {}",
           "Put these words in alphabetical order: {}",
           "Sort these words in alphabetical order: {}", "Sort alphabetically: {}", "Sort: {}",
           "Sort {}", "Please sort these words: {}", "Put these words in order: {}",
           "Can you sort these words: {}", "Sort this list: {}"]


def sort_words(r, n=None):
    if r.random() < 0.12:
        xs = r.sample(scenes.NAMES, n or r.choice([3, 4, 5]))
        q = r.choice(["Sort these names: {}", "Sort: {}", "Put these names in order: {}",
                      "Sort these names alphabetically: {}"])
    else:
        xs = words_of(r, n or r.choice([3, 3, 4, 4, 5, 6]))
        q = r.choice(SORTW_Q)
    return qa("sortw:" + ",".join(sorted(xs)), q.format(join(r, xs)) + r.choice(["", "", "."]),
              ", ".join(sorted(xs)), weight=1.5)


def extreme(r):
    """The largest or smallest of some numbers."""
    xs = numbers(r, r.choice([3, 3, 4, 5, 6]))
    up = r.random() < 0.5
    w = r.choice(["largest", "biggest", "highest"] if up else ["smallest", "lowest"])
    q = r.choice(["What is the {w} of these numbers: {}", "What is the {w} number: {}",
                  "Which is the {w} number: {}", "Which number is the {w}: {}",
                  "Find the {w} number: {}", "What is the {w} of {}"]).format(
        join(r, [str(x) for x in xs]), w=w)
    return qa("ext:" + ",".join(map(str, sorted(xs))), q + r.choice(["?", "", "?"]),
              f"The {'largest' if up else 'smallest'} number is {max(xs) if up else min(xs)}.",
              weight=1.5)


def list_task(r):
    """Reverse or count a list, or name its first or last entry."""
    words = r.random() < 0.6
    n = r.choice([3, 4, 5, 6])
    xs = words_of(r, n) if words else [str(x) for x in numbers(r, n)]
    what = "words" if words else "numbers"
    one = what[:-1]
    s = join(r, xs, 0)
    k = "list:" + s
    x = r.random()
    if x < 0.3:
        return qa(k,
                  r.choice([f"Reverse this list: {s}", f"Reverse these {what}: {s}",
                            f"Write these {what} in reverse order: {s}"]),
                  ", ".join(xs[::-1]))
    if x < 0.5:
        return qa(k,
                  r.choice([f"How many {what} are in this list: {s}?", f"How many {what}: {s}",
                            f"Count these {what}: {s}"]),
                  f"There are {len(xs)} {what}.")
    if x < 0.75:
        return qa(k,
                  r.choice([f"What is the last {one} in this list: {s}?",
                            f"What is the last {one}: {s}",
                            f"Give me the last {one} of this list: {s}"]),
                  f"The last {one} is {xs[-1]}.")
    return qa(k,
              r.choice([f"What is the first {one} in this list: {s}?",
                        f"What is the first {one}: {s}",
                        f"Give me the first {one} of this list: {s}"]),
              f"The first {one} is {xs[0]}.")


def count(r):
    """Count up, down, in steps, or by one."""
    x = r.random()
    if x < 0.45:
        a = r.choice([1, 1, 1, r.randrange(2, 10), r.randrange(0, 90)])
        b = a + (r.randrange(2, 16) if a > 1 or r.random() < 0.7 else r.randrange(16, 50))
        nb = NUM_WORDS[b] if b < 21 and r.random() < 0.4 else b
        q = r.choice(["Count from {a} to {b}.", "Count from {a} to {b}",
                      "Please count from {a} to {b}."]
                     + (["Count to {b}.", "Can you count to {b}?"] if a == 1 else [])).format(
            a=a, b=nb)
        return qa(f"count:{a}:{b}", q, ", ".join(str(i) for i in range(a, b + 1)))
    if x < 0.65:
        a = r.randrange(3, 60)
        b = max(0, a - r.randrange(3, 13)) if a > 12 else r.choice([0, 1])
        if a > 12 or r.random() < 0.5:
            q = r.choice(["Count down from {a} to {b}.", "Count backwards from {a} to {b}."])
        else:
            q = r.choice(["Count down from {a}.", "Count backwards from {a}."])
        if "to" not in q:
            b = 1
        return qa(f"down:{a}:{b}", q.format(a=a, b=b),
                  ", ".join(str(i) for i in range(a, b - 1, -1)))
    if x < 0.8:
        s = r.choice([2, 2, 3, 5, 10])
        n = r.randrange(4, 11)
        w = {2: ["twos", "2"], 3: ["threes", "3"], 5: ["fives", "5"], 10: ["tens", "10"]}[s]
        return qa(f"step:{s}:{n}", f"Count by {r.choice(w)} to {s * n}.",
                  ", ".join(str(i * s) for i in range(1, n + 1)))
    a = number(r, r.choice([1, 2, 2, 3]))
    if r.random() < 0.6:
        return qa(f"next:{a}",
                  r.choice(["What number comes after {a}?", "Which number comes after {a}?",
                            "What comes after {a}?", "What is the next number after {a}?"]).format(
                      a=a),
                  f"{a + 1} comes after {a}.")
    return qa(f"prev:{a}",
              r.choice(["What number comes before {a}?", "Which number comes before {a}?",
                        "What comes before {a}?"]).format(a=a + 1),
              f"{a} comes before {a + 1}.")
