"""What a child knows: opposites, plurals, days, animals, things.

The content has to be taught, so only the pair of content and wording is held out.
"""
import scenes
import story
from example import Example, qa

OPPOSITES = """big-small hot-cold up-down left-right day-night black-white young-old happy-sad
fast-slow open-closed light-dark good-bad long-short high-low full-empty hard-soft wet-dry
early-late loud-quiet rich-poor strong-weak thick-thin wide-narrow easy-difficult near-far new-old
first-last inside-outside yes-no true-false start-end begin-end summer-winter north-south
east-west love-hate win-lose give-take come-go clean-dirty sweet-sour brave-afraid clever-stupid
heavy-light alive-dead always-never before-after above-below over-under push-pull buy-sell
laugh-cry question-answer friend-enemy morning-evening deep-shallow right-wrong smooth-rough
sharp-blunt warm-cool tall-short large-small more-less many-few here-there everything-nothing
everybody-nobody sunrise-sunset asleep-awake cheap-expensive safe-dangerous strange-normal
kind-cruel noisy-quiet beautiful-ugly""".split()
OPP = {}
for _p in OPPOSITES:
    _a, _b = _p.split("-")
    OPP.setdefault(_a, _b)
for _p in OPPOSITES:
    _a, _b = _p.split("-")
    OPP.setdefault(_b, _a)
PLURALS = dict(mouse="mice", goose="geese", child="children", sheep="sheep", wolf="wolves",
               fish="fish", foot="feet", tooth="teeth", man="men", woman="women", knife="knives",
               leaf="leaves", box="boxes", fox="foxes", baby="babies", city="cities",
               story="stories", glass="glasses", deer="deer", witch="witches", cherry="cherries",
               house="houses", puppy="puppies", ox="oxen", bus="buses", potato="potatoes",
               tomato="tomatoes")
for _w in """cat dog bear owl rabbit frog duck hen horse goat cow pig lamp key map
book bell ring coin hat coat boot drum flute ball cup spoon clock apple pear cake
egg seed flower star king queen tree bird chair window""".split():
    PLURALS[_w] = _w + "s"
SOUNDS = dict(cow="moo", dog="woof", cat="meow", sheep="baa", duck="quack", pig="oink",
              horse="neigh", frog="croak", owl="hoot", bee="buzz", lion="roar", mouse="squeak",
              snake="hiss", hen="cluck", bird="tweet", crow="caw", goat="maa", donkey="hee-haw",
              wolf="howl", rooster="cock-a-doodle-doo", goose="honk")
BABIES = dict(dog="puppy", cat="kitten", cow="calf", sheep="lamb", horse="foal", hen="chick",
              duck="duckling", goose="gosling", pig="piglet", goat="kid", lion="cub", bear="cub",
              deer="fawn", swan="cygnet", frog="tadpole")
COLOUR_OF = dict(grass="green", snow="white", blood="red", coal="black", milk="white",
                 chocolate="brown", gold="golden")
COLOUR_OF.update({"the sky": "blue", "a banana": "yellow", "a lemon": "yellow",
                  "a carrot": "orange", "an elephant": "grey", "a frog": "green", "a crow": "black",
                  "a swan": "white", "the sun": "yellow", "a tomato": "red",
                  "a cherry": "red", "a leaf": "green", "an orange": "orange", "the night": "black",
                  "a pumpkin": "orange", "a polar bear": "white", "a fox": "red", "a mouse": "grey",
                  "the sea": "blue", "a strawberry": "red", "a flamingo": "pink"})
LEGS = {0: "snake fish whale snail worm seal dolphin shark",
        2: "bird duck hen owl crow swan goose penguin rooster eagle girl boy",
        6: "bee ant butterfly ladybug fly", 8: "spider crab octopus"}
LEGS_OF = {a: n for n, s in LEGS.items() for a in s.split()}
for _a in """fox bear rabbit mouse cat dog wolf deer frog horse goat sheep cow pig
lion tiger elephant turtle squirrel hedgehog badger otter beaver donkey camel panda
mole kitten puppy lamb""".split():
    LEGS_OF[_a] = 4
FOOD = dict(rabbit="carrots", mouse="cheese", cow="grass", squirrel="nuts", bear="honey",
            panda="bamboo", monkey="bananas", horse="hay", sheep="grass", penguin="fish",
            seal="fish", lion="meat", frog="flies", bird="seeds", owl="mice", goat="grass",
            dog="meat", cat="fish", hedgehog="snails", otter="fish", duck="seeds")
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = """January February March April May June July August September October November
December""".split()
MDAYS = dict(zip(MONTHS, [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]))
ORD = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()
MADE_OF = {"a table": "wood", "a window": "glass", "a book": "paper", "a key": "metal",
           "a boot": "leather", "a scarf": "wool", "a candle": "wax", "a ring": "gold",
           "a snowman": "snow", "bread": "flour", "cheese": "milk", "a door": "wood",
           "a coin": "metal", "a bottle": "glass", "ice": "water", "a rope": "hemp",
           "a pencil": "wood"}
