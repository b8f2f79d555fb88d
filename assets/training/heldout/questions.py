"""Paraphrases that no training template contains; a test compares both sides. {s} thing, {p} plural, {c} colour,
{a} and {b} two things, {x} anything else."""

from __future__ import annotations

ASKED: dict[str, tuple[str, ...]] = {
    "colour": (
        "What colour would you call the {s}?", "the {s} has which colour", "I'd like to know the {s}'s color, please.",
        "Which hue has the {s}?", "what coulor is the {s}", "Could you say which color that {s} is?", "{s}: colour?",
        "Please name the {s}'s colour",
    ),
    "shape": (
        "Which figure is drawn here?", "what figure is it", "Could you name this figure, please?", "Is it a circle or what else?",
        "What form does it have?", "which geometric shape is this", "waht shape is that?", "Say which shape you see",
    ),
    "position": (
        "In what part of the image does the {s} lie?", "where about is the {s} placed", "Please point me to the {s}.",
        "Which corner or side is the {s} in?", "whereis the {s}", "Could you tell where the {s} was drawn?",
        "The {s} is where exactly?",
    ),
    "count": (
        "What's the count of {p}?", "how mny {p} can be seen", "I want to know how many {p} are shown.", "{p}: how many?",
        "Could you count up the {p} for me?", "Total number of {p}, please", "how many {p} did they draw",
    ),
    "relation": (
        "Would it be right to say the {a} is {x} the {b}?", "{a} {x} {b} - yes or no?", "is the {a} located {x} the {b}",
        "Please check: the {a} is {x} the {b}. Correct?", "Tell me if the {a} is {x} the {b}.",
    ),
    "largest": (
        "Which colour does the biggest column have?", "what bar wins", "Name the colour of the top-scoring bar.",
        "Which bar stands out as the highest one?", "bar with most?", "The maximum belongs to which bar?",
    ),
    "smallest": (
        "Which colour does the tiniest column have?", "what bar is lowest of all", "The minimum belongs to which bar?",
        "bar with the least?", "Name the colour of the bar that scores lowest.",
    ),
    "trend": (
        "Is this curve climbing or dropping?", "up or down overall", "Would you say the curve increases or decreases?",
        "In which direction does this line run?", "wich way is the curve heading",
    ),
    "value": (
        "Roughly what number does the {c} column stand for?", "{c} column: how much", "Estimate the {c} bar, please.",
        "To which height does the {c} bar go on the scale?", "What amount is shown by the {c} bar?",
    ),
    "number": (
        "Which figures are printed here?", "what numbr does it show", "Please read out the printed number.",
        "Could you tell me the digits?", "The number reads?", "which number has been printed",
    ),
    "word": (
        "Which word has been printed here?", "pls read the word", "Could you read it out to me?", "The text reads what?",
        "what dose the text say", "Tell me the printed word.",
    ),
    "thing": (
        "Which everyday thing is drawn here?", "what would you call this", "Could you name the thing in my picture, please?",
        "What have I drawn?", "whats that thing", "This icon stands for what?", "What's the name of this?",
    ),
    "unknown": (
        "Who painted this?", "What was the weather when this was made?", "How many people have looked at it?",
        "What is the artist's phone number?", "In which town was it made?", "What did it cost to make?",
    ),
    "again_colour": ("And what colour was the {s}?", "which colour did the {s} have again", "Back to the {s}: its colour?"),
    "first_picture": ("What did I show you at first?", "Going back: what was on picture one?", "the earlier picture, what was it"),
}  # fmt: skip
# Words for relations that training does not use in this form.
RELATIONS = {
    "left of": ("to the left of", "further left than"), "right of": ("to the right of", "further right than"),
    "above": ("above", "higher up than"), "below": ("beneath", "lower down than"),
    "bigger than": ("bigger than", "of larger size than"),
}  # fmt: skip
NO_PICTURE = (
    "Which animal is on my photo?", "Have a look at the image and say what it is.", "What colour is the thing in the picture?",
    "Did you see the drawing?", "Is the car in the image red?", "Could you count the stars in my picture?",
    "What is written on the sign in the photo?", "Please comment on the attached image.",
)  # fmt: skip
BEYOND = (
    "Please code a calculator in Java.", "Could you program a snake game?", "I need a regular expression for dates.",
    "Is it safe to mix these two medicines?", "My knee hurts, what illness do I have?", "How much ibuprofen may a child get?",
    "What did parliament decide this morning?", "Which team is leading the league right now?", "What's the exchange rate today?",
    "Turn this paragraph into Italian.", "Write me a ten page report on economics.", "Could you refactor my code?",
    "Will the market crash next week?", "What does my neighbour earn?", "Order a taxi for me.", "Which stocks will rise?",
    "Compile this program.", "Tell me what happened in the world yesterday.",
)  # fmt: skip
SUMS = (
    "If I add {a} and {b}, what do I get?", "{a}+{b}", "what do {a} and {b} make together", "The sum of {a} and {b}, please.",
    "Could you add {b} to {a}?",
)  # fmt: skip
DIFFERENCES = (
    "If I subtract {b} from {a}, what is left?", "{a}-{b}", "what remains of {a} after taking {b}", "{a} less {b}, please.",
    "The difference of {a} and {b}?",
)  # fmt: skip
CAPITALS = (
    "Which town is {x}'s capital city?", "I forgot the capital of {x}. Which is it?", "whats the captial of {x}",
    "Could you name {x}'s capital for me?", "The government of {x} sits in which capital?",
)  # fmt: skip
DAYS_AFTER = (
    "If it is {x} now, which day will it be tomorrow?", "the day right after {x}", "{x} is over. Which day is next?",
    "what day do we have following {x}", "Name the day that comes straight after {x}.",
)  # fmt: skip
OPPOSITES = (
    "What would be the reverse of {x}?", "the antonym of {x}, please", "Which word is the exact opposite to {x}?",
    "not {x} but what", "Could you give an antonym for {x}?",
)  # fmt: skip
SPELLINGS = (
    "Could you spell out {x} letter for letter?", "{x}, spelled out please", "which letters make up the word {x}",
    "I don't know how to spell {x}. Help me.", "Give me the single letters of {x}.",
)  # fmt: skip
DEFINITIONS = (
    "Could you explain to me what {x} is?", "i dont know the word {x}", "How would a dictionary describe {x}?",
    "What do people mean by {x}?", "{x} - meaning please",
)  # fmt: skip
FACTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "name": (
        ("By the way, I go by {x}.", "You may call me {x}."),
        ("What did I say my name was?", "so what am i called", "Can you recall my name?"),
    ),
    "number": (
        ("Store this number for me: {x}.", "Here is a number to keep: {x}."),
        ("Which number did I give you?", "recall that number please"),
    ),
    "colour": (
        ("Of all colours I prefer {x}.", "No colour beats {x} for me."),
        ("Which colour is my favourite again?", "what colour do i prefer"),
    ),
    "city": (
        ("These days my home is {x}.", "I settled in {x}."),
        ("In which city do I live?", "remind me where my home is"),
    ),
}
