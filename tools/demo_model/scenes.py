"""What stories are made of: words, sentences with holes, plots, requests.

Every plot is a list of slots, every slot a list of sentences, and the sentences have holes for the
hero (N: name, h: kind, ta: with article and trait), the object (o, O), the place (inP), a second
animal (f, F) and for what is feared or learned (X).
"""

ANIMALS = """fox bear owl rabbit mouse cat dog wolf deer frog duck hen horse goat sheep cow
pig lion tiger monkey elephant turtle snake bird bee ant squirrel hedgehog badger otter
beaver crow swan goose donkey camel panda penguin seal whale crab snail spider bat mole
kitten puppy lamb""".split()
PEOPLE = """girl boy king queen baker sailor farmer teacher robot dragon giant witch knight child
princess prince painter doctor pirate ghost""".split()
SHE = {"girl", "queen", "witch", "princess", "hen", "cow"}
HE = {"boy", "king", "prince", "knight"}
OBJECTS = """lamp key box map book bell ring coin hat coat boot drum flute kite ball cup spoon
clock mirror rope ladder basket blanket lantern candle letter feather shell stone stick apple pear
cake egg seed flower leaf nut star crown sword boat bike wagon umbrella pillow brush pencil button
toy doll chest bottle scarf violin cookie carrot pumpkin acorn pearl compass bucket glove picture
telescope""".split()
PLACES = {
    "forest": "in", "garden": "in", "cave": "in", "castle": "in", "village": "in", "town": "in",
    "city": "in",
    "desert": "in", "valley": "in", "meadow": "in", "field": "in", "park": "in", "jungle": "in",
    "swamp": "in",
    "barn": "in", "mill": "in", "attic": "in", "cellar": "in", "library": "in", "kitchen": "in",
    "tower": "in",
    "house": "in", "shop": "in", "museum": "in", "zoo": "in", "bakery": "in", "harbour": "in",
    "snow": "in",
    "river": "by", "sea": "by", "lake": "by", "pond": "by", "well": "by", "bridge": "by",
    "hill": "on", "beach": "on",
    "mountain": "on", "farm": "on", "island": "on", "ship": "on", "train": "on", "moon": "on",
    "road": "on",
    "market": "at", "school": "at", "station": "at",
}
COLOURS = "red blue green yellow black white brown grey pink purple orange golden silver".split()
LOOKS = "old little shiny small strange wooden broken tiny beautiful dusty heavy magic round".split(
    )
TRAITS = """brave shy clever lazy hungry little old young kind curious proud lonely tired happy
small tiny big sleepy""".split()
NAMES_F = """Mia Anna Lily Rosa Nora Ella Clara Ida Luna Ruby Emma Zoe Alice Maya Olga Tilly Vera
Jane Sue Kate""".split()
NAMES_M = """Tom Max Leo Ben Finn Otto Sam Hugo Paul Felix Oscar Jack Milo Theo Bruno Karl Bob Tim
Noah Adam""".split()
NAMES = NAMES_F + NAMES_M
# Nouns that are seen now and then, so that a scene may hold things outside the lists above.
RARE_HEROES = """unicorn platypus kangaroo giraffe zebra hamster parrot dolphin shark octopus
lizard dinosaur chicken rooster moose raccoon koala llama butterfly ladybug worm fish eagle pigeon
cowboy wizard fairy mermaid alien astronaut gardener cook nurse soldier thief detective driver
fisherman scientist grandmother grandfather man woman baby clown monster snowman""".split()
RARE_OBJECTS = """laptop phone car computer pizza sandwich guitar piano camera radio table chair
window bag purse shoe sock shirt dress necklace diamond potion wand treasure magnet battery hammer
shovel saw nail jar plate fork knife bread cheese honey banana cherry lemon orange tomato potato
mushroom rose tree branch puzzle card ticket newspaper painting statue tent backpack helmet
balloon rocket whistle trumpet sled skateboard jewel""".split()
RARE_NAMES = """Whiskers Fluffy Sarah Peter Susan David Laura Henry Rocky Bella Charlie Daisy
Simba Coco Rex Molly Lucy George Harry Ron Maria Julia Marie Robert John Mary Michael Linda James
Sophie Emily Daniel Anton Greta Hans Ingrid Pierre Carlos Yuki Chen Ali Fatima Omar Lena Nils Pip
Bo Zorro Luigi Rita""".split()
RARE_SHE = set("Sarah Susan Laura Bella Daisy Molly Lucy Maria Julia Marie Mary Linda Sophie Emily "
               "Greta Ingrid Fatima Lena Rita".split())