USED_FOR = {"a lamp": "giving light", "a key": "opening a lock", "a map": "finding the way",
            "a bell": "ringing", "a clock": "telling the time", "a spoon": "eating soup",
            "a ladder": "climbing up", "a rope": "tying things",
            "an umbrella": "staying dry in the rain",
            "a pillow": "sleeping", "a brush": "cleaning", "a pencil": "writing",
            "a compass": "finding north", "a telescope": "looking at the stars",
            "a boat": "crossing water", "a basket": "carrying things", "a blanket": "keeping warm",
            "a cup": "drinking", "a mirror": "looking at yourself",
            "a kite": "flying in the wind", "a drum": "making music", "a flute": "making music",
            "a hammer": "hitting nails", "a knife": "cutting", "a saw": "cutting wood",
            "a bike": "riding", "a bucket": "carrying water"}
FACTS = [("How many days are in a week?|How many days does a week have?|"
          "How many days are there in a week?",
          "A week has 7 days."),
         ("How many months are in a year?|How many months does a year have?|"
          "How many months are there in a year?",
          "A year has 12 months."),
         ("How many hours are in a day?|How many hours does a day have?", "A day has 24 hours."),
         ("How many minutes are in an hour?|How many minutes does an hour have?",
          "An hour has 60 minutes."),
         ("How many seconds are in a minute?|How many seconds does a minute have?",
          "A minute has 60 seconds."),
         ("How many days are in a year?|How many days does a year have?", "A year has 365 days."),
         ("How many seasons are there?|What are the seasons?|Name the seasons.|"
          "What are the four seasons?",
          "There are four seasons: spring, summer, autumn and winter."),
         ("What are the days of the week?|Name the days of the week.|List the days of the week.",
          "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday"),
         ("What are the months?|Name the months.|List the months of the year.|"
          "What are the months of the year?",
          ", ".join(MONTHS)),
         ("What is the alphabet?|Say the alphabet.|Write the alphabet.|Recite the alphabet.|"
          "alphabet",
          "a b c d e f g h i j k l m n o p q r s t u v w x y z"),
         ("What are the vowels?|Name the vowels.", "The vowels are a, e, i, o and u."),
         ("What is ice?|What is ice made of?", "Ice is frozen water."),
         ("When does the sun rise?|Where does the sun rise?",
          "The sun rises in the east in the morning."),
         ("Where does the sun set?|When does the sun set?",
          "The sun sets in the west in the evening."),
         ("How many legs does a chair have?", "A chair has 4 legs."),
         ("How many wheels does a bike have?", "A bike has 2 wheels."),
         ("How many wheels does a car have?", "A car has 4 wheels."),
         ("How many sides does a triangle have?|How many corners does a triangle have?",
          "A triangle has 3 sides."),
         ("How many sides does a square have?", "A square has 4 sides."),
         ("What do you drink when you are thirsty?", "Water is good when you are thirsty."),
         ("How many letters are in the alphabet?|How many letters does the alphabet have?",
          "The alphabet has 26 letters."),
         ("Which animal is the largest?|What is the largest animal?|What is the biggest animal?",
          "The whale is the largest animal."),
         ("What colours does a rainbow have?|What are the colours of the rainbow?|"
          "Name the colours of the rainbow.",
          "Red, orange, yellow, green, blue and purple."),
         ("How many fingers does a hand have?", "A hand has 5 fingers."),
         ("What do bees make?", "Bees make honey."), ("What do hens lay?", "Hens lay eggs."),
         ("Where do fish live?", "Fish live in water."),
         ("What is the moon?", "The moon goes around the earth."),
         ("What is the sun?", "The sun is a star."),]


def opposite(r):
    """Both directions of every pair are taught."""
    w = r.choice(list(OPP))
    q = r.choice(["What is the opposite of {}?", "Opposite of {}?", "opposite of {}",
                  "What's the opposite of {}?", "Tell me the opposite of {}.",
                  "Give me the opposite of {}.", "What is the opposite of the word {}?",
                  "Name the opposite of {}."])
    return qa(f"opp:{w}:{q}", q.format(w), f"The opposite of {w} is {OPP[w]}.")


def plural(r):
    w = r.choice(list(PLURALS))
    q = r.choice(["What is the plural of {}?", "Plural of {}?", "plural of {}", "One {o}, two ...?",
                  "What's the plural of {}?", "Tell me the plural of {}."])
    return qa(f"plu:{w}:{q}", q.format(w, o=w), f"One {w}, two {PLURALS[w]}.")


