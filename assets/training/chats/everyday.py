"""Small facts of everyday life: tables, and patterns to ask for them."""

from __future__ import annotations

import random

from assets.training.chats.grammar import Forms, said
from assets.training.documents import Turn
from assets.training.phrases import article, first_upper, plural

# Animal: (sound, what it eats, where it lives, legs, young one); an empty word is not asked for.
CREATURES = {
    "dog": ("barks", "meat and dog food", "in a home with people", 4, "puppy"), "cat": ("meows", "meat and fish", "in a home with people", 4, "kitten"),
    "cow": ("moos", "grass", "on a farm", 4, "calf"), "horse": ("neighs", "grass and hay", "in a stable", 4, "foal"), "sheep": ("bleats", "grass", "on a farm", 4, "lamb"),
    "pig": ("oinks", "almost anything", "on a farm", 4, "piglet"), "duck": ("quacks", "plants and small animals", "near water", 2, "duckling"), "hen": ("clucks", "grain and worms", "on a farm", 2, "chick"),
    "lion": ("roars", "meat", "in Africa", 4, "cub"), "wolf": ("howls", "meat", "in the forest", 4, "cub"), "bee": ("buzzes", "nectar and pollen", "in a hive", 6, ""), "frog": ("croaks", "insects", "near ponds", 4, "tadpole"),
    "mouse": ("squeaks", "seeds and grain", "in a hole", 4, ""), "owl": ("hoots", "mice", "in the forest", 2, "owlet"), "snake": ("hisses", "mice and other animals", "on the ground", 0, ""), "lamb": ("bleats", "milk and grass", "on a farm", 4, ""),
    "goat": ("bleats", "grass and leaves", "on a farm", 4, "kid"), "elephant": ("trumpets", "grass and leaves", "in Africa and Asia", 4, "calf"), "rooster": ("crows", "grain", "on a farm", 2, ""), "bird": ("sings", "seeds and insects", "in a nest", 2, "chick"),
    "spider": ("", "insects", "in a web", 8, ""), "ant": ("", "plants and insects", "in an anthill", 6, ""), "fish": ("", "plants and small animals", "in water", 0, ""), "rabbit": ("", "grass and leaves", "in a burrow", 4, "kitten"),
    "giraffe": ("", "leaves", "in Africa", 4, "calf"), "penguin": ("", "fish", "near the South Pole", 2, "chick"), "polar bear": ("growls", "seals", "near the North Pole", 4, "cub"), "camel": ("", "dry plants", "in the desert", 4, "calf"),
    "monkey": ("", "fruit and leaves", "in the jungle", 0, ""), "panda": ("", "bamboo", "in China", 4, "cub"), "kangaroo": ("", "grass", "in Australia", 0, "joey"), "koala": ("", "eucalyptus leaves", "in Australia", 4, "joey"), "whale": ("", "krill and fish", "in the sea", 0, "calf"),
    "shark": ("", "fish and seals", "in the sea", 0, "pup"), "squirrel": ("", "nuts and seeds", "in trees", 4, ""), "tiger": ("roars", "meat", "in Asia", 4, "cub"), "bear": ("growls", "berries, fish and meat", "in the forest", 4, "cub"), "butterfly": ("", "nectar", "in gardens and fields", 6, "caterpillar"),
    "deer": ("", "grass and leaves", "in the forest", 4, "fawn"), "fox": ("", "mice, birds and berries", "in a den", 4, "cub"), "hedgehog": ("", "insects and worms", "in gardens and hedges", 4, ""), "beaver": ("", "bark and leaves", "near rivers", 4, ""),
}  # fmt: skip
COLOURS_OF = {
    "grass": "green", "the sky": "blue", "snow": "white", "coal": "black", "a lemon": "yellow", "a tomato": "red", "chocolate": "brown", "blood": "red", "milk": "white", "the sun": "yellow", "a banana": "yellow", "a carrot": "orange",
    "a strawberry": "red", "a flamingo": "pink", "an elephant": "gray", "a cucumber": "green", "a frog": "green", "a crow": "black", "salt": "white", "gold": "yellow", "a polar bear": "white", "broccoli": "green", "a pumpkin": "orange", "spinach": "green",
    "a canary": "yellow", "a fire truck": "red", "mustard": "yellow", "ketchup": "red", "a lime": "green", "a cherry": "red", "a swan": "white", "an eggplant": "purple", "flour": "white", "cream": "white", "ink": "blue or black", "a zebra": "black and white", "a panda": "black and white",
}  # fmt: skip
USES = {
    "a knife": "cut things", "a pen": "write", "a pencil": "write and draw", "a hammer": "hit nails", "a saw": "cut wood", "scissors": "cut paper", "a spoon": "eat soup", "a fork": "eat food", "a cup": "drink", "a broom": "sweep the floor", "a key": "open a lock", "an umbrella": "stay dry in the rain",
    "a clock": "tell the time", "a lamp": "make light", "a bed": "sleep", "a chair": "sit", "a towel": "dry yourself", "soap": "wash yourself", "a toothbrush": "clean your teeth", "a comb": "tidy your hair", "a needle": "sew", "a shovel": "dig", "a ladder": "climb up", "a phone": "talk to people far away",
    "a camera": "take photos", "an oven": "bake food", "a fridge": "keep food cold", "a kettle": "boil water", "a map": "find the way", "a compass": "find north", "a ruler": "measure and draw straight lines", "a thermometer": "measure temperature", "glasses": "see better", "a rope": "tie and pull things", "a bucket": "carry water", "a brush": "paint or clean", "glue": "stick things together",
    "an eraser": "remove pencil marks", "a telescope": "look at the stars", "a microscope": "look at very small things", "a screwdriver": "turn screws", "a drill": "make holes", "a scale": "weigh things", "a mirror": "see yourself", "a pillow": "rest your head", "a blanket": "keep warm", "a basket": "carry things", "a boat": "travel on water", "a bicycle": "ride", "an iron": "smooth clothes", "a rake": "gather leaves", "a candle": "make light", "a calendar": "look up dates", "a wallet": "carry money", "a helmet": "protect your head", "a stove": "cook food",
}  # fmt: skip
PLACES = {
    "milk": "in the fridge", "butter": "in the fridge", "books": "on a shelf", "clothes": "in a wardrobe", "money": "in a wallet or a bank", "a car": "in a garage", "plates": "in a cupboard", "ice cream": "in the freezer", "knives and forks": "in a drawer", "shoes": "in a shoe rack", "toys": "in a box", "flowers": "in a vase", "trash": "in the trash can", "letters": "in a mailbox", "tools": "in a toolbox", "coats": "on a hook or in a wardrobe", "frozen food": "in the freezer", "a toothbrush": "in the bathroom",
}  # fmt: skip
MATERIALS = {
    "bread": "flour, water, yeast and salt", "cheese": "milk", "butter": "cream", "paper": "wood", "glass": "sand", "wine": "grapes", "chocolate": "cocoa beans", "an omelet": "eggs", "wool": "the hair of sheep", "leather": "animal skin", "a window": "glass", "a book": "paper", "a tire": "rubber", "a coin": "metal", "a nail": "metal", "a candle": "wax", "ice": "frozen water", "ketchup": "tomatoes", "flour": "grain", "jam": "fruit and sugar", "pasta": "flour and water or eggs", "yogurt": "milk",
    "honey": "nectar by bees", "a sweater": "wool or cotton", "a brick": "clay", "steel": "iron and carbon", "a salad": "vegetables", "a pancake": "flour, eggs and milk", "French fries": "potatoes", "tofu": "soybeans", "orange juice": "oranges", "a snowman": "snow",
}  # fmt: skip
JOBS_OF = {
    "teacher": "teaches children", "baker": "bakes bread", "doctor": "helps sick people", "farmer": "grows food and keeps animals", "pilot": "flies planes", "cook": "prepares food", "painter": "paints walls or pictures", "nurse": "cares for sick people", "dentist": "looks after teeth", "tailor": "makes clothes", "carpenter": "builds things of wood", "plumber": "repairs water pipes", "gardener": "looks after gardens", "firefighter": "puts out fires", "police officer": "keeps people safe", "librarian": "looks after books", "singer": "sings songs", "author": "writes books", "judge": "decides in court", "vet": "treats sick animals", "butcher": "sells meat", "waiter": "serves food", "mechanic": "repairs machines", "hairdresser": "cuts hair", "sailor": "works on a ship", "fisherman": "catches fish", "photographer": "takes photos", "actor": "plays roles in films or plays", "astronaut": "travels in space", "miner": "works under the ground",
}  # fmt: skip
# Ordered lists: who comes earlier has more of it.
ORDERS: tuple[tuple[tuple[str, str, str], tuple[str, ...]], ...] = (
    (("bigger", "big", "smaller"), ("the sun", "the earth", "the moon", "a mountain", "a house", "a car", "a dog", "a mouse", "an ant")),
    (("bigger", "big", "smaller"), ("a whale", "an elephant", "a horse", "a sheep", "a cat", "a mouse", "a fly")),
    (("heavier", "heavy", "lighter"), ("a ship", "a truck", "a cow", "a bicycle", "a brick", "an apple", "a feather")),
    (("faster", "fast", "slower"), ("light", "a rocket", "a plane", "a train", "a bicycle", "a turtle", "a snail")),
    (("longer", "long", "shorter"), ("a century", "a year", "a month", "a week", "a day", "an hour", "a minute", "a second")),
    (("hotter", "hot", "colder"), ("the sun", "fire", "boiling water", "a warm bath", "ice")),
    (("taller", "tall", "shorter"), ("a skyscraper", "a giraffe", "a horse", "a dog", "a mouse")),
)  # fmt: skip
# (patterns of the question, answer)
SINGLE: tuple[tuple[Forms, str], ...] = tuple(
    (Forms.of(*asked), answer)
    for *asked, answer in (
        *(
            (f"How many {part} [are in|are there in|does one find in|has] {whole}?", f"How many {part} [does {whole} have|in {whole}]?", f"[Tell me|I forgot|Please say|Remind me] how many {part} [are in {whole}|{whole} has].", f"{whole}: how many {part}?", f"[number of|the number of] {part} in {whole}[?|]", f"{first_upper(whole)} has {value[0]} {part}.".replace("A dozen has 12 things", "A dozen is 12 things"))
            for part, whole, *value in (
                ("days", "a week", "7"), ("months", "a year", "12"), ("days", "a year", "365"), ("minutes", "an hour", "60"), ("seconds", "a minute", "60"), ("hours", "a day", "24"), ("weeks", "a year", "52"), ("years", "a century", "100"), ("years", "a decade", "10"), ("centimeters", "a meter", "100"), ("meters", "a kilometer", "1000"), ("grams", "a kilogram", "1000"), ("cents", "a dollar", "100"),
                ("things", "a dozen", "12"), ("days", "a leap year", "366"), ("letters", "the English alphabet", "26"), ("sides", "a triangle", "3"), ("sides", "a square", "4"), ("corners", "a rectangle", "4"), ("seasons", "a year", "4"), ("wheels", "a bicycle", "2"), ("wheels", "a car", "4"), ("wheels", "a tricycle", "3"), ("sides", "a hexagon", "6"), ("strings", "a violin", "4"), ("strings", "a guitar", "6"), ("players", "a football team", "11"), ("millimeters", "a centimeter", "10"), ("days", "June", "30"), ("days", "January", "31"), ("days", "December", "31"), ("days", "April", "30"), ("fingers", "a hand", "5"), ("toes", "a foot", "5"), ("corners", "a triangle", "3"), ("days", "a weekend", "2"), ("eyes", "a person", "2"), ("ears", "a person", "2"), ("legs", "a person", "2"), ("days", "March", "31"), ("days", "May", "31"), ("days", "July", "31"), ("days", "August", "31"), ("days", "September", "30"), ("days", "October", "31"), ("days", "November", "30"),
            )
        ),
        ("[What|Which] [are|are the names of] the [four |]seasons[ of the year|]?", "[Name|List|Tell me] the [four |]seasons.", "The four seasons are spring, summer, autumn and winter."),
        ("[What|Which] are the [days|seven days] of the week?", "[Name|List|Tell me] the days of the week.", "The days are Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday."),
        ("[What|Which] is the [biggest|largest] planet[ of the sun|]?", "[Name|Tell me] the [biggest|largest] planet.", "The biggest planet of our sun is Jupiter."), ("Which planet is [closest|nearest] to the sun?", "What is the [first|closest|nearest] planet [from|to] the sun?", "Mercury is closest to the sun."),
        ("How many planets [are there|does our sun have|go around the sun]?", "number of planets?", "Eight planets go around our sun."), ("[Which|What] planet do we live on?", "What is the name of our planet?", "On which planet do people live?", "We live on the planet Earth."), ("[Which|What] planet is [called |known as |]the red planet?", "Mars is called the red planet."),
        ("[What|Which] is the [biggest|largest] animal[ on earth| in the world|]?", "[Name|Tell me] the [biggest|largest] animal.", "The biggest animal is the blue whale."), ("[What|Which] is the tallest animal[ on earth|]?", "[Name|Tell me] the tallest animal.", "The tallest animal is the giraffe."), ("[What|Which] is the fastest [land animal|animal on land]?", "The fastest land animal is the cheetah."),
        ("[What|Which] is the [biggest|largest] ocean?", "[Name|Tell me] the [biggest|largest] ocean.", "The biggest ocean is the Pacific."), ("[What|Which] is the highest mountain[ on earth| in the world|]?", "[Name|Tell me] the highest mountain.", "The highest mountain is Mount Everest."),
        ("How many continents are there[ on earth|]?", "number of continents?", "There are seven continents."), ("When does water [freeze|turn to ice]?", "At [what|which] temperature does water freeze?", "Water freezes at 0 degrees Celsius."), ("When does water boil?", "At [what|which] temperature does water boil?", "Water boils at 100 degrees Celsius."),
        ("Where does the sun [rise|come up]?", "In [which|what] direction does the sun rise?", "The sun rises in the east."), ("Where does the sun [set|go down]?", "In [which|what] direction does the sun set?", "The sun sets in the west."), ("What [is|do you call] frozen water?", "What does water become when it freezes?", "Frozen water is ice."),
        ("[What|Which] color do you get [from|when you mix|by mixing] [red and yellow|yellow and red]?", "Red and yellow make orange."), ("[What|Which] color do you get [from|when you mix|by mixing] [blue and yellow|yellow and blue]?", "Blue and yellow make green."), ("[What|Which] color do you get [from|when you mix|by mixing] [red and blue|blue and red]?", "Red and blue make purple."), ("[What|Which] color do you get [from|when you mix|by mixing] [black and white|white and black]?", "Black and white make gray."),
        ("[What do we|What do you|What do people] [hear|listen] with?", "[Which|What] part of the body is for hearing?", "We hear with our ears."), ("[What do we|What do you|What do people] [see|look] with?", "[Which|What] part of the body is for seeing?", "We see with our eyes."), ("[What do we|What do you|What do people] smell with?", "[Which|What] part of the body is for smelling?", "We smell with our nose."), ("[What do we|What do you|What do people] taste with?", "[Which|What] part of the body is for tasting?", "We taste with our tongue."), ("[What|Which part of the body] pumps [the |]blood?", "The heart pumps blood."), ("[What do we|What do people|Which part of the body do we] think with?", "We think with our brain."), ("[What do we|What do people|Which part of the body do we] breathe with?", "We breathe with our lungs."), ("[What do we|What do you] bite and chew with?", "We bite and chew with our teeth."),
        ("[Which|What] season is [the coldest|coldest]?", "Winter is the coldest season."), ("[Which|What] season is [the hottest|hottest|the warmest]?", "Summer is the warmest season."), ("[Which|What] season comes after winter?", "Spring comes after winter."), ("[Which|What] season comes after summer?", "Autumn comes after summer."), ("[Which|What] season comes after spring?", "Summer comes after spring."), ("[Which|What] season comes after autumn?", "Winter comes after autumn."), ("When do leaves fall from [the |]trees?", "In [which|what] season do leaves fall?", "Leaves fall in autumn."), ("[Which|What] month is the shortest?", "What is the shortest month?", "February is the shortest month."), ("[What|Which] is the first month of the year?", "January is the first month of the year."), ("[What|Which] is the last month of the year?", "December is the last month of the year."),
        ("What do bees make?", "Who makes honey?", "Which insect makes honey?", "Bees make honey."), ("Who lays eggs on a farm?", "Where do [chicken |]eggs come from?", "Hens lay eggs."), ("Where does milk come from?", "Which animal gives [us |]milk?", "Most milk comes from cows."), ("Where does wool come from?", "Which animal gives [us |]wool?", "Wool comes from sheep."), ("What do plants need[ to grow|]?", "Plants need light, water and air."), ("What do [people|humans|we] need to live?", "People need air, water, food and sleep."), ("What shines at night?", "What can you see in the sky at night?", "The moon and the stars shine at night."), ("What falls from [the |]clouds?", "Rain and snow fall from clouds."),
    )
)  # fmt: skip
_ASKED = {
    "sound": Forms.of("What [sound|noise] does {x} make?", "What does {x} say?", "How does {x} sound?", "The sound of {x}?", "Which [sound|noise] [comes from|do you hear from] {x}?", "[Tell me|I forgot] [the sound of {x}|what sound {x} makes]."),
    "food": Forms.of("What [does {x} eat|do {xs} eat|do {xs} like to eat|is the food of {x}]?", "[Tell me|I forgot|I'd like to know] what {xs} eat.", "[food of|the food of] {xs}[?|]", "What can I feed {x}?", "On what do {xs} feed?"),
    "home": Forms.of("Where [does {x} live|do {xs} live|do you find {xs}|can I find {x}|is {x} at home]?", "[Tell me|I forgot|I'd like to know] where {xs} live.", "In which place do {xs} live?", "home of {xs}?"),
    "legs": Forms.of("How many legs [does {x} have|do {xs} have|has {x}]?", "[Tell me|I forgot|Say] how many legs {x} has.", "[number of legs of|legs of] {x}[?|]", "{x}: how many legs?"),
    "young": Forms.of("What [is a young {n} called|is a baby {n} called|do you call a young {n}|is the name for a baby {n}|is the young of {x} called]?", "[a baby|a young] {n} is called what?", "[The word|The name] for a young {n}?"),
    "who": Forms.of("[Which|What] animal {s}?", "Who {s}?", "Name an animal that {s}.", "{s}: which animal?"),
    "colour": Forms.of("[What|Which] color [is|has] {x}?", "What is the color of {x}?", "[Tell me|Say|Name|I forgot] the color of {x}.", "[color of|the color of] {x}[?|]", "{x} is [which|what] color?", "[Do you know|Can you tell me] what color {x} is?", "What color do you paint {x}?"),
    "use": Forms.of("What [is|do people use] {x} [used for|for]?".replace("do people use] {x} [used for|for", "do you use] {x} for"), "What do [people|you|we|I] [do with|use] {x}[ for|]?".replace("[do with|use] {x}[ for|]", "[do with {x}|use {x} for]"), "What can I do with {x}?", "[Tell me|Explain|I don't know] what [one does with {x}|{x} [is|are] for].".replace("|{x} [is|are] for", "|to do with {x}"), "[use of|the use of] {x}[?|]", "Why do people have {x}?", "What is the [use|purpose] of {x}?"),
    "tool": Forms.of("[What|Which tool|Which thing] do I [need|use|take] to {s}?", "With what can I {s}?", "[What|Which thing] helps me to {s}?", "I want to {s}. What do I need?", "What is used to {s}?"),
    "place": Forms.of("Where [do you keep|do I put|do people keep|should I keep|does one store|do I find|do you put] {x}?", "[Tell me|I don't know] where to [keep|put] {x}.", "[Where does|In which place does] one keep {x}?", "The right place for {x}?"),
    "material": Forms.of("What is {x} made [of|from|out of]?", "[Of what|From what] is {x} made?", "What do [you|people|we] make {x} [from|of|out of]?", "What do I need to make {x}?", "[Tell me|I forgot] what {x} is made of.", "What is in {x}?"),
    "job": Forms.of("What does {x} do?", "What is the [job|work|task] of {x}?", "[Tell me|Explain|I'd like to know] what {x} does.", "What [do {xs} do|is {x} there for]?", "[job of|work of] {x}[?|]", "What does {x} do all day?"),
    "worker": Forms.of("Who {s}?", "[What|How] do you call [a person|someone|somebody] who {s}?", "[Which|What] job is it when [a person|someone] {s}?", "[A person|Someone] who {s} is called what?", "What is the name of the job of [a person|someone] who {s}?"),
    "order": Forms.of("[What|Which] is {more}, {a} or {b}?", "{a} or {b}: [what|which] is {more}?", "Is {a} {more} than {b}, or {b}?".replace(", or {b}", ""), "[Which of the two|Which one] is {more}: {a} or {b}?", "[Tell me|Say] what is {more}: {a} or {b}.", "What do you think is {more}, {a} or {b}?", "{more}: {a} or {b}?", "Compare {a} and {b}: which is {more}?"),
}  # fmt: skip