RARE_PLACES = {"hospital": "in", "restaurant": "in", "office": "in", "cinema": "in",
               "church": "in", "palace": "in", "volcano": "on", "airport": "at", "hotel": "in",
               "palm tree": "under", "oak tree": "under", "tent": "in", "theatre": "in",
               "circus": "at", "factory": "in", "prison": "in", "bus": "on", "roof": "on",
               "street": "on", "basement": "in", "spaceship": "on", "tree house": "in",
               "waterfall": "by", "playground": "on"}

MOODS = "happy sad funny scary calm exciting".split()

OPEN = [
    "Once upon a time there was {ta} called {N}, who lived {inP}.",
    "There once was {ta} named {N}. {He} lived {inP}.",
    "{Inp} lived {ta}. {His} name was {N}.",
    "Long ago, {ta} called {N} lived {inP}.",
    "Once there was {ta} who lived {inP}. Everyone called {him} {N}.",
    "This is the story of {N}, {ta} who lived {inP}.",
    "{N} was {ta}. {He} had a small home {inP}.",
]
MOOD_LINE = {
    "happy": ["The sun was shining, and everyone was in a good mood.",
              "It was the best time of the year.",
              "The birds were singing, and {N} was singing too.",
              "{N} laughed a lot, and so did the neighbours."],
    "sad": ["{N} was often alone, and the days were long and grey.",
            "Rain fell every day, and {N} felt sad.", "{N} missed an old friend very much.",
            "Nobody ever came to visit {N}, and that made {him} sad."],
    "funny": ["{N} always wore two hats, one on top of the other.",
              "{N} liked to walk backwards, because it made the road look new.",
              "{N} talked to soup, but only on Tuesdays.",
              "{N} snored so loudly that the trees shook."],
    "scary": ["At night strange noises came out of the dark.",
              "A cold fog lay over everything, and nobody went out after sunset.",
              "People said that something with yellow eyes was hiding {inP}.",
              "The wind howled, and the shadows were long."],
    "calm": ["It was quiet, and only the wind could be heard.", "The evenings were long and soft.",
             "Nothing was ever in a hurry there.", "The stars were bright and the air was warm."],
    "exciting": ["Something new happened there every day.", "{N} dreamed of great adventures.",
                 "{N} could never sit still.", "{N} was always ready to run, jump and climb."],
}
MOOD_END = {
    "happy": ["Everyone danced until the sun went down.", "{N} was happier than ever before.",
              "They all laughed and lived happily ever after.",
              "It was the happiest day of the year."],
    "sad": ["But {N} still cried a little that night.",
            "{N} looked back once, wiped away a tear and walked home alone.",
            "It was a sad day, and {N} never forgot it.", "The house was very quiet after that."],
    "funny": ["Then {N} slipped on a banana and landed in the soup.",
              "Everyone laughed so hard that a tree fell over.",
              "And the hat? The hat was on {his} foot the whole time.",
              "From then on {N} was known as the silliest {h} in the world."],
    "scary": ["But at midnight the yellow eyes were there again.",
              "Then the light went out, and something laughed in the dark.",
              "{N} locked the door three times and did not sleep at all.",
              "Nobody knows what made the noise. Maybe it is still there."],
    "calm": ["Then {N} closed {his} eyes and slept deeply.", "The moon came up, and all was quiet.",
             "The night was soft, and {N} was at peace.", "And slowly everyone fell asleep."],
    "exciting": ["What an adventure that was!", "{N} could not wait for the next adventure.",
                 "{His} heart was still beating fast when {he} came home.",
                 "And the next morning {N} was ready for more!"],
    "": ["From that day on, {N} was never bored again.", "{N} went home and slept well.",
         "And that was the end of a good day.", "{N} smiled and went to bed.",
         "{N} told this story again and again.", "And so they all lived happily ever after.",
         "It was a day to remember."],
}
WHEN = ["One morning", "One day", "One evening", "One cold morning", "One warm day",
        "Early one morning", "One rainy day", "One night"]