def days(r):
    x = r.random()
    names, what = (DAYS, "day") if r.random() < 0.6 else (MONTHS, "month")
    i = r.randrange(len(names))
    d = names[i]
    if x < 0.5:
        q = r.choice([f"What {what} comes after {d}?", f"What {what} follows {d}?",
                      f"Which {what} comes after {d}?", f"Which {what} follows {d}?",
                      f"What comes after {d}?", f"What is the {what} after {d}?",
                      f"Which {what} is after {d}?", f"Next {what} after {d}?"])
        n = names[(i + 1) % len(names)]
        return qa("days:" + q, q, f"{n} comes after {d}.")
    if x < 0.8:
        q = r.choice([f"What {what} comes before {d}?", f"Which {what} comes before {d}?",
                      f"What comes before {d}?", f"What is the {what} before {d}?",
                      f"Which {what} is before {d}?"])
        n = names[i - 1]
        return qa("days:" + q, q, f"{n} comes before {d}.")
    if names is DAYS:
        q = r.choice([f"Today is {d}. What day is tomorrow?",
                      f"If today is {d}, what day is tomorrow?",
                      f"Today is {d}. What day was yesterday?",
                      f"If today is {d}, what day was yesterday?"])
        a = (f"Yesterday was {DAYS[i - 1]}." if "yesterday" in q
             else f"Tomorrow is {DAYS[(i + 1) % 7]}.")
        return qa("days:" + q, q, a)
    if r.random() < 0.5:
        q = r.choice([f"What is the {ORD[i]} month?", f"Which month is the {ORD[i]}?",
                      f"What is the {ORD[i]} month of the year?", f"Name the {ORD[i]} month."])
        return qa("days:" + q, q, f"The {ORD[i]} month is {d}.")
    q = r.choice([f"How many days does {d} have?", f"How many days are in {d}?",
                  f"How many days are there in {d}?"])
    return qa("days:" + q, q, f"{d} has {MDAYS[d]} days.")


def animal_fact(r):
    x = r.random()
    if x < 0.2:
        w = r.choice(list(SOUNDS))
        q = r.choice(["What does {} say?", "What sound does {} make?", "Which sound does {} make?",
                      "What noise does {} make?"]).format(story.article(w))
        return qa("fact:" + q, q, f"{story.cap(story.article(w))} says {SOUNDS[w]}.")
    if x < 0.35:
        w = r.choice(list(BABIES))
        q = r.choice(["What is a baby {} called?", "What do you call a baby {}?",
                      "What is a young {} called?", "Name for a baby {}?"]).format(w)
        return qa("fact:" + q, q, f"A baby {w} is called {story.article(BABIES[w])}.")
    if x < 0.55:
        w = r.choice(list(LEGS_OF))
        q = r.choice(["How many legs does {} have?", "How many legs has {}?",
                      "How many legs are on {}?"]).format(story.article(w))
        return qa("fact:" + q, q, f"{story.cap(story.article(w))} has {LEGS_OF[w] or 'no'} legs.")
    if x < 0.7:
        w = r.choice(list(FOOD))
        q = r.choice(["What does {} eat?", "What does {} like to eat?",
                      "What food does {} like?"]).format(story.article(w))
        return qa("fact:" + q, q, f"{story.cap(story.article(w))} likes to eat {FOOD[w]}.")
    living = r.random() < 0.5
    w = r.choice(scenes.ANIMALS) if living else r.choice(scenes.OBJECTS)
    t = story.article(w)
    q = r.choice(["Is {} an animal?", "Is {} an animal or a thing?", "Is {} a thing?",
                  "Is {} alive?"])
    a = {"Is {} an animal?": f"Yes, {t} is an animal." if living else f"No, {t} is a thing.",
         "Is {} an animal or a thing?": f"{story.cap(t)} is "
                                        f"{'an animal' if living else 'a thing'}.",
         "Is {} a thing?": f"No, {t} is an animal." if living else f"Yes, {t} is a thing.",
         "Is {} alive?": f"Yes, {t} is an animal." if living else f"No, {t} is a thing."}[q]
    return qa("fact:" + q.format(t), q.format(t), a)


def fact(r):
    x = r.random()
    if x < 0.25:
        w = r.choice(list(COLOUR_OF))
        q = r.choice(["What colour is {}?", "What color is {}?", "Which colour is {}?",
                      "Which color has {}?", "Tell me the colour of {}."]).format(w)
        return qa("fact:" + q, q, f"{story.cap(w)} is {COLOUR_OF[w]}.")
    if x < 0.4:
        w = r.choice(list(MADE_OF))
        q = r.choice(["What is {} made of?", "What is {} made from?",
                      "Tell me what {} is made of."]).format(w)
        return qa("fact:" + q, q, f"{story.cap(w)} is made of {MADE_OF[w]}.")
    if x < 0.55:
        w = r.choice(list(USED_FOR))
        q = r.choice(["What is {} for?", "What is {} used for?", "What do you do with {}?",
                      "What can you do with {}?", "Why do people use {}?"]).format(w)
        return qa("fact:" + q, q, f"{story.cap(w)} is for {USED_FOR[w]}.")
    qs, a = r.choice(FACTS)
    q = r.choice(qs.split("|"))
    return Example("", [("user", q), ("model", a)])
