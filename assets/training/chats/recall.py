"""Facts told at the start of a conversation and asked for at its end."""

from __future__ import annotations

import random
from typing import NamedTuple

from assets.training.chats.facts import ANIMALS, CAPITALS, CITIES, FOODS, JOBS, NAMES
from assets.training.chats.grammar import Forms, casual, first_upper, said
from assets.training.documents import Turn
from assets.training.phrases import article
from assets.training.pictures.canvas import COLOURS


class Fact(NamedTuple):
    """What is told, and what is asked later."""

    kind: str
    told: Turn
    asked: Turn


class Kind(NamedTuple):
    """How a fact is told, what is said to that, how it is asked for, and the answer. {x} is the value."""

    told: Forms
    heard: tuple[str, ...]
    asked: Forms
    answer: str


_SOON = "[|By the way, |Just so you know: |For your information: |Hi, |Hello! |One thing: |Remember: |Note: |Please remember: |Don't forget: ]"
_AGAIN = (
    "[|Do you remember |Tell me |Can you tell me |I forgot: |Remind me: |Quick question: |Say, |And |So, |Still know: ]"
)
_OK = ("Okay.", "Okay, I will remember that.", "Got it.", "Thanks for telling me.", "Noted.", "All right.", "I see.")
TOLD: dict[str, Kind] = {
    "name": Kind(
        Forms.of(
            _SOON + "[my name is|I'm|I am|I'm called|I am called|everybody calls me|my first name is|they named me] {x}[.|!|]", "[Call me|People call me|My friends call me|Please call me|You can call me] {x}[.|!|]",
            "[Hello|Hi|Hey], {x} here.", "{x} is my name[.|, nice to meet you.]", "This is {x}[.| speaking.]", "[The name is|Name:|It's me,|Here is] {x}.", "I [am|'m] {x} and I [like talking|am new here|have some questions].",
        ),
        ("Nice to meet you, {x}!", "Hello {x}! How can I help you?", *_OK),
        Forms.of(
            _AGAIN + "[what is my name|what's my name|who am I|what my name is|how am I called|what am I called|which name do I have|what do people call me|the name I told you]?", "[My name|my name]?", "[Do you know|Did you keep|Do you recall|Have you kept] my name?",
            "[Say|Tell me|Repeat|Give me|Type] my name[.|, please.| again.]", "[What|Which] name did I [give you|tell you|say|mention]?", "Under [what|which] name do you know me?", "Who are you talking to?", "What was my name[ again|]?",
        ),
        "Your name is {x}.",
    ),
    "number": Kind(
        Forms.of(
            "[Please remember|Remember|Keep in mind|Don't forget|Note down|Save|Keep|Write down|Memorize|Hold on to] [the number|this number:|my number:|the code|number] {x}[.|, please.|]", _SOON + "[my lucky number is|the secret number is|my number is|the number is|the code is|my room number is|the number I like is] {x}.",
            "{x} is [the number to remember|my lucky number|the secret number|the number].", "I [give|tell] you a number: {x}.", "[Number|The number|A number to remember|For later]: {x}[.|]", "Keep {x} in mind[.| for me.| for later.]",
        ),
        ("Okay, I will remember {x}.", "Got it: {x}.", *_OK),
        Forms.of(
            _AGAIN + "[what is the number|what was the number|which number was it|what number did I tell you|which number did I say|the number I told you|what the number is|what was my number]?", "[number|The number|the number, please|my number]?", "[Do you know|Did you keep|Do you recall] the number?",
            "[Tell me|Give me|Say|Repeat|What about] the number[.| again.| I told you.| from before.]", "[What|Which] number should you [remember|keep|have in mind]?", "[What|Which] number did I [mention|ask you to remember|want you to keep]?", "I need the number [now|again].",
        ),
        "The number is {x}.",
    ),
    "colour": Kind(
        Forms.of(
            _SOON + "[my favorite color is|the color I love most is|the color I like best is|my color is] {x}.", "I [like|love] {x} [most of all colors|more than any other color|best of all colors|best].", "{x} is [my favorite color|the color I like most|the best color for me|my favorite].",
            "[Favorite color|My favorite color]: {x}[.|]", "The [nicest|best|prettiest] color for me is {x}.", "If you ask for my favorite color, it is {x}.",
        ),
        ("{x} is a nice color!", "I like {x} too.", *_OK),
        Forms.of(
            _AGAIN + "[what is my favorite color|which color do I like most|what color do I love|which color is my favorite|what my favorite color is|the color I like best|which color do I like best]?", "[my favorite color|My color|favorite color]?", "[Do you know|Do you recall|Did you keep] my favorite color?",
            "[Name|Tell me|Say] my favorite color[.|, please.]", "[What|Which] color did I [mention|tell you|say]?", "[What|Which] color [would I choose|is the best for me|makes me happy]?",
        ),
        "Your favorite color is {x}.",
    ),
    "pet": Kind(
        Forms.of(
            _SOON + "[I have|we have|I own|at home I have] {k} [called|named|with the name] {x}.", "My {n} is [called|named] {x}.", "I have {k}. [Its name is|It is called|We call it] {x}.", "The name of my {n} is {x}.", "{x} is my {n}.", "My {n}'s name is {x}.",
        ),
        ("{x} is a lovely name for {k}!", "Say hello to {x}!", *_OK),
        Forms.of(
            _AGAIN + "[what is the name of my {n}|what is my {n}'s name|how is my {n} called|what's my {n} called|what my {n} is called|which name does my {n} have]?", "[Do you know|Do you recall] my {n}'s name?", "My {n}'s name?", "[Tell me|Say] the name of my {n}.", "What did we call my {n}?",
        ),
        "Your {n} is called {x}.",
    ),
    "city": Kind(
        Forms.of(
            _SOON + "[I live in|I am from|I'm from|my home is in|my home is|I come from|my home town is|I moved to|I have a flat in|my house is in|my city is] {x}.", "{x} is [my home|where I live|my home town|the city I live in].", "[I am writing from|Greetings from|We live in] {x}.", "[City|Home]: {x}[.|]",
        ),
        ("{x} is a nice place!", "I have heard of {x}.", *_OK),
        Forms.of(
            _AGAIN + "[where do I live|where am I from|which city do I live in|what is my home town|where I live|what is my city|which town is my home|where is my home]?", "[my city|My home|my home town]?", "[Do you know|Do you recall] where I live?", "[Name|Tell me|Say] [my city|the city I live in|my home town][.|, please.]",
            "[What|Which] city did I [mention|tell you|say]?", "Where [is my house|do I have my flat]?", "In [what|which] place do I live?",
        ),
        "You live in {x}.",
    ),
    "food": Kind(
        Forms.of(
            _SOON + "[my favorite food is|I love eating|I like to eat|the food I like most is|for dinner I always want] {x}.", "I like {x} more than any other food.", "{x} is my favorite [food|dish|meal].", "Nothing tastes better than {x}.",
        ),
        ("{x}? That sounds good!", "Yummy!", *_OK),
        Forms.of(
            _AGAIN + "[what is my favorite food|what do I like to eat|which food do I like most|what my favorite food is|what do I love eating]?", "[my favorite food|My favorite dish]?", "[Do you know|Do you recall] what I like to eat?", "[What|Which] food did I [mention|tell you about]?",
        ),
        "Your favorite food is {x}.",
    ),
    "job": Kind(
        Forms.of(
            _SOON + "[I am {k}|I work as {k}|my job is {n}|I'm {k} by trade|I earn my money as {k}|I have worked as {k} for years].", "[Job|My job]: {n}[.|]", "I am {k} and I [like|love] my work.",
        ),
        ("That is an interesting job!", "It must be nice to be {k}.", *_OK),
        Forms.of(
            _AGAIN + "[what is my job|what do I do for a living|what do I work as|what my job is|which job do I have|what is my profession]?", "[my job|My profession]?", "[Do you know|Do you recall] my job?", "[What|Which] job did I [mention|tell you about]?",
        ),
        "You are {k}.",
    ),
}  # fmt: skip
_MORE_NAMES = (
    "Adam", "Aisha", "Albert", "Amy", "Andrew", "Angela", "Arthur", "Ava", "Barbara", "Bella", "Bill", "Bob", "Carol", "Charlie",
    "Claire", "Colin", "Dana", "Diana", "Dylan", "Edward", "Elena", "Elias", "Emily", "Eric", "Eva", "Frank", "Fred", "George",
    "Gina", "Greg", "Harry", "Helen", "Henry", "Holly", "Ian", "Irene", "Isaac", "Jacob", "James", "Jane", "Jason", "Jenny",
    "Joe", "John", "Josh", "Judy", "Kevin", "Kim", "Lara", "Liam", "Lily", "Linda", "Lisa", "Lucas", "Lucy", "Luke", "Marco",
    "Maria", "Mark", "Mary", "Matt", "Maya", "Megan", "Mike", "Milo", "Monica", "Nadia", "Nathan", "Nick", "Oliver", "Omar",
    "Pedro", "Philip", "Quinn", "Rachel", "Ralph", "Rita", "Rob", "Roger", "Ruth", "Ryan", "Sally", "Simon", "Stella", "Steve",
    "Susan", "Sven", "Tara", "Tim", "Toby", "Uma", "Vince", "Wendy", "Will", "Xenia", "Yusuf", "Zack", "Zara",
)  # fmt: skip
_ALL_NAMES = (*NAMES, *_MORE_NAMES)
_MORE_CITIES = (
    "Chicago", "Seattle", "Denver", "Miami", "Houston", "Dallas", "Munich", "Hamburg", "Cologne", "Milan", "Venice", "Naples",
    "Porto", "Seville", "Lyon", "Nice", "Geneva", "Zurich", "Glasgow", "Leeds", "Bristol", "Cork", "Bergen", "Malmo", "Mumbai",
    "Delhi", "Osaka", "Kyoto", "Shanghai", "Sydney", "Perth", "Toronto", "Montreal", "Vancouver", "Lagos", "Cape Town", "Dubai",
)  # fmt: skip
_ALL_CITIES = (*CITIES, *_MORE_CITIES, *(c for c in CAPITALS.values() if "," not in c))