# verb phrases that a request may use -> plot; {o} is the object with its article
VERBS = {
    "find": ["finds {o}", "discovers {o}", "found {o}", "finds {o} by accident"],
    "lose": ["loses {o}", "lost {o}", "cannot find {o}"],
    "want": ["wants {o}", "dreams of {o}", "wishes for {o}", "looks for {o}", "is looking for {o}"],
    "make": ["makes {o}", "builds {o}", "made {o}"],
    "gift": ["gets {o} as a present", "gives away {o}", "gets {o}", "gives {o} to a friend",
             "brings {o} home"],
    "steal": ["steals {o}", "takes {o} without asking", "stole {o}"],
    "share": ["has {o}", "shares {o}", "owns {o}", "and {o}"],
    "fix": ["repairs {o}", "breaks {o}", "fixes {o}"],
    "trade": ["sells {o}", "buys {o}", "trades {o}"],
    "help": ["saves a friend with {o}", "uses {o} to help a friend", "helps a friend with {o}"],
}

PLOTS = {
    "find": [["{When} {N} went for a walk and saw something on the ground.",
              "{When}, while {N} was looking for food, {he} saw something strange.",
              "{When} {N} heard a small sound behind a bush.",
              "{When} {N} fell over something hard."],
             ["It was {o}!", "There, half hidden in the grass, was {o}.",
              "{He} looked closer. It was {o}.", "Under some old leaves {he} found {o}."],
             ["\"Who has lost this?\" {N} asked.", "{N} had never seen such a thing before.",
              "\"How lovely!\" said {N}.", "{He} picked it up and looked at it from all sides."],
             ["{F} came by and said, \"I know what that is. It is very old.\"",
              "{F} came along. \"That is mine,\" {F2} said. \"I lost it last week.\"",
              "{N} showed {O} to {F}, but {F2} did not know what to do with it.",
              "{F} laughed and said, \"Be careful with it!\""],
             ["So {N} took {O} home and put it next to the bed.",
              "{N} gave {O} to {F}, and they became good friends.",
              "Together they hid {O} {inP}, where only they could find it.",
              "{N} cleaned {O} until it looked like new."],],
    "lose": [["{N} had {o}, and {he} loved it more than anything.",
              "{N} never went anywhere without {o}.", "The thing that {N} liked best was {o}."],
             ["But {when} {O} was gone.", "{When} {N} woke up, and {O} was not there.",
              "But {when} {he} could not find {O} anywhere."],
             ["{N} looked under the bed, behind the door and on the roof.",
              "{N} looked everywhere and asked everyone.",
              "{He} turned the whole house upside down."],
             ["\"Have you seen {O}?\" {he} asked {F}.", "{He} ran to {F} and asked for help.",
              "At last {he} met {F}. \"I have lost {O},\" said {N}."],
             ["\"Think,\" said {F2}. \"Where were you yesterday?\"",
              "\"Do not worry,\" said {F2}. \"We will find it together.\"",
              "{F2c} thought for a long time and then pointed up."],
             ["They walked back together, and there it was, right in the middle of the road.",
              "And then they saw it: {O} was hanging in a tree.",
              "In the end {O} was in {his} own bag all the time.",
              "They found {O} at last, a little wet but not broken."],],
    "want": [["{N} had only one wish: {he} wanted {o}.", "More than anything else {N} wanted {o}.",
              "Every night {N} dreamed of {o}."],
             ["But {o} was hard to find.", "But nobody {inP} had one.",
              "\"You do not need that,\" everybody said, but {N} did not listen."],
             ["{When} {he} set out to look for one.", "So {when} {he} packed some bread and left.",
              "So {he} asked everyone {he} met."],
             ["{He} walked for three days and met {f}.",
              "On the way {he} met {f}, who was very old and wise.",
              "After a long time {he} came to the home of {f}."],
             ["\"I can give you {o},\" said {F}, \"if you help me carry some water.\"",
              "\"Tell me a good joke,\" said {F}, \"and you will get what you want.\"",
              "\"Why do you want it?\" asked {F}. {N} thought about it and told the truth."],
             ["{N} did it, and {F} gave {him} {O}.", "And so {N} got {O} at last.",
              "{F2c} smiled and gave {O} to {N}."],],
    "make": [["{When} {N} had an idea. \"I will make {o}!\" {he} said.",
              "{When} {N} wanted to make {o}.",
              "{N} was good with {his} hands, and {when} {he} began to make {o}."],
             ["{He} worked all day and all night.",
              "First {he} made a plan, and then {he} began to work.",
              "It was not easy, and {he} had to start again three times."],
             ["{F} looked on and laughed. \"That will never work!\"",
              "{F} came to help and brought some tea.", "\"What are you doing?\" asked {F}."],
             ["But {N} did not give up.", "\"Wait and see,\" said {N}.",
              "{N} just smiled and went on."],
             ["At last {O} was ready, and it was beautiful.",
              "In the end {O} was a little crooked, but it worked.",
              "When {O} was ready, everyone came to look at it."],
             ["\"You were right,\" said {F2}.", "\"Can you make one for me too?\" asked {F2}.",
              "Even {F2} had to say that it was very good."],],
    "gift": [["It was {his} birthday, and {N} was waiting for {his} presents.",
              "{When} there was a knock at the door.",
              "{When} something was lying in front of the door."],
             ["There was {o}, a present from {F}.", "Then {he} saw {o}. It was a present from {F}.",
              "{He} opened a small parcel. It was {o}, a present from {F}."],
             ["{N} was so happy that {he} jumped up and down.",
              "\"Thank you!\" said {N}. \"It is just what I wanted.\"",
              "{N} did not know what to say."],
             ["{He} took {O} everywhere, even to bed.",
              "{He} put {O} in the best place in the house.", "All day {he} played with {O}."],
             ["The next day {N} met a poor child who had nothing.",
              "Later {N} saw that {F2} was sad, because {F2} had nothing like it.",
              "But then {he} thought of all those who had nothing."],
             ["\"Take it,\" said {N}, and gave {O} away with a smile.",
              "\"It belongs to both of us now,\" said {N}.", "So {N} shared {O} with everyone."],],
    "steal": [["{F} had {o}, and {N} wanted it very much.", "In the house of {F} there was {o}.",
               "{N} could not stop thinking about {o} that belonged to {F}."],
              ["{When}, when nobody was looking, {N} took it.",
               "{When} {he} climbed through the window and took {O}.",
               "So {when} {he} put {O} into a bag and ran away."],
              ["But {O} did not make {him} happy.",
               "At home {he} hid {O} under the bed, but {he} could not sleep.",
               "Every time {he} looked at {O}, {he} felt bad."],
              ["{F} was crying. \"Who took {O}?\"", "The next day {F} asked everybody about {O}.",
               "Outside {he} could hear {F} calling."],
              ["{N} went back and said, \"I am sorry. It was me.\"",
               "At last {N} put {O} back and told the truth.",
               "So {N} took {O} back and said sorry."],
              ["{F} was angry at first, but then {F2} smiled.",
               "\"It is good that you told me,\" said {F2}.",
               "\"Next time, just ask,\" said {F2}."],],
    "share": [["{N} had {o}. It was the finest {on} {inP}.",
               "{N} had {o} and was very proud of it.",
               "{N} had {o} that was older than anyone could remember."],
              ["{When} {F} asked, \"May I have {O} for one day?\"",
               "{When} {F} came by. \"What a fine {on}!\" said {F2}.",
               "{When} {F} saw {O} and wanted to try it."],
              ["\"No,\" said {N}, \"it is mine.\"", "{N} held {O} tight and shook {his} head.",
               "At first {N} did not want to share."],
              ["So {F} went away, and {N} was alone with {O}.",
               "But playing alone with {O} was not much fun.", "But soon {N} was bored."],
              ["\"Come back!\" {he} called. \"We can use it together.\"",
               "The next day {N} went to {F} and said, \"Let us share {O}.\"",
               "Then {N} had a better idea and ran after {F}."],
              ["After that they shared {O}, and it was twice as much fun.",
               "They took turns, and nobody was sad any more.",
               "And so {O} made two friends out of two strangers."],],
    "fix": [["{N} had {o} that was very dear to {him}.", "{N} used {o} every day.",
             "{N} was playing with {o}, as always."],
            ["{When} it fell down and broke.", "{When} there was a loud crack, and {O} was broken.",
             "But {when} it stopped working."],
            ["{N} sat down and cried.", "\"Oh no!\" said {N}.",
             "{N} tried to repair {O}, but it only got worse."],
            ["{F} heard it and came to look.", "Then {F} came along with a bag full of tools.",
             "{He} took {O} to {F}, who could repair anything."],
            ["They worked together for a long time.",
             "\"Hold this,\" said {F2}, and began to work.",
             "{F2c} used a little glue and a lot of patience."],
            ["In the evening {O} was as good as new.",
             "Soon {O} was whole again, and even better than before.",
             "There was still a small crack in {O}, but {N} liked it even more that way."],],
    "trade": [["{N} had {o}, but {he} was hungry and had no bread.",
               "{N} had {o} that {he} did not need any more.",
               "{N} wanted to see the world, so {he} had to sell {o}."],
              ["{When} {he} went to the market with {O}.",
               "{When} {he} stood by the road and showed {O} to everyone.",
               "{When} {he} met {f} and showed {him2} {O}."],
              ["\"I will give you a cow for {O},\" said {F}.",
               "\"I will give you ten coins for {O},\" said {F}.",
               "\"I have no money, but I have a good song,\" said {F}."],
              ["{N} thought about it for a while and said yes.",
               "\"That is a good price,\" said {N}.", "They shook hands on it."],
              ["On the way home {N} was already missing {O}.",
               "{N} walked home with a light heart.",
               "Later {N} heard that {O} was worth much more."],
              ["But a friend is worth more than any {on}, and now {N} had a friend.",
               "\"Well,\" said {N}, \"I am rich enough.\"",
               "The next day {F} came and gave {O} back as a present."],],
    "fear": [["But {N} was afraid of {X}.", "There was only one thing that {N} did not like: {X}.",
              "{N} was brave, but {he} was afraid of {X}.",
              "Nobody knew that {N} was afraid of {X}."],
             ["Because of {X} {he} often stayed at home.",
              "{When} {he} even ran away and hid behind a tree.",
              "Every time {he} thought of {X}, {his} knees began to shake.",
              "{When} {N} told {f} about it."],
             ["\"Are you afraid of {X}?\" asked {F}.",
              "{F} saw it and said, \"I was afraid of {X}, too.\"",
              "{F} came and sat down next to {him}."],
             ["\"Take {o} with you,\" said {F2}. \"It will help.\"",
              "\"I will go with you,\" said {F2}, \"and we take {o} along.\"",
              "{F2c} gave {him} {o}. \"Hold it tight,\" {F2} said."],
             ["{N} took a deep breath and did not run away.",
              "{When} they tried it together, and nothing bad happened.",
              "It was not easy, but {N} stayed."],
             ["After that {N} was not afraid of {X} any more.",
              "{X2} could not stop {him} any more.",
              "\"Is that all?\" said {N}, and laughed about {X}."],],
    "learn": [["{N} wanted to learn to {X}.", "More than anything {N} wanted to {X}.",
               "Everybody could {X}, but {N} could not.", "{N} could not {X} at all."],
              ["\"A {h} does not need that,\" everyone said.",
               "{When} {he} tried it alone and fell into {o2}.",
               "{He} tried it every day, but it did not work."],
              ["{When} {he} met {f}.", "Then {F} came by. \"I can teach you,\" {F2} said.",
               "At last {he} asked {F} for help."],
              ["\"First you must practise with {o},\" said {F2}.",
               "{F2c} brought {o} and showed {him} how to begin.",
               "\"Look at me,\" said {F2}, and put {o} on the ground."],
              ["{N} practised for many days.", "{N} tried again and again, until it was dark.",
               "It took a long time, and {N} often laughed about {himself}."],
              ["In the end {N} could {X} better than anyone else.",
               "And then, all at once, {N} could {X}!",
               "\"You can {X}!\" said {F2}, and {N} was very proud."],],
    "help": [["{N} always carried {o}, although nobody knew why.",
              "{N} had {o}, and everyone laughed about it.",
              "\"What do you need {o} for?\" everyone asked {N}."],
             ["{When} {F} was in great danger.", "{When} {F} fell into a deep hole.",
              "{When} a big storm came, and {F} could not get home."],
             ["\"Help!\" called {F}. \"Please help me!\"",
              "Everyone ran around and did not know what to do.",
              "{F2c} called for help, but nobody was brave enough."],
             ["Only {N} stayed calm. {He} took {O} and ran as fast as {he} could.",
              "\"I am coming!\" said {N}, and took {O}.", "{N} thought of {O}. Now it was needed!"],
             ["With {O} {he} could reach {F} just in time.",
              "Nobody had thought that {O} could save a life, but it did.",
              "{O2} was just the right thing, and {F} was safe."],
             ["\"You saved my life,\" said {F}.", "After that, nobody laughed about {O} any more.",
              "\"I will never forget this,\" said {F2}."],],
}

