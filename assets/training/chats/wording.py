"""How small knowledge is asked for: patterns of `grammar`. Evaluation uses other sentences."""

from __future__ import annotations

from assets.training.chats.grammar import Forms

# {s} a sum such as "3 plus 4" or "the sum of 3 and 4"; {a} and {b} its numbers.
SUMS = Forms.of(
    "{a}[ + |+| plus | and | added to | together with | with another | add ]{b}",
    "the [sum|total] of {a} and {b}", "{a} and {b} [together|in total|combined|added up|added together|put together]",
    "the sum {a}[ + |+]{b}", "{b} more than {a}", "{a} with {b} [added|more]", "{a} increased by {b}",
)  # fmt: skip
DIFFERENCES = Forms.of(
    "{a}[ - |-| minus | take away | less | subtract | reduced by | without ]{b}",
    "the difference [between|of] {a} and {b}", "{b} [subtracted|taken away|taken] from {a}", "{b} less than {a}",
    "the difference {a}[ - |-]{b}",
)  # fmt: skip
PRODUCTS = Forms.of("{a}[ * |*| x |x| times | multiplied by ]{b}", "the product of {a} and {b}")
ASKED: dict[str, Forms] = {
    "calculate": Forms.of(
        "[What is|What's|How much is|How much are|What does one get for|What do you get for|What do I get for] {s}?",
        "[Calculate|Compute|Work out|Solve|Find|Add up|Give me|Tell me|Figure out|Do the math:] {s}.",
        "[Please|Can you|Could you|Would you|Will you] [calculate|work out|solve|compute|find|tell me|figure out] {s}[ for me|]?",
        "{s}", "{s}?", "{s} = ?", "{s} =", "{s} [is|are|makes|gives|equals] [what|how much|which number]?", "{s} is?", "{s} equals?",
        "[What|How much] does {s} [make|give|come to|equal|add up to]?", "[My question|Sum|Task|Math|Maths|Quick one|Calculation]: {s}",
        "[I need|I want|I'm looking for|Give me|I would like] [the answer to|the result of|the solution of|the value of] {s}.",
        "[I forgot|I don't know|I can't work out|Help me, I don't know|Remind me] [what|how much] {s} is.",
        "Help me with {s}[, please.|.|!]", "If [you have|I take] {s}, what [is it|is the answer|is the result|comes out]?",
        "[Do you know|Can you say|Any idea|Can you tell me] [what|how much] {s} is?", "[The answer to|The result of|Answer for] {s}?",
        "[My son asks|The teacher asks|My homework says|The exercise is]: [what is |]{s}?", "{s} - what [is that|does it make]?",
        "[What|Which number|Which value] is the [answer to|result of|value of] {s}?", "How do you solve {s}?", "{s}, [what is it|how much is it]?",
    ),
    "add": Forms.of(
        "[Add|Please add|Can you add|Could you add|Now add] {a} [and|to|plus] {b}[.|, please.| for me.]",
        "[What|How much] [do you get|do I get|is it|comes out] [if you add|when you add|when I add|if I add|adding] {a} [and|to] {b}?",
        "[If I add|If you add|When I add] {b} to {a}, [what do I get|what is the result|how much is it|what comes out]?",
        "[Start with|Begin with|Take] {a} and [add|count on|go up by] {b}. [What do you get|Where do you end up|How much is it]?",
        "Which number is {b} [more|bigger|greater|higher] than {a}?", "What makes {a} and {b} together?", "{a} and {b} makes how much?",
        "Put {a} and {b} together. [What do you get|How much is it]?",
    ),
    "subtract": Forms.of(
        "[Subtract|Take|Take away|Please subtract|Can you subtract|Remove] {b} from {a}[.|, please.| for me.]",
        "[What|How much] [do you get|do I get|is left|remains] [if you take|when you take|if I take|when I subtract] {b} [away from|from] {a}?",
        "[If I take|If you take|When I subtract] {b} from {a}, [what do I get|what is the result|how much is left|what remains]?",
        "[Start with|Begin with|Take] {a} and [subtract|count back|go down by|take away] {b}. [What do you get|How much is left|What remains]?",
        "Which number is {b} [less|smaller|lower] than {a}?", "{a}, and {b} go away. [How many stay|What is left|How much is left]?",
        "How [much more|much bigger] is {a} than {b}?", "How far is it from {b} to {a}?", "What is left of {a} without {b}?",
    ),
    "story_sum": Forms.of(
        "[I have|We have] {a} {things}[ and|. Then I] get {b} more. How many {things} are [there now|there in all|that]?", "There are {a} {things}[ and|. Then] {b} more [come|are added]. How many {things} are [there now|there in all|that]?", "[She|Tom|My brother] has {a} {things} and [gets|finds|buys] {b} more. How many {things} are [there now|there in all|that]?",
        "{who} had {a} {things} and [found|bought|got|was given] {b} more. How many {things} does {who} have [now|in total|in all]?",
        "[In one box are|One bag has|On the table are] {a} {things} and in the other are {b}. How many {things} [together|in all|altogether]?",
        "{a} {things} plus {b} {things}[?| makes how many?| is how many {things}?]",
    ),
    "story_minus": Forms.of(
        "{who} had {a} {things} and [lost|gave away|sold|used|ate] {b}. How many {things} [are left|does {who} have now|remain|has {who} now]?",
        "There [are|were] {a} {things} on the table. {who} takes {b}[ away|]. How many {things} [are left|stay|remain|are still there]?",
        "[From|Out of|Of] {a} {things}, {b} are gone. How many [are left|remain|do I still have]?",
        "{a} {things} minus {b} {things}[?| makes how many?| is how many {things}?]",
    ),
    "capital": Forms.of(
        "[What is|What's|Which is|Which city is|What city is|Name|Tell me|Give me|Say] the [capital|capital city] of {x}[?|]",
        "[What is|What's|Which is|Tell me] {x}'s [capital|capital city]?", "[{x}: capital?|capital {x}|{x} capital|{x}, capital?|capital city {x}?]",
        "[The |][capital|capital city] of {x}[?|, please| is?| is which city?|:]", "{x}'s [capital|capital city][?| is?|, please]",
        "[Do you know|Can you tell me|Could you name|Can you name|Please name|Would you tell me] the [capital|capital city] of {x}[?|, please?]",
        "[What|Which] [city|town] is {x}'s [capital|capital city|seat of government]?", "Which city [serves as|is used as] the capital of {x}?",
        "[I forgot|I don't know|Remind me of|I need to know|I can't remember|I want to know|Help me with] the [capital|capital city] of {x}.",
        "[What|How] is the [capital|capital city] of {x} called?", "What is the name of the [capital|capital city] of {x}?", "Name {x}'s capital[ city|].",
        "[In|] {x}, [which city|what city|what] is the capital?", "The [capital|capital city] of {x} is [called what|which|what]?",
        "For a quiz: [what is |][the |]capital of {x}[?|]", "[Geography question|Quiz]: [the |]capital of {x}?", "If I go to {x}, what is the capital there?",
        "Which city is the seat of [the government of {x}|government in {x}]?", "I am travelling to {x}. What is [its|the] capital[ city|]?",
        "[What is|Which city is] the capital[ city|] in {x}?", "What [capital|capital city] does {x} have?", "{x} has which capital?",
    ),
    "country": Forms.of(
        "[Which|What] country has [the capital {x}|{x} as its capital|{x} for a capital]?", "{x} is the capital of [which country|what country|what|which place]?",
        "Of [which|what] country is {x} the capital[ city|]?", "[Which|What] country is {x} the capital of?", "{x} is [the capital where|whose capital]?",
        "[Tell me|Name] the country [whose capital is|with the capital|that has the capital] {x}.", "I know the capital {x}, but what is the country?",
    ),
    "after": Forms.of(
        "[What|Which] {k} [comes after|follows|is after|comes next after|comes right after|comes directly after|is next after] {x}?",
        "[What is|What's|Tell me|Name|Which is|Give me] the [next |following |]{k} after {x}[?|]", "[{k} after {x}?|after {x}?|next {k} after {x}|{x}, then?|the {k} after {x}]",
        "What [comes after|follows|is after|comes next after] {x}?", "After {x} comes [what|which {k}]?", "{x} is followed by [what|which {k}]?",
        "[Do you know|Can you tell me|Could you say] [which|what] {k} [comes after|follows] {x}?", "{x} comes before which {k}?", "If [it is|this is] {x}, what is the next {k}?",
        "[I forgot|I don't know|Remind me] [which|what] {k} [comes after|follows] {x}.", "When {x} is over, which {k} [begins|starts|comes|is next]?",
        "{x} is over. Which {k} [comes|is] next?", "[Which|What] {k} does {x} come before?", "Which {k} [begins|starts] when {x} ends?",
    ),
    "before": Forms.of(
        "[What|Which] {k} [comes before|is before|precedes|comes right before|comes just before|goes before] {x}?", "What [comes before|is before|precedes] {x}?",
        "[What is|What's|Tell me|Name|Which is|Give me] the [previous |]{k} before {x}[?|]", "[{k} before {x}?|before {x}?|the {k} before {x}|previous {k} before {x}]",
        "Before {x} comes [what|which {k}]?", "{x} is preceded by [what|which {k}]?", "{x} comes after which {k}?", "[Which|What] {k} does {x} [come after|follow]?",
        "[Do you know|Can you tell me|Could you say] [which|what] {k} [comes before|is before] {x}?", "If [it is|this is] {x}, what was the [last|previous] {k}?",
        "[I forgot|I don't know|Remind me] [which|what] {k} [comes before|is before] {x}.", "{x} has begun. Which {k} has just ended?", "Which {k} ends when {x} begins?",
    ),
    "tomorrow": Forms.of(
        "[Today is|It is|It's|If today is|Suppose today is|Say today is|When today is|Today we have] {x}[. What|, what] [is tomorrow|day is tomorrow|day will it be tomorrow|will tomorrow be|day comes next]?",
        "[Which|What] day is tomorrow if today is {x}?", "Today {x}, tomorrow?", "Yesterday was {x}. [What day is it today|What is today|Which day is today]?",
        "If yesterday was {x}, what [is today|day is today|day is it]?",
    ),
    "yesterday": Forms.of(
        "[Today is|It is|It's|If today is|Suppose today is|Say today is|When today is|Today we have] {x}[. What|, what] [was yesterday|day was yesterday|day was it yesterday|day came before]?",
        "[Which|What] day was yesterday if today is {x}?", "Today {x}, yesterday?", "Tomorrow is {x}. [What day is it today|What is today|Which day is today]?",
        "If tomorrow is {x}, what [is today|day is today|day is it]?",
    ),
    "spell": Forms.of(
        "[How do you|How do I|How do we|How to|How would you|How does one|How should I] [spell|write] [the word |]\"{x}\"?", "[How do you|How do I|How to|How would you] spell [the word |]{x}[?|]",
        "[Spell|Please spell|Can you spell|Could you spell|Would you spell|Will you spell|I want you to spell] [the word |]{x}[.| for me.| letter by letter.|, one letter at a time.|, please.]",
        "How is [the word |]{x} [spelled|spelt]?", "[Which|What] letters [are in|does one need for|do I need for|make up|form] [the word |]{x}?", "[spelling of|spelling|spell|letters of] {x}",
        "[What is|What's|Show me|Give me|Tell me|I need|I forgot|Remind me of] the [correct |right |]spelling of [the word |]{x}[?|]", "{x} - how is it [spelled|spelt]?",
        "[Write|Say|Type|Give me|Read out] [the word |]{x} [letter by letter|one letter at a time|in single letters|with a dash between the letters|letter for letter][.|, please.]",
        "[Break|Split|Cut|Take apart] [the word |]{x} [into letters|into its letters|into single letters][.|]", "[Tell me|List|Give me|Name|Say|Show me] the letters [of|in] [the word |]{x}[.|, please.]",
        "[I don't know|I forgot|I'm not sure|I can't remember|Help me, I don't know] how [to spell {x}|to write {x}|{x} is spelled].", "The word {x}: [how is it spelled|spelling|which letters]?",
        "Letter by letter: {x}", "{x}, [letter by letter|one letter at a time|spelled out][, please|]", "What does {x} look like letter by letter?", "Spell it for me: {x}",
    ),
    "opposite": Forms.of(
        "[What is|What's|Tell me|Give me|Name|Say|Which is|Find] the [opposite|antonym|contrary|reverse] of [the word |]{x}[?|]", "[Opposite|Antonym|Contrary] of {x}[?|]", "{x} - opposite?",
        "[Which|What] word [means the opposite of|is the opposite of|is the contrary of|is an antonym of|says the opposite of] {x}?", "{x} is the [opposite|contrary|reverse] of [what|which word]?",
        "[Do you know|Can you tell me|Could you give me|Can you name|Please tell me|Can you say] the [opposite|antonym|contrary] of {x}[?|, please?]", "[What is|Tell me|Name] {x}'s opposite?",
        "[I need|I'm looking for|I forgot|I don't know|Help me find|I want] [the opposite of|the antonym of|the contrary of|a word that means the opposite of] {x}.", "opposite {x}",
        "[If something is not|If it is not|When it isn't] {x}, [then what is it|what is it|it is what|it's what]?", "The [opposite|contrary|reverse|antonym] of {x}[?| is?| is what?| is ...|, please.]",
        "Not {x}, [but what|but the opposite]?", "[Turn|Change] {x} into its opposite.", "[What|Which word] is the word for not {x}?", "[The word that means|A word for] not {x}[?|, please.]", "antonym {x}?",
        "What would be the [opposite|contrary|reverse] of {x}?", "[What|Which] is the other side of {x}?", "{x}, and the opposite [is|would be]?", "Say the [opposite|contrary]: {x}", "{x} versus what?",
    ),
    "define": Forms.of(
        "[What does|What would] [the word |the term |]{x} mean?", "[Define|Explain|Please define|Please explain|Can you define|Can you explain|Could you explain] [the word |the term |]{x}[.|, please.| to me.| for me.]",
        "[What is|What's|Tell me|Give me|I want|I need|Do you know|Explain|I'm looking for|Say] the [meaning|definition|sense] of [the word |the term |]{x}[?|]",
        "[Give|Write|Can you give|Could you give] [me |]a [short |simple |]definition [of|for] [the word |]{x}[.|, please.]", "What [is|do you call] [a definition of|the definition for] {x}?",
        "What [is meant by|do you understand by|do people mean by|does one mean by|do you mean by|is understood by] [the word |]{x}?", "[meaning of|definition of|define|meaning|definition:|meaning:] {x}[?|]",
        "[Tell me|Explain|Explain to me|Say|Can you tell me|Can you say|Could you tell me|I want to know|I'd like to know|Do you know] what [the word |]{x} means[.|, please.]", "{x}: [meaning|definition|what does it mean]?",
        "[I don't know|I do not know|I forgot|I don't understand|I'm not sure|I never learned|Nobody told me] what [the word |]{x} [means|is].", "How would you [define|explain|describe] [the word |]{x}?",
        "[I read|I heard|I saw|I came across|My teacher used] the word {x}. What does it mean?", "{x} [means what|- what does that mean|, what does it mean|, meaning]?", "What is the word {x} [for|about|used for]?",
        "How is [the word |the term |]{x} defined?", "In [a few|simple|your own|short] words, what [does {x} mean|is meant by {x}]?", "What does it mean when [people say|someone says|I read] {x}?", "How do you explain [the word |]{x}?",
        "Help me understand [the word |the meaning of |]{x}.", "What could {x} mean?", "A [word question|question about a word]: what does {x} mean?", "The [meaning|definition] of {x}[?|, please.| is?]",
    ),
    "define_noun": Forms.of(
        "[What is|What's|What exactly is] {t}?", "what is {x}", "{t} is what?", "What kind of thing is {t}?", "[Can you tell me|Tell me|Do you know|Explain|Explain to me|I don't know|I forgot] what {t} is.",
        "Describe {t}[.| in one sentence.| in a few words.| briefly.| for me.]", "How would you describe {t}?", "[Explain|Describe] {t} to a [child|beginner|learner].",
    ),
    "sentence": Forms.of(
        "[Use|Put|Please use|Can you use] [the word |]{x} in a sentence[.|, please.| for me.]", "[Write|Make|Give me|Say|Form|Build|Show me] [a|an example|one] sentence [with|using|that has] [the word |]{x}[.|, please.]",
        "[How|Where] can I use [the word |]{x} in a sentence?", "[An example|A sentence|Example sentence] [with|for] {x}[?|, please.]",
    ),
    "colour_of": Forms.of(
        "[Name|Tell me|Give me|Say] [something|one thing|a thing] [that is |]{x}[.|, please.]", "[Which thing|What thing|Which object] is {x}?", "What [can be|is often|is usually] {x}?", "Can you name something {x}?",
    ),
}  # fmt: skip