def words_of(rng: random.Random, kind: str) -> dict[str, str]:
    """Random content of a fact: x the value, n a noun and k the noun with its article."""
    if kind in ("pet", "job"):
        noun = rng.choice(ANIMALS if kind == "pet" else JOBS)
        return {"x": rng.choice(_ALL_NAMES), "n": noun, "k": article(noun)}
    if kind == "number":
        return {"x": str(rng.randint(1, 10 ** rng.choice((2, 3, 4, 4)) - 1))}
    options = {"name": _ALL_NAMES, "colour": tuple(COLOURS), "city": _ALL_CITIES, "food": FOODS}
    return {"x": rng.choice(options[kind])}


def fact(rng: random.Random, kind: str | None = None) -> Fact:
    kind = kind or rng.choice(list(TOLD))
    how, words = TOLD[kind], words_of(rng, kind)
    keep = " ".join(words.values())
    told = casual(rng, first_upper(how.told.draw(rng).format(**words)), frozenset(keep.lower().split()))
    asked = said(rng, first_upper(how.asked.draw(rng).format(**words)), keep)
    return Fact(
        kind, Turn(told, first_upper(rng.choice(how.heard).format(**words))), Turn(asked, how.answer.format(**words))
    )


def facts(rng: random.Random, count: int) -> list[Fact]:
    """Facts of different kinds, so that every question has one answer."""
    return [fact(rng, kind) for kind in rng.sample(list(TOLD), count)]