FEARS = ["the dark", "the water", "thunder", "the big dog", "spiders", "ghosts", "the wind",
         "high places", "the night", "the sea", "fire", "strangers", "snakes", "the moon"]
SKILLS = """swim fly dance sing read write cook paint jump climb run count whistle juggle bake
skate drive fish""".split()
ASK = ["Write a short story about {}", "Write a story about {}", "Tell me a story about {}",
       "Tell me a short story about {}", "Please write a short story about {}",
       "Can you write a story about {}", "Can you tell me a story about {}",
       "I want a story about {}", "Story about {}", "Write me a story about {}",
       "Make up a story about {}", "Give me a short story about {}",
       "I would like to hear a story about {}", "Please tell me a story about {}",
       "Write a little story about {}", "Could you write a short story about {}",
       "A story about {}", "Tell a story about {}", "Write about {}", "Write a long story about {}",
       "Write a nice story about {}", "Tell me a bedtime story about {}",
       "Write a new story about {}", "Create a story about {}", "Generate a short story about {}",
       "Do you know a story about {}", "Let's hear a story about {}", "Write a tale about {}",
       "I'd like a story about {}", "write me a short story about {}"]
ASK_MOOD = ["Write {am} story about {}", "Tell me {am} story about {}",
            "Write a short {m} story about {}", "Please write {am} story about {}",
            "Make up {am} story about {}", "I want {am} story about {}"]