def _ask(rng: random.Random, form: str, keep: str, **words: str) -> str:
    return said(rng, first_upper(_ASKED[form].draw(rng).format(**words)), keep)


def _many(name: str) -> str:
    return {"mouse": "mice", "fish": "fish", "sheep": "sheep", "deer": "deer", "wolf": "wolves", "police officer": "police officers",
            "fisherman": "fishermen"}.get(name) or plural(name)  # fmt: skip


def animal_turn(rng: random.Random) -> Turn:
    """Sound, food, home, legs or young of an animal, or the animal of a sound that only it makes."""
    name, (sound, food, home, legs, young) = rng.choice(list(CREATURES.items()))
    known = {"sound": sound, "food": food, "home": home, "legs": legs, "young": young}
    kind = rng.choice([k for k, value in known.items() if value])
    one, words = article(name), {"x": article(name), "xs": _many(name), "n": name}
    if kind == "sound":
        if rng.random() < 0.3 and sum(row[0] == sound for row in CREATURES.values()) == 1:
            return Turn(_ask(rng, "who", sound, s=sound), f"{first_upper(one)} {sound}.")
        return Turn(_ask(rng, kind, name, **words), f"{first_upper(one)} {sound}.")
    answer = {
        "food": f"{first_upper(_many(name))} eat {food}.",
        "home": f"{first_upper(_many(name))} live {home}.",
        "legs": f"{first_upper(one)} has {legs} legs.",
        "young": f"A young {name} is called {article(young)}." if young else "",
    }[kind]
    return Turn(_ask(rng, kind, name, **words), answer)


