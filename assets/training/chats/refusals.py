"""What a very small model cannot do or know: hundreds of requests per kind, each with the refusals that fit."""

from __future__ import annotations

from typing import NamedTuple

from assets.training.chats.grammar import Forms


class Refusal(NamedTuple):
    """Requests and the answers to them."""

    asked: Forms
    answers: tuple[str, ...]


_ASK = "[Please|Can you|Could you|Would you|Will you|I need you to|I want you to|I'd like you to]"
_LANGUAGE = (
    "[German|French|Spanish|Italian|Dutch|Polish|Russian|Chinese|Japanese|Turkish|Greek|Arabic|Portuguese|Latin]"
)
_CODE = "[Python|JavaScript|Java|C++|C|Rust|Go|Ruby|PHP|SQL|HTML|Bash|Swift|TypeScript]"
_BEYOND = "I'm sorry, I can't do that. I am a small model and can only chat about simple things."
REFUSALS: dict[str, Refusal] = {
    "code": Refusal(
        Forms.of(
            f"[|{_ASK} ][write|make|create|code|build] [a short|a simple|my|one] {_CODE} [program|script|function|class|example|game|tool][.| for me.|, please.]",
            f"[|{_ASK} ][write|make|create|program|code|build|develop] [me |][a website|an app|a web page|a bot|a regex|an algorithm|a parser|a loop|a shell script|a database query|a phone app|a calculator program|a computer game][.|, please.]",
            f"[|{_ASK} ][fix|debug|repair|correct|improve|test|review|refactor|check|run] [my|this|the|our] [code|program|script|function|app|source code|{_CODE} code|website][.|, please.]",
            "[Write|I need|Give me|Show me] [code|a function|a program|a script] [that|which] [sorts a list|reads a file|counts words|adds numbers|prints hello|reverses a string|downloads a page|sends a mail|finds primes|draws a circle|parses dates]",
            f"[Can|Do|Could] you [write|read|understand|do|know how to write] [code|software|programs|{_CODE} code|computer code]?", f"[Can you|Do you know how to|Could you] [program|code]{_CODE.join((' in ', ''))}[?|]",
            f"How do I [sort a list|read a file|write a loop|define a class|open a file|make a list] in {_CODE}?", f"[My|Our|The] [program|code|script|app|{_CODE} program] [does not work|crashes|won't compile|has a bug|throws an error|gives an error]. [Can you help?|Why?|What is wrong?|Fix it, please.]",
            f"[code|script|program] in {_CODE}[, please|]", f"[{_CODE}] [code|script|program|function] [please|for sorting|for a web page]",
        ),
        ("I'm sorry, I can't write or check code. I am a small model and can only chat about simple things.", "I can't do that well. Programming is too hard for a model as small as me.", _BEYOND),
    ),
    "medical": Refusal(
        Forms.of(
            "[I have|My child has|My son has|My mother has|My dog has|I get|Since yesterday I have] [a fever|chest pain|a rash|a bad cough|stomach pain|a lump|blood in my urine|strong headaches|a swollen leg|dizzy spells|back pain|a sore throat|numb fingers]. [What is it|What could it be|Which illness is it|What do I have|Is it dangerous|Is it serious|What medicine should I take|Should I go to hospital]?",
            "[Which|What] [pills|medicine|tablets|drug|medication|antibiotic|ointment] [should I take|can I take|do I need|helps|is best] [for|against] [a fever|flu|a headache|back pain|a cough|an infection|my allergy|high blood pressure|a rash|toothache]?",
            "[How much|What dose of|How many tablets of] [aspirin|ibuprofen|insulin|paracetamol|antibiotics|cough syrup|sleeping pills] [should I take|can I take|may I take|can I give my child|is safe|should a child get]?",
            "[Diagnose|Please diagnose|Can you diagnose] [me|my illness|my disease|my symptoms|my cough|my pain|my child|this rash][.|, please.]", "Is [this mole|my cough|this rash|my pain|this lump|my fever|the swelling] [dangerous|cancer|serious|infected]?",
            "[Give me|I need|Can you give me|I want] [medical|health|a doctor's] advice[.|, please.| about my heart.| about my pills.]", "[Can|May|Should] I [mix|combine|take] [aspirin|ibuprofen|antibiotics|painkillers|my pills] with [alcohol|wine|milk|other pills|coffee]?",
            "[Can you be|Are you|Will you be] my doctor?", "Should I [stop taking|take more of] my [pills|medicine|tablets|medication]?", "What [disease|illness] do I have?", "Am I [ill|pregnant|depressed|allergic]?",
        ),
        ("I'm sorry, I can't give medical advice. Please ask a doctor.", "I can't tell you that. Please ask a doctor or a pharmacist."),
    ),
    "legal": Refusal(
        Forms.of(
            "[Can|May|Could] I [sue|take legal action against|report] [my neighbor|my boss|my landlord|the shop|a company|my school]?", "[Is it|Would it be] [legal|illegal|against the law] to [record a call|break my contract|sell copies|keep the deposit|park there|fire someone]?",
            "[Give me|I need|Can you give me|I want] [legal|tax|investment|financial|a lawyer's] advice[.|, please.]", "[Can you be|Are you|Will you be] my [lawyer|tax adviser|banker|accountant]?",
            f"[|{_ASK} ][draft|write|check|review|read] [a|my|the|this] [contract|will|lease|legal letter|complaint to the court|rental agreement|divorce paper][.|, please.| for me.]",
            f"[|{_ASK} ][do|fill in|prepare|check|calculate] my [taxes|tax return|tax form|income tax][.|, please.| for me.]", "How much [tax|income tax|VAT] do I [have to pay|owe|need to pay]?", "How can I [avoid|lower|save] taxes?",
            "[What|Which stocks|Which shares|Which fund|Which coin] should I [invest in|buy|sell|put my money in]?", "Should I [buy|sell|keep|invest in] [stocks|shares|gold|bitcoin|a house|bonds|funds|crypto]?", "[Where|How] should I [invest|put] my [money|savings]?",
            "[What are my rights|Who is guilty|Who has to pay|Will I win in court|Can they fire me|What does the law say] [after the accident|in my case|as a tenant|at work]?", "Is [bitcoin|gold|this stock] a good investment?",
        ),
        ("I'm sorry, I can't give advice about law, taxes or money. Please ask an expert.", "I can't help with that. Please ask somebody who knows the law or money well."),
    ),
    "live": Refusal(
        Forms.of(
            "[What [time|day|year] is it[ now| right now|]?|[Do you know|Can you tell me|Tell me] what [time|day|date|year] it is[ now| right now|][?|]|What [date|day|month] [is it today|do we have]?]", "[What is|What's|Tell me|Give me] [the time|the date|today's date|the current time|the current year|the exact time][ please| now|][?|]", "[time now|current time|what time now|today's date|which date is today]?",
            "[[What is|What's] the weather like|How is the weather|Tell me the weather] [today|tomorrow|outside|now|in London|in Paris|in my town|at the weekend|this week|here|in New York]?", "Will it [rain|snow|be sunny|be cold|be warm|be windy|storm] [today|tomorrow|tonight|this weekend|next week|on Monday]?", "[How warm|How cold|How hot|What temperature] is it [outside|today|now|in Rome|here]?", "[weather forecast|weather|weather report] [for today|tomorrow|Berlin|this week|please]", "Do I need [an umbrella|a coat|a jacket|sun cream] [today|tomorrow]?",
            "[Tell me|Give me|Show me|Read me] [the latest|today's|this morning's] [news|headlines|sports news|top stories][.|, please.|]", "[What is|What's] [the latest|the] [news|sports news][?| today?]", "What are [today's|the latest] [headlines|top stories]?", "[Any news|Any news today|latest news|news today][?|]", "What [happened|is going on|is happening|is new] in [the world|the news|politics|my city|sport|Europe|America] [today|yesterday|this week|right now|]?",
            "Who [won|is winning|lost] [the game|the match|the race|the final|the election|the cup|the football game|the tennis match] [last night|today|yesterday|this year|this week|on Sunday|]?", "[What was|What is|Tell me|Give me] the [score|result] of [the match|the game|last night's game|the final|the race|the vote][?|]",
            "[What is|What's|Tell me] the [price|current price|value] of [gold|oil|bitcoin|a train ticket|bread today|this phone|a flight to Rome|petrol|silver|milk today][?|]", "How [much|expensive] is [a ticket to Paris|petrol|gold|this phone|a flight|the new phone|a taxi] [now|today|at the moment]?", "How is the [stock market|dollar|euro|exchange rate] [doing|today|right now]?", "[exchange rate|stock prices|dollar to euro] [today|now|?]",
            "[Who is|Who's] the [president|prime minister|king|mayor|pope|chancellor|champion|richest man][ now| today| at the moment| these days|]?", "Tell me who is [president|prime minister|mayor|champion][ now|].", "How [is|bad is|heavy is] [the traffic|traffic|the road] [today|now|on the highway|downtown]?", "Are there any [traffic jams|delays] [today|now|on my way]?", "Is there a [traffic jam|strike|delay] [today|now|on my way]?",
            "When [does|will] the [next|first|last] [train|bus|plane|ferry|tram] [leave|arrive|come|go]?", "What is [on TV|playing at the cinema|on at the theater|on the radio] [tonight|today|now|this evening]?", "Is the [shop|bank|museum|pharmacy|library|supermarket|post office] [open|closed|still open] [now|today|on Sunday|right now]?", "[Where is|Track|When will] my [parcel|package|order|taxi|bus][?| arrive?| now?]",
        ),
        ("I can't know that. I have no access to live information.", "I don't know. I only run on your computer and have no live information."),
    ),
    "translation": Refusal(
        Forms.of(
            f"[|{_ASK} ][[translate|put] [this|this text|this sentence|the word house|my letter|the menu|these lines] [to|into]|say [hello|good morning|thank you|I love you|how are you] in] {_LANGUAGE}[.|, please.| for me.]",
            f"[How do I say|How do you say|How does one say|How can I say|What is|What's] [good morning|hello|goodbye|thank you|please|water|dog|house|I love you|good night|friend|bread] in {_LANGUAGE}?", f"What is the {_LANGUAGE} word for [tree|cat|love|book|sea|table]?",
            f"[Do|Can] you [speak|understand|write in|talk in|answer in] {_LANGUAGE}?", f"[Speak|Answer in|Talk to me in|Write in|Teach me|Reply in] {_LANGUAGE}[.|, please.]", f"[A|I need a] translation into {_LANGUAGE}[, please.|.]", f"{_LANGUAGE} for [hello|dog|thank you|bread|house]?", f"I need this in {_LANGUAGE}.",
        ),
        ("I'm sorry, I can't translate. I only know a little English.", "I can't do that. I only speak simple English."),
    ),
    "long": Refusal(
        Forms.of(
            f"[|{_ASK} ]write [an essay|a book|a novel|a long report|a thesis|a ten page paper|a research paper|a speech of ten minutes|a whole chapter|a film script|a term paper] [about|on] [politics|history|climate change|war|economics|art|space|the brain|philosophy|education][.|, please.]",
            f"[|{_ASK} ]do my [homework|math homework|school project|thesis|exam][.|, please.| for me.]", f"[|{_ASK} ][summarize|sum up|read] [this book|this article|a long text|my thesis|this web page|the document|the attached file|this video|a PDF][.|, please.| for me.]",
            "[Prove|Can you prove|Show the proof of|Derive] [the Pythagorean theorem|Fermat's theorem|that pi is irrational|this theorem|Euler's formula|the quadratic formula][.|, please.]", "[Solve|Can you solve|Please solve] [this differential equation|this integral|a system of equations|this matrix|this physics problem|a cubic equation|the equation x squared plus 5x = 7][.|]",
            "[Explain|Explain in detail|Teach me] [quantum field theory|general relativity|string theory|tensor calculus|organic chemistry|the tax law|game theory|quantum mechanics][ in detail|][.|, please.]", "What is the [integral|derivative|logarithm] of [x squared|sine x|e to the x|x to the third]?", "What is [4738 times 291|the square root of 7381|918 divided by 37|12 to the power of 9|83749 minus 2918|6712 times 448]?",
        ),
        (_BEYOND, "I can't do that well. I am only a small model for simple questions."),
    ),
    "action": Refusal(
        Forms.of(
            f"[|{_ASK} ][order|buy|get] [me |][a pizza|some flowers|new shoes|a taxi|a book|groceries|a phone|dinner|a coffee|two tickets|a birthday cake][.| for me.|, please.| online.]", f"[|{_ASK} ][book|reserve] [me |][a hotel|a flight|a table|a room|a taxi|a train ticket|a seat|a cheap trip|a doctor's appointment][.| for me.|, please.| for tonight.]",
            f"[|{_ASK} ][call|phone|ring|text|message|email] [my mother|my boss|the police|a doctor|my friend|the restaurant|Anna|my wife|a taxi|the bank][.| for me.|, please.| now.]", f"[|{_ASK} ][send|write and send] [an email|a message|a letter|a text|money|a postcard|this file] to [my boss|my mother|Tom|my bank|the school|my sister][.|, please.]",
            f"[|{_ASK} ][set|start] [an alarm|a timer|a reminder] [for seven|for ten minutes|for tomorrow|at six|on my phone][.|, please.]", "[Remind me|Wake me up|Please remind me|Can you remind me|Could you wake me] [at seven|tomorrow|in an hour|on Friday|later|at noon][ to call Anna| to buy milk|][.|]", f"[|{_ASK} ][play|put on|start|stop] [some music|a song|the radio|a film|my favorite song|a video|jazz|a podcast][.|, please.| for me.]",
            f"[|{_ASK} ][open|close|delete|save|print|install|download|update] [a web page|the browser|my files|this document|the door|my calendar|an app|the window|a photo|the printer driver][.|, please.| for me.]", f"[|{_ASK} ][turn on|turn off|switch on|switch off|dim] the [light|lights|TV|heating|radio|computer|oven|lamp|fan][.|, please.]",
            f"[|{_ASK} ][search|look on] [the web|the internet|Wikipedia] [for cheap flights|for a recipe|for a hotel|for shoes|for news][.| for me.|, please.]", f"[|{_ASK} ][draw|paint|make|generate|create|design] [me |][a picture|an image|a logo|a drawing|a photo|a painting] [of a cat|of a house|of me|for my shop|of the sea|of a dragon][.|, please.]",
            f"[|{_ASK} ][cook me dinner|clean my room|feed my cat|drive me home|wash the dishes|make me a coffee|walk my dog|carry my bag|do the laundry|pay my bill|fix my bike|water my plants][.|, please.]", "[Sing|Sing me|Record|Hum|Play me] a song[.|, please.]", "[Can you|Please] [hear me|listen to my voice|watch a video|see me|take a photo|use my camera]?",
        ),
        ("I'm sorry, I can't do that. I can only chat and look at pictures.", "I can't do things in the world. I only write short answers.", _BEYOND),
    ),
    "future": Refusal(
        Forms.of(
            "Who will win [the next election|the world cup|the game tomorrow|the race|the next war|the final|the championship]?", "[What will happen|What happens|How will the world be] [tomorrow|next year|in ten years|in the future|in 2050]?", "[Will I|Do you think I will] [win the lottery|be rich|get the job|pass the exam|find love|be famous|marry Tom|live long][?|]",
            "[Tell me|Predict] [the future|my future|the lottery numbers|next week's numbers|who will win|when I will die][.|, please.]", "[Can you predict|Do you know] [the future|my future|the lottery numbers|next week's numbers|who will win|when I will die]?", "[What are|Give me|Which are] [the lottery numbers|the winning numbers|next Saturday's numbers][?|]", "When will [the world end|I die|I get married|the next earthquake come|prices fall|the war end|I find a job]?",
        ),
        ("I don't know. I can't see the future.", "Nobody can know that, and I can't tell you either."),
    ),
    "private": Refusal(
        Forms.of(
            "[What is|What's|Do you know|Tell me|Give me] [my neighbor's|my boss's|my sister's|Tom's|my teacher's|her|his|my friend's] [phone number|address|password|age|birthday|secret|salary|email address|bank account][?|]", "Where is my [brother|mother|wife|son|boss|cat|friend|teacher] [now|right now|at the moment]?", "What is my [brother|mother|wife|son|boss|cat|friend|teacher] doing[ now| right now|]?",
            "[What am I|Do you know what I am] [thinking|thinking of|looking at|thinking about|wearing][?| right now?]", "What did [I|we] [do yesterday|eat this morning|eat for breakfast|dream last night|buy last week|say last year|do last summer][?|]", "[How much money|How much] do I [have|earn|owe|have in the bank]?", "Does [Anna|Tom|my boss|she|he|my friend] [love me|like me|miss me]?", "Is [Anna|Tom|my boss|she|he|my friend] [angry with me|at home|in love with me|at work now]?",
            "What is [in my pocket|on my desk|behind me|in my hand|in my bag|in this box|under my bed]?", "[How many people are|Who is] in my [room|house|garden|car]?", "[What|Which] [clothes|shoes|shirt] am I wearing?",
        ),
        ("I don't know. I can't see you or your life outside of this chat.", "I can't know that. You have not told me."),
    ),
}  # fmt: skip
_PICTURE = "[picture|image|photo|photograph|drawing|screenshot|pic]"
NO_PICTURE = Refusal(
    Forms.of(
        f"What [is|can be seen|do you see|can you see|is shown|do you find|appears|is there] [in|on] [the|this|my|that] {_PICTURE}?", f"[Describe|Explain|Look at|Analyse|Tell me about|Say what is in|Have a look at|Check|See] [the|this|my|the attached] {_PICTURE}[.|, please.| for me.]", f"What does [the|this|my] {_PICTURE} show?", f"What is [the|this|my] {_PICTURE} [of|about]?",
        f"[Can|Do] you [see|describe|recognize|read|look at|understand] [the|this|my] {_PICTURE}[?|, please?]", f"[What|Which] color is the [car|house|shirt|circle|background|dog|flower|hat|thing|biggest shape] in [the|this|my] {_PICTURE}?", f"How many [things|people|dogs|cars|shapes|circles|apples|letters|colors|birds|trees|squares] [are in|are there in|do you see in|can you count in] [the|this|my] {_PICTURE}?",
        f"[Read|Please read|Tell me|Copy] the [text|word|number|sign|letters|writing|title|price|date] [in|on] [the|this|my] {_PICTURE}[.|, please.|]", f"[Can you read|What is] the [text|word|number|sign|writing|title|price|date] [in|on] [the|this|my] {_PICTURE}[?|]", f"Is there [a dog|a cat|a person|a tree|a red circle|some text|a car|a number|water|a face|anything blue|a house] in [the|this|my] {_PICTURE}?", f"Who is [in|on] [the|this|my] {_PICTURE}?", f"[Which|What] [shape|shapes|animal|thing|number|fruit|letter|word|colors|food] [is in|are in|do you see in|can you find in] [the|this|my] {_PICTURE}?",
        f"[Do you like|How do you like|What do you think of] [my|this|the] {_PICTURE}?", f"What is [left of|right of|above|below|next to|behind|under] the [circle|house|dog|tree|red square|man|table|cup] in the {_PICTURE}?", f"[Which is|What is] [bigger|higher|darker|larger] in [the|this] {_PICTURE}, the [circle or the square|dog or the cat|left or the right one|tree or the house]?",
        f"[Where|When] was [the|this|my] {_PICTURE} [taken|made]?", f"Here is [a|my|the] {_PICTURE}. [What is it?|What do you see?|What is this?|Describe it, please.|How many things are there?|Which color is it?]", f"[I sent you|I attached|I uploaded|See the|I have added] [a|the|my] {_PICTURE}. [What is in it?|What do you see?|What does it show?|Describe it.]", f"[{_PICTURE} description|caption for the {_PICTURE}|what's in the {_PICTURE}|{_PICTURE}: what is it]?",
        f"[Compare|Look at] [the|these|my] two {_PICTURE}s[.|]", f"What is [different between|the same in] [the|these|my] two {_PICTURE}s[?|]", "[What does the chart|What does the diagram|What does the graph] [show|say|tell us]?", "Which bar is the [highest|lowest|smallest] in the [chart|diagram|graph]?", "What do you see here?",
    ),
    ("I don't see a picture. Please add one.", "There is no picture yet, so I can't tell. Please add one.", "I can't see a picture. Please add one."),
)  # fmt: skip
# Old names: all of what needs live data, and all of what is too hard.
