"""How facts about the user are told, heard and asked for."""

from __future__ import annotations

from typing import NamedTuple

from assets.training.chats.grammar import Forms


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
            _SOON + "[my favorite food is|I love eating|I like to eat|the food I like most is|for dinner I always want] {x}.", "I like {x} more than any other food.", "My favorite [dish|meal|thing to eat] is {x}.", "Nothing tastes better than {x}.",
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
    "month": Kind(
        Forms.of(
            _SOON + "[my birthday is in|I was born in|I have my birthday in|my birthday month is|I celebrate my birthday in] {x}.", "{x} is [my birthday month|the month of my birthday].", "[Birthday|My birthday]: {x}[.|]",
        ),
        ("{x} is a good month!", *_OK),
        Forms.of(
            _AGAIN + "[when is my birthday|in which month is my birthday|what month is my birthday in|in which month was I born|what is my birthday month|when my birthday is]?", "[my birthday|My birthday month]?", "[Do you know|Do you recall] [when I was born|my birthday|when my birthday is]?", "[Tell me|Say|Name] the month of my birthday.", "Which month did I [tell you|mention]?",
        ),
        "Your birthday is in {x}.",
    ),
    "age": Kind(
        Forms.of(
            _SOON + "[I am|I'm|I just turned|I turned] {x}[| years old|, and I feel fine].", _SOON + "my age is {x}.", "[I have|I've] been {x} years old since spring.", "[Age|My age]: {x}[.|]", "{x} is my age.",
        ),
        ("{x} is a fine age!", *_OK),
        Forms.of(
            _AGAIN + "[how old am I|what is my age|how many years old am I|how old I am|what age am I]?", "[my age|My age]?", "[Do you know|Do you recall] [my age|how old I am]?", "[Tell me|Say] my age[.|, please.]", "What did I [tell you about|say about] my age?",
        ),
        "You are {x} years old.",
    ),
    "hobby": Kind(
        Forms.of(
            _SOON + "[my hobby is|I love|I enjoy|in my free time I like|on weekends I like|my favorite hobby is|after work I enjoy] {x}.", "{x} is [my hobby|what I do in my free time|my favorite hobby].", "[Hobby|My hobby]: {x}[.|]",
        ),
        ("{x} sounds like fun!", *_OK),
        Forms.of(
            _AGAIN + "[what is my hobby|which hobby do I have|what do I do in my free time|what my hobby is|what do I enjoy in my free time]?", "[my hobby|My hobby]?", "[Do you know|Do you recall] my hobby?", "[Tell me|Name|Say] my hobby[.|, please.]", "[What|Which] hobby did I [mention|tell you about]?",
        ),
        "Your hobby is {x}.",
    ),
    "friend": Kind(
        Forms.of(
            _SOON + "my {n} [is called|is named] {x}.", _SOON + "[my {n}'s name is|the name of my {n} is] {x}.", "I have a {n} [called|named] {x}.", "{x} is my {n}[.|'s name.]", "My {n} {x} [is very kind|visits me today|says hello].",
        ),
        ("{x} is a nice name!", "Say hello to {x}!", *_OK),
        Forms.of(
            _AGAIN + "[what is the name of my {n}|what is my {n}'s name|what is my {n} called|how is my {n} called|who is my {n}|which name has my {n}]?", "My {n}'s name?", "[Do you know|Do you recall] my {n}'s name?", "[Tell me|Say] the name of my {n}[.|, please.]", "What did I say my {n} is called?",
        ),
        "Your {n} is called {x}.",
    ),
    "keys": Kind(
        Forms.of(
            _SOON + "[the {n} is|my {n} is|I put the {n}|I left my {n}|I keep my {n}|you find the {n}] {x}.", "My {n} is [lying |]{x}.", "If I look for my {n}: it is {x}.",
        ),
        (*_OK, "Good to know!", "I will remember where it is."),
        Forms.of(
            _AGAIN + "[where is my {n}|where is the {n}|where did I put my {n}|where did I leave the {n}|where my {n} is|where can I find my {n}]?", "[My {n}|Where's my {n}|The {n}]?", "[Do you know|Do you recall] where [my|the] {n} is?", "[Tell me|Say] where [my|the] {n} is[.|, please.]", "I can't find my {n}. Where is it?",
        ),
        "Your {n} is {x}.",
    ),
    "word": Kind(
        Forms.of(
            "[Please remember|Remember|Keep in mind|Don't forget|Note down|Memorize] the [code word|secret word|word|password|magic word] {x}[.|, please.|]", _SOON + "the [code word|secret word|password|magic word] is {x}.", "{x} is the [code word|secret word|password|magic word].", "[Code word|Secret word|Password]: {x}[.|]",
        ),
        ("Okay, I will remember {x}.", "Got it: {x}.", *_OK),
        Forms.of(
            _AGAIN + "[what is the code word|what was the secret word|what is the password|which word did I tell you|what was the magic word|which word should you remember|the secret word]?", "[code word|The secret word|password]?", "[Do you know|Do you recall|Did you keep] the [secret word|code word|word]?", "[Tell me|Say|Repeat] the [secret word|code word|password][.|, please.]", "[What|Which] word did I [mention|ask you to remember]?",
        ),
        "The word is {x}.",
    ),
    "day": Kind(
        Forms.of(
            _SOON + "[my {n} is on|I have my {n} on|the {n} is on|on my calendar the {n} is on] {x}.", "On {x} I have my {n}.", "{x} is the day of my {n}.", "My {n} was moved to {x}.",
        ),
        ("All right, on {x}.", *_OK),
        Forms.of(
            _AGAIN + "[when is my {n}|on which day is my {n}|what day is my {n}|which day is my {n} on|when my {n} is]?", "My {n} is when?", "[Do you know|Do you recall] [when my {n} is|the day of my {n}]?", "[Tell me|Say] the day of my {n}[.|, please.]", "[What|Which] day did I [say|tell you] for my {n}?",
        ),
        "Your {n} is on {x}.",
    ),
}  # fmt: skip
# The fact in plain words, for corrections and for several facts in one message.
PLAIN = {
    "name": "my name is {x}", "number": "the number is {x}", "colour": "my favorite color is {x}", "pet": "my {n} is called {x}", "city": "I live in {x}", "food": "my favorite food is {x}", "job": "I work as {k}", "month": "my birthday is in {x}", "age": "I am {x} years old", "hobby": "my hobby is {x}",
    "friend": "my {n} is called {x}", "keys": "my {n} is {x}", "word": "the secret word is {x}", "day": "my {n} is on {x}",
}  # fmt: skip
CORRECTED = Forms.of(
    "[No, sorry,|Wait, that was wrong:|I made a mistake:|Correction:|Actually,|Oh no, I meant:|Sorry, that was not right:|I was wrong, in fact|Let me correct that:|Oops,|Forget that:|No,] {plain}[.|!|]",
    "[No|Sorry|Wait|Oh|Oops], it is [actually|in fact|really] {x}, not {old}.", "[I meant|I mean] {x}, not {old}.", "Not {old}, {x}[!|.| I mean.]", "It's not {old} but {x}.",
)  # fmt: skip
HEARD_CORRECTION = (
    "Okay, I have changed that.",
    "Thanks, I will remember {x} instead.",
    "All right: {x}.",
    "No problem, now I know.",
)
AROUND = (
    "It is a nice day.", "I slept well.", "I just had breakfast.", "The bus was late again.", "My coffee is still warm.", "I have a lot to do.", "This is my first time here.", "I am in a good mood.", "It was a long week.", "The window is open.", "I like quiet mornings.", "I hope you are well.", "My neighbor sings a lot.", "We watched a film last night.", "I need a short break.", "There was a rainbow.",
)  # fmt: skip
UNTOLD = {
    "name": "your name", "number": "the number", "colour": "your favorite color", "city": "where you live", "food": "your favorite food", "job": "your job", "month": "when your birthday is", "age": "your age", "hobby": "your hobby", "word": "the word",
}  # fmt: skip