def order_turn(rng: random.Random) -> Turn:
    """Which of two is bigger, or smaller."""
    (more, _, less), things = rng.choice(ORDERS)
    first, second = sorted(rng.sample(range(len(things)), 2))
    wanted, other, word = (
        (things[first], things[second], more) if rng.random() < 0.5 else (things[second], things[first], less)
    )
    a, b = rng.sample((wanted, other), 2)
    asked = _ask(rng, "order", f"{a} {b} {word}", a=a, b=b, more=word)
    if asked.lower().startswith("is "):
        return Turn(asked, f"{'Yes' if a == wanted else 'No'}, {wanted} is {word} than {other}.")
    return Turn(asked, f"{first_upper(wanted)} is {word} than {other}.")


def table_turn(rng: random.Random) -> Turn:
    """Colour, use, place, material of a thing, or what a job is about; sometimes the other way round."""
    kind = rng.choice(("colour", "use", "place", "material", "job"))
    table = {"colour": COLOURS_OF, "use": USES, "place": PLACES, "material": MATERIALS, "job": JOBS_OF}[kind]
    x, value = rng.choice(list(table.items()))
    back = rng.random() < 0.35
    if kind == "job":
        one = first_upper(article(x))
        asked = _ask(rng, "worker", value, s=value) if back else _ask(rng, kind, x, x=article(x), xs=_many(x))
        return Turn(asked, f"{one} {value}.")
    if kind == "use" and back and list(USES.values()).count(value) == 1:
        return Turn(_ask(rng, "tool", value, s=value), f"You can use {x} to {value}.")
    verb = (
        "are"
        if x
        in (
            "books",
            "clothes",
            "plates",
            "shoes",
            "toys",
            "flowers",
            "letters",
            "tools",
            "coats",
            "knives and forks",
            "French fries",
        )
        else "is"
    )
    answer = {
        "colour": f"{first_upper(x)} {verb} {value}.",
        "use": f"You can use {x} to {value}.",
        "place": f"You keep {x} {value}.",
        "material": f"{first_upper(x)} {verb} made from {value}.",
    }[kind]
    asked = _ask(rng, kind, x, x=x)
    if verb == "are" and kind == "material":
        asked = asked.replace("is French", "are French").replace("fries is", "fries are")
    return Turn(asked, answer)


def everyday_turn(rng: random.Random) -> Turn:
    """One question of everyday knowledge."""
    kind = rng.choices(("single", "animal", "table", "order"), (35, 25, 30, 10))[0]
    if kind == "single":
        forms, answer = rng.choice(SINGLE)
        return Turn(said(rng, first_upper(forms.draw(rng)), answer), answer)
    return {"animal": animal_turn, "table": table_turn, "order": order_turn}[kind](rng)