ASK_ANY = ["Tell me a story", "Write a story", "Write a short story", "Tell me a short story",
           "Can you tell me a story", "I want to hear a story", "Please write a story",
           "Tell me another story", "Another story please", "One more story", "Make up a story",
           "Do you know a story", "Story please", "Write something", "Tell me a bedtime story",
           "story", "Once upon a time", "Once upon a time there was",
           "Write a story about two friends", "Tell me a story about friends",
           "Write a story about anything", "Write a long story", "Tell me a nice story", "Again",
           "More stories", "a new story", "Write a story about animals"]
ASK_MOOD_ANY = ["Tell me {am} story", "Write {am} story", "I want {am} story",
                "Do you know {am} story", "Write a short {m} story"]
MOOD_WORDS = {"happy": ["happy", "cheerful", "joyful"], "sad": ["sad", "sad", "gloomy"],
              "funny": ["funny", "silly", "crazy"], "scary": ["scary", "spooky", "creepy", "dark"],
              "calm": ["calm", "quiet", "peaceful", "gentle"],
              "exciting": ["exciting", "adventurous", "thrilling"]}

PLACE_LIST = list(PLACES.items())
PLOT_LIST = list(PLOTS)
OBJECT_PLOTS = [p for p in PLOT_LIST if p not in ("fear", "learn")]
