"""How people ask about pictures. Evaluation uses other sentences: `heldout/questions.py`.

{s} shape or thing, {p} its plural, {c} colour, {a} and {b} two things, {r} relation, {x} a label or a place.
(a|b) are alternatives, <word> is one of WORDS. What a line starts with says which frames it is put into:
"i:" a clause as in "tell me what it is", "n:" a noun phrase, "v:" an order, "s:" a statement to be confirmed.
"""

from __future__ import annotations

import re
from functools import lru_cache
from random import Random

from assets.training.chats.grammar import every
from assets.training.heldout.reserved import is_free
from assets.training.phrases import first_upper

WORDS = {
    "colour": "color|hue|shade|tint",
    "shape": "shape|figure|form|geometric figure|geometric shape|outline",
    "pic": "picture|image|photo|drawing|graphic|scene|pic",
    "obj": "object|thing|item",
    "see": "see|spot|find|notice|make out|recognize",
    "shown": "shown|displayed|drawn|depicted|visible|to be seen",
    "bar": "bar|column|block",
    "line": "line|curve|graph|plot",
    "chart": "chart|diagram|graph|plot",
    "num": "number|figure|numeral",
    "written": "written|printed|shown|displayed|drawn",
    "text": "text|writing|lettering|inscription",
    "top": "tallest|highest|largest|biggest|longest|greatest",
    "least": "shortest|lowest|smallest|littlest|tiniest",
    "in": "in (the|this) <pic>|here|there|on the <pic>|in this",
}
FRAMES = {
    "i": (
        "(Tell|Please tell|Just tell) me {}.", "(Can|Could|Would|Will) you (please |)(tell me|say) {}?", "Say {}.",
        "(I want|I need|I'd like|I would like|I'd love|Help me|It is important for me) to know {}.", "{}?",
        "(Do you (know|see)|(Can|Could) you (see|find out|work out)) {}?", "I wonder {}.", "Any idea {}?", "Let me know {}.",
        "Would you mind telling me {}?", "I (can't see|cannot see|am not sure|don't know|am trying to find out) {}.",
        "(Look|Check|Have a look) and (say|tell me) {}.", "My question is {}.", "Are you able to (say|tell|see) {}?",
    ),
    "n": (
        "(What is|What's|What would be|Which is) {}?", "(Name|Give me|Tell me|State|Find|Report|I need|I want) {}.", "{}?", "{}",
        "(Can|Could|Would) you (name|tell me|give me|find) {}?", "{}, please.", "{} is what?", "{} - what is it?", "{}: ?",
        "(I'd like|I would like|I want) to know {}.", "Do you (know|see) {}?", "What about {}?", "(And|Now) {}?", "{} here?",
        "{} is ...?", "Can I have {}?", "Please (name|say|write|state) {}.",
    ),
    "v": (
        "{}.", "(Please|Now|Just|Kindly|OK,) {}.", "(Can|Could|Would|Will) you (please |){}?", "{}, please.", "{} for me.",
        "(I want|I need|I'd like|I would like) you to {}.", "Your task: {}.", "Are you able to {}?", "Try to {}.",
        "Look at the <pic> and {}.", "Would you be so kind to {}?", "Help me: {}.", "Let's see: {}.",
    ),
    "s": (
        "{}, (right|correct|true|yes|isn't it|is that right|or not|am I right)?", "(Is it true|Is it right|Is it correct|Is it so) that {}?",
        "{} - (yes or no|true|is that so|correct|right)?", "Yes or no: {}?", "{}. (Right|Correct|True|Is that right|Yes or no)?",
        "(Would you say|Can you confirm|Do you agree|Can one say|Am I right|Do you think|Could you check) that {}?", "{}?",
        "(Tell me|Please tell me|I want to know|Say|Check|Decide) (if|whether) {}.", "(I think|I say|I guess|It seems) {}, right?",
        "(Can|Could) you (tell me|tell|see|say|check) (if|whether) {}?", "I wonder (if|whether) {}.", "{}: yes or no?",
    ),
}  # fmt: skip
LINES: dict[str, tuple[str, ...]] = {
    "colour": (
        "(What|Which) color is (the|this|that) {s}?", "(What|Which) <colour> does the {s} (have|show)?", "What color is (it|this|that)?",
        "The {s} (is|has|is of) (what|which) <colour>?", "i:(what|which) <colour> (the {s} is|the {s} has|the {s} shows|it is)",
        "n:(the |)<colour> of (the |this |){s}", "n:the {s}'s <colour>", "(color|colour|hue)?", "{s} color?", "{s}(:| -|,) (which |what |)color?",
        "What colored {s} (is this|is that|do you see)?", "Is the {s} red, (blue|green|yellow) or (another|some other) color?",
        "Look at the {s}. (What|Which) color is it?", "v:(name|say|tell me|state|identify|describe) the <colour> of the {s}",
        "In (what|which) <colour> is the {s} (drawn|painted|shown|filled)?", "How is the {s} colored?", "Of (what|which) color is the {s}?",
        "(What|Which) color (did they|does someone) (use|paint) for the {s}?", "The {s} - (what|which) color?", "(What|Which) color {s}?",
        "(What|Which) is the color of the {s}?", "What (color|colour) has the {s}?", "The {s}, what color is (it|that)?",
        "(What|Which) color was (used|chosen) for the {s}?", "With (what|which) color is the {s} (painted|filled|drawn)?",
        "There is a {s} <in>. (What|Which) color is it?", "What color the {s} is?", "color {s}", "I see a {s}. (Its|What) color?",
    ),
    "colour_all": (
        "(What|Which) color are (the|these|all the|all) {p}?", "(What|Which) <colour> do the {p} have?", "What color are they?",
        "n:(the |)<colour> of the {p}", "n:the {p}' <colour>", "i:(what|which) <colour> the {p} (are|have)", "{p} color?",
        "In (what|which) color are the {p} (drawn|painted|shown)?", "Do the {p} share a color, and which one?", "How are the {p} colored?",
        "v:(name|say|tell me) the <colour> of the {p}", "The {p} are (what|which) color?", "(What|Which) color is used for the {p}?",
    ),
    "shape": (
        "(What|Which) <shape> is (this|it|that)?", "(What|Which) <shape> do you (see|spot|recognize)?", "(What|Which) <shape> is <in>?",
        "What is the {c} (thing|object|shape|one|item)?", "(What|Which) <shape> is the {c} (one|thing|object|item)?", "(shape|form|figure)?",
        "(What|Which) (shape|figure) is {c}?", "(What|What kind of|Which) <shape> does the {c} (<obj>|one) have?", "n:the {c} (<obj>|one)'s <shape>",
        "Look at the {c} <obj>. What shape is it?", "i:(what|which) <shape> (this is|it is|is <shown>|you <see>)", "n:(the |)name of (the|this) <shape>",
        "i:(what|which) <shape> the {c} (<obj>|one) (is|has)", "n:(the |)<shape> of the {c} (<obj>|one)", "{c} (one|thing|shape), what is it?",
        "v:(name|identify|recognize|say|describe) (the|this) (shape|figure|form)", "v:(name|identify|describe) the {c} (shape|figure|object|one)",
        "What (kind|sort|type) of (shape|figure|form|geometric figure) is (this|it|that|<shown>)?", "How do you call (this|the|that) <shape>?",
        "(What|Which) <shape> is <shown>( here|)?", "The {c} (<obj>|one) (is|has) (what|which) shape?", "Is it a circle, a square or (something else|another shape)?",
        "(What|Which) geometric (figure|shape|form) is it?", "What is (the|this) (shape|figure) called?", "{c} (thing|one|object): shape?", "shape of the {c} thing",
        "Something is {c}. (What|Which) shape is it?", "What (is|do you see) in {c}?", "What shape the {c} thing is?", "This shape is a ...?",
        "(What|Which) {c} (shape|figure) (is this|do you see|is there)?",
    ),
    "position": (
        "Where is (the|this|that) {s}?", "Where (in|on) the <pic> is the {s}?", "Where is it?", "In (which|what) (part|area|corner or part|region) is the {s}?",
        "Where (do|can) you (see|spot|find) the {s}?", "Where (can I|do I|could I|should I) (find|see|spot|look for) the {s}?", "(where's|wheres) the {s}?",
        "n:(the |)(position|location|place|spot) of the {s}", "n:the {s}'s (position|location|place)", "i:where (the {s} is|the {s} is (placed|located)|I can find the {s}|to find the {s}|to look for the {s})",
        "Whereabouts is the {s}( in the <pic>|)?", "v:(locate|find|point out|tell me where to find) the {s}", "At (which|what) (place|position|spot) is the {s}?",
        "Is the {s} at the top, in the middle or at the bottom?", "Where (has|was) the {s} (been |)(placed|put|drawn)?", "Where does the {s} (lie|sit|stand|appear)?",
        "{s}(:| -|,) where?", "{s} (position|location)?", "where {s}?", "where {s} is?", "In (which|what) (part|place|area) of the <pic> (is|do you see|can I find) the {s}?",
        "The {s} is where?", "(Which|What) (part|corner|area) of the <pic> (has|holds|contains) the {s}?", "Where (is|do you see) the {s} <in>?",
        "Where is the {s} (placed|located|drawn|situated|positioned)?", "On (what|which) (side|part) (of the <pic> |)is the {s}?", "In what direction do I look for the {s}?",
        "Is the {s} left, right, up or down?", "The {s}, where is (it|that)?", "I am looking for the {s}. Where is it?", "I can't find the {s}. Where is it?",
    ),
    "background": (
        "(What|Which) color is the (background|backdrop|ground|canvas)?", "(What|Which) color is behind (the shape|it|everything|all)?", "n:(the |)background <colour>",
        "i:(what|which) <colour> the background (is|has)", "(What|Which) <colour> does the (background|backdrop) have?", "n:(the |)<colour> of the (background|backdrop|ground)",
        "background(:| -|) color?", "On (what|which) color (is it drawn|does it stand)?", "The background is (what|which) color?", "v:(name|say|tell me) the background color",
        "(What|Which) color surrounds (it|everything)?", "And the background?", "How is the background colored?", "Background: what color?",
    ),
    "count": (
        "How many {p} are (there|here|shown|visible|drawn)?", "How many {p} (do|can) you (see|spot|find|count|notice|make out)?", "how many {p}?", "How many {p} <in>?",
        "v:count (the|all|all the|up the) {p}", "n:(the |)(number|count|amount|total|quantity|total number) of {p}", "How many {p} (does the <pic> show|are in the <pic>|has the <pic>|does it have)?",
        "i:how many {p} (there are|you see|you count|are there|are <in>|the <pic> shows|are <shown>|you can find)", "v:(count|tell me|work out|find out|say) how many {p} there are", "{p}(:| -|,) how many?", "{p} count?",
        "How (large|big) is the number of {p}?", "(What|Which) number of {p} (do you see|is there|is shown)?", "How many {p} (can|could) (I|we|one) (see|find|count)?", "{p} number?",
        "Look for {p}. How many (are there|do you find)?", "How many {p} has (the|this) <pic>?", "How many of (the shapes|these|them) are {p}?", "If you count the {p}, (how many|what) do you get?",
        "There are how many {p}?", "How many {p} there are?", "Of {p}, how many are there?", "count {p}", "I see some {p}. How many?", "Can you find (any|the) {p}? How many?",
    ),
    "count_all": (
        "How many (shapes|objects|figures|forms|things) are (there|here|shown|<in>)( in total| altogether| all together| in all|)?", "How many (shapes|objects|figures|things|items) (do|can) you (see|spot|find|count)?",
        "v:count (the|all|all the) (shapes|objects|figures|forms|things|items)", "n:(the |)(total |)number of (shapes|objects|figures|things|items)", "i:how many (shapes|objects|figures|things) (there are|are <in>|you see|are <shown>)",
        "How many (shapes|things|objects|figures) (does the <pic> show|are in the <pic>|in total|altogether)?", "(shapes|objects|figures)(:| -|,) how many?", "How many (shapes|objects|figures)?", "How many shapes there are?",
        "(Number|Amount) of (shapes|objects)?", "How many are there (in total|altogether|in all)?", "How many (different |)(shapes|objects) has (the|this) <pic>?", "All shapes together: how many?",
    ),
    "exists": (
        "Is there {s}( <in>| anywhere| somewhere|)?", "(Do|Can) you (see|spot|find|notice|make out|recognize) {s}( <in>| anywhere|)?", "Does the <pic> (have|show|contain|include) {s}?", "Is {s} <in>?",
        "s:there is {s}( <in>|)", "Any chance there is {s} here?", "Does it (show|have|contain) {s}?", "{s} <in>?", "Has the <pic> got {s}?", "Is {s} (among the shapes|part of the <pic>|among them|<shown>)?", "Can {s} be (seen|found) <in>?",
        "s:(you|I|we) can see {s}", "s:the <pic> (shows|has|contains) {s}", "Would I find {s} here?", "I am looking for {s}. Is there one?", "v:look for {s}. Is there one",
    ),
    "is_colour": (
        "Is the {s} (really |)(colored |){c}( or not| or some other color|)?", "Is the <colour> of the {s} {c}?", "Does the {s} (look|have the color|appear) {c}?", "s:the {s} is {c}", "s:the color of the {s} is {c}", "s:this is a {c} {s}",
        "Is (this|that|it) a {c} {s}?", "{c} {s}?", "Is the {s} (painted|drawn) in {c}?", "Would you call the {s} {c}?", "The {s} - is it {c}?", "{s}: {c}?", "Do you see a {c} {s}?", "The {s} is {c}?", "Is {c} the <colour> of the {s}?",
    ),
    "relation": (
        "Is the {a} (placed |located |positioned |)(really |){r} the {b}( or not| <in>| in the <pic>|)?", "Do you see the {a} {r} the {b}?", "the {a} {r} the {b}?", "{a} {r} {b}?", "is {a} {r} {b}?", "(Can|Could) you (see|find) the {a} {r} the {b}?",
        "s:the {a} is {r} the {b}", "s:the {a} (lies|sits|stands|appears|is placed|is located|is positioned) {r} the {b}", "Does the {a} (lie|sit|stand|appear|come) {r} the {b}?", "Does the <pic> show the {a} {r} the {b}?",
        "(Look closely|Look|Compare|Look at the {a} and the {b})(:|.) is the {a} {r} the {b}?", "Take the {a} and the {b}. Is the (first|former) {r} the (second|latter)?", "The {a}: is it {r} the {b}?", "The {a} is {r} the {b}?",
        "With the {b} as a reference, is the {a} {r} it?", "Think of the {a} and the {b}: is the {a} {r} the {b}?", "Can the {a} be (seen|found) {r} the {b}?", "Will I find the {a} {r} the {b}?", "Compared with the {b}, is the {a} {r} it?",
        "Is it the {a} that is {r} the {b}?", "Has the {a} been (put|placed|drawn) {r} the {b}?", "Was the {a} (put|placed|drawn) {r} the {b}?",
    ),
    "size": (
        "Is the {a} (really |)(drawn |){r} the {b}( or not| <in>|)?", "s:the {a} is {r} the {b}", "s:the {a} (looks|appears|seems) {r} the {b}", "Does the {a} (look|appear|seem) {r} the {b}?", "the {a} {r} the {b}?", "{a} {r} {b}?", "is {a} {r} {b}?",
        "(Look closely|Look|Compare|Compare the sizes)(:|.) is the {a} {r} the {b}?", "Take the {a} and the {b}. Is the (first|former) {r} the (second|latter)?", "The {a}: is it {r} the {b}?", "The {a} is {r} the {b}?", "In size, is the {a} {r} the {b}?",
        "Is it the {a} that is {r} the {b}?", "By size: is the {a} {r} the {b}?", "Has the {a} been drawn {r} the {b}?",
    ),
    "which_side": (
        "Where is the {a} (compared to|compared with|relative to|in relation to|with respect to|with regard to) the {b}?", "Where is the {a}, seen from the {b}?", "(On|At) (which|what) side of the {b} is the {a}( drawn| placed|)?", "n:the (place|position) of the {a} (compared with|relative to) the {b}",
        "i:where the {a} is (compared to|relative to|from) the {b}", "i:on which side of the {b} the {a} is", "From the {b}, where is the {a}?", "In which direction from the {b} is the {a}?", "If I start at the {b}, where is the {a}?", "Starting at the {b}, which way is the {a}?",
        "v:describe where the {a} is compared to the {b}", "Seen from the {b}, the {a} is where?", "What is the relation of the {a} to the {b}?", "Which way do I go from the {b} to the {a}?", "{a} relative to {b}?",
    ),
    "bigger": (
        "Which (one |shape |)(is|looks) (bigger|larger|greater in size), the {a} or the {b}?", "(What|Which) is (bigger|larger): (the |){a} or (the |){b}?", "Which of the two (shapes |)is (bigger|larger), the {a} or the {b}?", "Is the {a} or the {b} (bigger|larger|the bigger one)?",
        "(Bigger|Larger): {a} or {b}?", "{a} or {b}, which is (bigger|larger)?", "i:which is (bigger|larger), the {a} or the {b}", "n:the (bigger|larger) one of the {a} and the {b}", "v:compare the {a} and the {b}: which is (bigger|larger)", "Between the {a} and the {b}, which is (bigger|larger)?",
        "Of the {a} and the {b}, which (one |)(is (bigger|larger)|has the greater size)?", "Who is bigger, the {a} or the {b}?", "Which one takes more room, the {a} or the {b}?",
    ),
    "further": (
        "Which (one |)is {x}, the {a} or the {b}?", "Is the {a} or the {b} {x}?", "{a} or {b}, which is {x}?", "i:which is {x}, the {a} or the {b}", "Of the {a} and the {b}, which (one |)is {x}?", "Between the {a} and the {b}, which is {x}?", "What is {x}: the {a} or the {b}?",
        "The {a} and the {b}: which of them is {x}?", "Which of the two is {x}, the {a} or the {b}?",
    ),
    "describe": (
        "What (do|can) you (see|recognize|make out)( <in>|)?", "v:(describe|explain|summarize|comment on) (the|this) <pic>", "What is <in>?", "What's in the <pic>?", "What is (this|that)?", "n:the content of (the|this) <pic>", "i:what (you see|is <in>|the <pic> shows|is <shown>|I am looking at|this is)",
        "What does (the|this|that) <pic> (show|contain|display|depict|present)?", "What is <shown>( here|)?", "What am I looking at?", "v:describe (this|it|what you see|what is <shown>)", "What is there to see( here|)?", "What (kind|sort) of <pic> is (this|it)?", "Your description of the <pic>?",
        "Do you see (anything|something)?", "What can (I|we|one) see <in>?", "What have we here?", "What did I (send|give|show) you?", "What do we have here?", "v:(give me|write) a (short |)description( of the <pic>|)", "describe", "What's (this|that|shown|up here)?", "What is on this <pic>?",
        "Have a look. What is it?", "Look at (this|the) <pic>. What (is it|do you see)?", "What you see?", "What all is <in>?", "In one sentence, what is this?", "What would you call this?", "What is the <pic> about?",
    ),
    "largest": (
        "(Which|What) <bar> is (the |)<top>?", "(What|Which) color is the <top> <bar>?", "(Which|What) (one |)is the <top> <bar>?", "n:the color of the <top> <bar>", "n:the <top> <bar>", "(Which|What) <bar> has the (largest|highest|biggest|greatest|top) (value|number|height|amount)?",
        "i:which <bar> is the <top>", "<top> <bar>?", "Which <bar> (reaches|goes|rises) (the highest|highest|furthest up|the most)?", "v:(find|name|identify|show me|point out|pick) the <top> <bar>", "(Which|What) <bar> (wins|is ahead of all others|is number one)?", "Of all (the |)<bar>s, which is the <top>?",
        "Which of the <bar>s is the <top>?", "(Which|What) is the maximum <bar>?", "The <top> <bar> is (which|what) (one|color)?", "Where is the (maximum|largest value)?", "Which <bar> stands out as the <top>?", "Among the <bar>s, which one is <top>?", "The <bar> with the (largest|highest|greatest) value is which one?", "Which <bar> is (bigger|taller|higher) than all (the |)others?", "Which color has the most?",
        "(Max|Maximum|Top) <bar>?", 
    ),
    "smallest": (
        "(Which|What) <bar> is (the |)<least>?", "(What|Which) color is the <least> <bar>?", "(Which|What) (one |)is the <least> <bar>?", "n:the color of the <least> <bar>", "n:the <least> <bar>", "(Which|What) <bar> has the (smallest|lowest|least|minimum) (value|number|height|amount)?",
        "i:which <bar> is the <least>", "<least> <bar>?", "Which <bar> (reaches|rises) the least?", "v:(find|name|identify|show me|point out|pick) the <least> <bar>", "(Which|What) <bar> (is last|is below all others|comes last)?", "Of all (the |)<bar>s, which is the <least>?",
        "Which of the <bar>s is the <least>?", "(Which|What) is the minimum <bar>?", "The <least> <bar> is (which|what) (one|color)?", "Where is the (minimum|smallest value)?", "Among the <bar>s, which one is <least>?", "The <bar> with the (smallest|lowest) value is which one?", "Which <bar> is (smaller|shorter|lower) than all (the |)others?", "Which color has the least?",
        "(Min|Minimum) <bar>?", 
    ),
    "largest_at": (
        "(Which|What) (label|category|entry) (has|belongs to|goes with) the <top> <bar>?", "(Which|What) is written (under|below) the <top> <bar>?", "n:(the |)label of the <top> <bar>", "n:the label (under|below) the <top> <bar>", "i:which (label|category) has the <top> <bar>",
        "(Where|At which label) is the <top> <bar>?", "Which (label|category) has the (largest|highest|greatest|biggest) (value|number)?", "Under the <top> <bar>, what does it say?", "Which (label|category) (comes first|is ahead|has the most|is number one)?", "v:(find|name|give me|read) the label of the <top> <bar>",
    ),
    "smallest_at": (
        "(Which|What) (label|category|entry) (has|belongs to|goes with) the <least> <bar>?", "(Which|What) is written (under|below) the <least> <bar>?", "n:(the |)label of the <least> <bar>", "n:the label (under|below) the <least> <bar>", "i:which (label|category) has the <least> <bar>",
        "(Where|At which label) is the <least> <bar>?", "Which (label|category) has the (smallest|lowest) (value|number)?", "Under the <least> <bar>, what does it say?", "Which (label|category) (comes last|has the least)?", "v:(find|name|give me|read) the label of the <least> <bar>",
    ),
    "bars": (
        "How many <bar>s are (there|<in>|in the <chart>|drawn|shown)?", "v:count (the|all|all the) <bar>s", "How many <bar>s (does the <chart> have|has the <chart>|do you see|can you count)?", "n:(the |)(number|count) of <bar>s", "i:how many <bar>s (there are|the <chart> has|you see)", "how many <bar>s?", "<bar>s(:| -) how many?",
    ),
    "value": (
        "n:(the |)(value|height|number|size) of the {c} <bar>", "How (high|tall|big|large|much) is the {c} (<bar>|one)?", "(What|Which) (value|number|height) does the {c} <bar> (have|show|reach|stand for)?", "v:(read|estimate|read off|measure|guess) (the value of |the height of |)the {c} <bar>", "n:the {c} <bar>'s (value|height)",
        "i:(how (high|tall|big|much) the {c} <bar> is|what value the {c} <bar> (has|shows|reaches))", "(Which|What) (number|value) does the {c} <bar> reach?", "The {c} <bar> (shows|has|reaches) (which|what) (value|number)?", "{c} <bar>(:| -|,) (value|how much|how high|what value)?", "How much does the {c} <bar> show?", "{c} (value|height)?", "What does the {c} <bar> show?",
        "Up to (which|what) (value|number) does the {c} <bar> (go|reach)?", "About how (high|tall|much) is the {c} <bar>?", "(Roughly|Approximately), (what is the value of|how high is) the {c} <bar>?", "Where does the {c} <bar> end?", "On the (scale|axis), where does the {c} <bar> end?", "How far up does the {c} <bar> go?", "What is the {c} <bar> worth?", "How much is {c}?",
    ),
    "trend": (
        "Does the <line> go (up or down|down or up)?", "n:(the |)(trend|tendency|general direction)", "Is the <line> (rising or falling|going up or down|growing or shrinking|increasing or decreasing|climbing or dropping)?", "trend?", "(Which|What) (way|direction) does the <line> (go|move|head|run)?", "Is it going (up or down|down or up)?",
        "Does (it|the <line>) (rise or fall|increase or decrease|grow or shrink|climb or drop|go upwards or downwards)?", "How does the <line> (develop|change|move|behave|run|go on)?", "Is the trend (upward or downward|up or down|positive or negative|rising or falling)?", "What does the <line> do?", "v:(describe|name|tell me|explain) the (trend|direction)( of the <line>|)",
        "i:(whether|if) the <line> (goes up or down|rises or falls|is rising or falling)", "i:(which|what) way the <line> goes", "n:(the |)(trend|direction|tendency) of the (<line>|chart|data|values)", "Do the values (rise or fall|increase or decrease|go up or down|get bigger or smaller|grow or shrink)?", "Up or down?", "(Rising|Increasing|Growing) or (falling|decreasing|shrinking)?", "In (which|what) direction (goes|is) the <line>( going|)?",
        "Over time, does it (rise or fall|go up or down)?", "Does it get (more or less|better or worse|higher or lower)( from left to right|)?", "From left to right, does the <line> (rise or fall|go up or down)?", "What trend (do you see|does the <line> show|is shown|can be seen)?", "What happens to the (values|<line>)( over time|)?", "<line>: up or down?",
    ),
    "peak": (
        "Where is the <line> (highest|at its highest|at the top|at its maximum)?", "(At|For) (which|what) label is the (highest point|peak|maximum|top)?", "Where is the (peak|maximum|highest point|top|largest value|biggest value)?", "(When|Where) is it highest?", "(Which|What) label has the (highest|largest|biggest|greatest) (point|value)?", "At which point does the <line> reach its (maximum|top|peak|highest value)?",
        "n:(the |)(label|place) of the (highest point|peak|maximum)", "i:where the <line> is (highest|at its maximum)", "i:(when|where) the (maximum|peak) is", "(Peak|Maximum|Max|Highest point)?", "v:(find|name|locate|show me) the (peak|highest point|maximum)", "When does the <line> (peak|reach its top)?", "Which (one|label|entry) is the <top>?", "The highest point is at which label?", "When was the value largest?",
    ),
    "low": (
        "Where is the <line> (lowest|at its lowest|at the bottom|at its minimum)?", "(At|For) (which|what) label is the (lowest point|minimum)?", "Where is the (minimum|lowest point|smallest value|low)?", "(When|Where) is it lowest?", "(Which|What) label has the (lowest|smallest|least) (point|value)?", "At which point does the <line> reach its (minimum|lowest value)?",
        "n:(the |)(label|place) of the (lowest point|minimum)", "i:where the <line> is (lowest|at its minimum)", "i:(when|where) the minimum is", "(Minimum|Min|Lowest point)?", "v:(find|name|locate|show me) the (lowest point|minimum)", "Which (one|label|entry) is the <least>?", "The lowest point is at which label?", "When was the value smallest?",
    ),
    "value_at": (
        "n:(the |)(value|number|height) (at|for|of) {x}", "How (high|big|large) is (the <line>|the value|it) (at|for) {x}?", "(Which|What) (value|number) (does {x} have|belongs to {x}|do you read at {x}|is shown for {x}|goes with {x})?", "How much is it (at|for) {x}?", "v:(read|read off|estimate|guess|tell me) the value (at|for) {x}", "How much is {x}?", "How much for {x}?",
        "i:(how high it is at {x}|what value {x} has|what value is shown at {x}|how much it is at {x})", "At {x}, (what is the value|how high is it|which value do you see)?", "For {x}(:|,) (what value|which number|how much)?", "{x}(:| -|,) (value|how much|which value|what number)?", "{x} value?", "{x}?", "Up to (what|which) value does it go at {x}?", "What does the <chart> show for {x}?", "Where is the value of {x}?",
        "(Roughly|Approximately|About), what is the value at {x}?", "{x} stands at (what|which) value?", "What about {x}?",
    ),
    "number": (
        "(What|Which) <num> (is this|is it|is that|do you see|is <written>|is there|is <in>|can you read)?", "v:read ((the|this|that) (number|numeral)|the (digits|figures))", "i:(what|which) <num> (this is|is <written>|you see|it is|it says|is <in>)", "What does it say?", "number?", "What is <written> (here|there|<in>)?", "n:(the |)<num>( in the <pic>| shown| here|)",
        "(Which|What) (digits|figures) (are <written>|do you see|are there|can you read)?", "(Can|Could) you (read|make out|recognize) the (number|digits|figures|numeral)?", "v:(tell me|say|give me|type out|copy|write down|state|spell out) the (number|digits|figures)", "v:read (this|it|what is <written>)", "What (number|figure) does the <pic> (show|say|have|contain)?", "digits?", "(Which|What) (value|number|figure) is (here|printed here)?", "The number is ...?",
        "n:the (digits|figures) (in the <pic>|shown|printed here)", "(What|Which) is the <num>?", "There is a number. Which one?", "What number the <pic> shows?", "How (does|do) the (number|digits) read?", "What are the digits?", "Which numeral is <written> there?",
    ),
    "word": (
        "What does (it|this|the <text>|the <pic>|that|the sign) say?", "v:read (the|this|that) (word|text|writing|lettering)", "(What|Which) word (is this|is it|do you see|is <written>|is there|is <in>|can you read|stands there)?", "What is <written>( here| there| <in>|)?", "(Can|Could) you (read|make out|recognize) (the|this) (text|word|writing|lettering)?", "v:read (this|it|it out|it aloud|what is <written>|out loud what is <written>)",
        "n:(the |)(word|text)( in the <pic>| shown| <written> here|)", "(What|Which) <text> is (<in>|<written>)?", "word?", "text?", "i:(what|which) word (this is|is <written>|you see|it is|is <in>)", "i:what (it says|the word is|is <written>|the <pic> says|the <text> says|the letters say)", "v:(tell me|say|give me|type out|copy|write down|spell) the (word|text|letters)", "(What|Which) letters (are <written>|do you see|are there|can you read)?", "What do the letters (say|spell|mean together)?",
        "How does the (word|text) read?", "(What|Which) is the word?", "What is the <text>?", "The word is ...?", "What word the <pic> shows?", "What word does the <pic> (show|contain|have)?", "There is a word. Which one?", "What (stands|reads) here?", "v:transcribe (the|this) (text|word|<pic>)", "Which word can (I|we|one) read( here|)?", "What reads the text?", "Please transcribe.", "What was <written>?",
    ),
    "sum": (
        "n:(the |)(answer|result|solution)", "v:(solve|calculate|compute|work out|do) (it|this|the sum|the calculation|the task)", "What (is|comes out as) the (answer|result|solution)?", "i:what (the result is|it makes|it comes to|the answer is)", "How much is (it|this|that)?", "What does (it|this) (make|come to|equal)?", "result?", "What do you get?",
    ),
    "text_colour": (
        "(What|Which) color (is|has) the (<text>|word|number|print)?", "(What|Which) <colour> (are the (letters|characters|digits)|do the (letters|characters|digits) have)?", "n:(the |)<colour> of the (<text>|letters|characters|ink|print)", "n:(the |)(text|ink|font|letter) color", "i:(what|which) <colour> the (<text>|lettering|print) (is|has)", "In (what|which) color is it (written|printed|drawn)?", "text: color?",
        "v:(name|say|tell me) the color of the (text|letters|writing)", "How is the (text|writing) colored?",
    ),
    "thing": (
        "What (is|was) (this|it|that|this thing|that thing|this object)?", "What (do|can) you (see|recognize|make out)( <in>|)?", "What is <in>?", "What does (the|this) <pic> (show|depict|display|present|contain)?", "(what's|whats) (this|that|in the <pic>|here)", "(Which|What) <obj> (is this|is that|is it|is <in>|is <shown>|do you see|can you recognize)?",
        "i:what (this is|it is|that is|is <shown>|is <in>|the <pic> shows|you see|thing this is|this (<obj>) is called)", "n:(the |)name of (this|the) (<obj>|<obj> in the <pic>)", "v:(name|identify|recognize|say the name of) (this|it|the <obj>|this <obj>|what you see)", "What is <shown>( here|)?", "What (kind|sort|type) of (<obj>|thing) is (it|this|that)?", "How (do you|would you|do people|does one) call (this <obj>|this|it|that)?",
        "What is (this|the) <obj>( called| here|)?", "What would you (call this|say this is)?", "What (are we|am I) looking at?", "What (have (we|you) got|do (we|you) have) here?", "Guess what this is.", "This is a ...?", "Everyday thing: which one?", "What's the word for this?", "object?", "what is", "What it is?", "What is this thing?", "v:tell me the name of this", "Have you an idea what this is?", "I found this <pic>. What is it?", "This <pic> shows what?",
        "What do you think (this is|it is)?", "What could (this|it|that) be?", "What (icon|symbol|emoji|pictogram|sign) is (this|that|it)?", "What does this (icon|symbol|emoji|sign) (show|depict|represent)?", "Which everyday <obj> is (this|<shown>)?",
    ),
    "is_thing": (
        "Is (this|it|that) (really |)({s})( or not|)?", "(Do|Can) you (see|recognize) {s}( here|)?", "Does (this|it|the <pic>) (show|depict|look like) {s}?", "(Could|Can|Might) (this|it|that) be {s}?", "Would you call (this|it) {s}?", "s:(this|it|that) is {s}", "s:the <pic> shows {s}", "{s}?", "Is {s} <shown>( here|)?", "Is there {s} <in>?", "Is what we see {s}?", "I see {s}, right?", "Is that {s} or something else?", "Am I looking at {s}?",
    ),
    "meaning": (
        "v:(tell me|say) (more|something) about (it|this|that)", "What is (it|that|this) (used |good |)for?", "v:(explain|define) (it|this|the thing)", "What can you (say|tell me) about (it|this|that)?", "i:more about (it|this|that)", "What does (it|that|this) mean?", "What (kind of thing |)is that exactly?", "What is known about it?", "Some more about it, please.", "v:explain what (it|that) is",
    ),
    "at_place": (
        "What is {x}( of the <pic>| in the <pic>|)?", "What (do|can) you (see|find) {x}?", "(Which|What) (<obj>|shape) is {x}?", "What's {x}?", "i:what (is {x}|you see {x})", "n:the (<obj>|one) {x}", "{x}(:| -|,) what is it?", "{x}, what (do you see|is there)?", "{x}?", "The thing {x} is what?", "v:(name|describe|identify) the (<obj>) {x}", "What has been drawn {x}?", "Look {x}. What is there?", "What stands {x}?",
    ),
    "unknown": (
        "i:(who (took|made|drew|painted|created|sent|uploaded|designed) (this|the|that) <pic>|who the (artist|author|maker|owner|photographer|designer) is)", "Who (made|drew|painted|created|designed|took|sent|edited|ordered) (this|it|the <pic>|that <pic>)?", "n:the name of the (artist|author|maker|owner|photographer|painter|person who drew this)", "Whose <pic> is (this|it)?",
        "When was (this|the|that) <pic> (taken|made|drawn|created|painted|printed)?", "i:when (this <pic> was (made|taken|drawn|painted)|it was made)", "In (which|what) (year|month|century|season) was (this|it) (made|taken|drawn)?", "(On|At) (what|which) (day|date|time|hour) was (this|it) (made|taken|drawn)?", "How long ago was this made?", "n:the (date|year|time) of the <pic>", "How long did it take to (make|draw) (this|it)?",
        "Where was (this|the|that) <pic> (taken|made|drawn|painted|found)?", "In (which|what) (country|city|town|place|room|building|museum|shop) was (this|it) (made|taken|drawn|bought)?", "i:where (this <pic> was (made|taken)|it was bought|it comes from)", "(Which|What) (country|city|company|shop) is (this|it) from?", "n:the (address|place) where this was made", "Where does the (artist|owner|maker) live?",
        "How much (does|did) (it|this|that) cost?", "n:the price( of it| of this|)", "Is (it|this) (expensive|cheap|for sale|worth much)?", "i:what (it costs|the price is|someone paid for it)", "What did someone pay for (it|this)?", "How much money is (it|this) worth?", "Where can I buy (it|this)?", "(Who|Which person) (bought|sold|owns|lost|found|stole|invented) (it|this)?", "(Who|Whom) does (it|this) belong to?", "n:the (owner|buyer|seller)( of this| of it|)", "i:who (owns it|it belongs to|bought it)",
        "What does (it|this) (smell|taste|feel) like?", "i:what it (smells|tastes|feels|sounds) like", "Does (it|this) (smell|taste|sound) (good|bad|nice)?", "What (sound|noise) does (this one|it) make right now?", "How loud is (it|this)?", "Is (it|this) (warm|cold|wet|soft|hot) to the touch?", "What is the temperature (of it|there|in the <pic>)?",
        "What is (inside|hidden inside|within) (it|of it)?", "What is hidden (behind|under) (it|this)?", "i:what is (inside|hidden behind it|under it|outside the <pic>)", "What is (outside|beyond) the <pic>?", "What is on the back of the <pic>?", "What (happened|was there|came) (before|just before|after|afterwards)( this|)?", "What (will happen|happens|comes) (next|later|afterwards|tomorrow)?", "i:what (will happen next|happened before this)", "Why was (it|this|the <pic>) (drawn|made|taken|painted)?", "i:why (it was made|someone drew this|this was drawn)", "For whom was (it|this) (made|drawn)?",
        "How old is (it|this|the artist|the owner|the maker)?", "n:the age of (it|the owner|the artist|the maker)", "How (heavy|many pounds|many kilos) is (it|this)?", "n:the weight( of it| of this|)", "i:how (heavy|old|expensive|much) it is( in real life| exactly|)", "How much does (it|this) weigh?", "How many (grams|kilograms|pounds) does it weigh?",
        "(Which|What) (camera|phone|pen|brush|program|software|app|lens|paper|printer) was used( for this| to make it|)?", "i:which (camera|program|pen|brush) was used", "(What|Which) (brand|make|model) is (it|this|the camera)?", "What (is it|was it) made of in real life?", "n:the (brand|serial number|manufacturer|size in inches|file name)",
        "What was the weather like( that day| when it was made|)?", "Was it (raining|sunny|windy|snowing|cold|hot)( that day| outside| when it was made|)?", "n:the weather( on that day| outside)", "Is it (raining|day or night|summer or winter) outside the <pic>?", "What do (other people|others|my friends|the critics|experts|most people) think (of|about) (it|this)?", "Does (my friend|the owner|the artist|everybody|my mother|my boss) like (it|this)?", "i:what others think of it", "Who (likes|hates) (it|this)?", "Did the artist enjoy making (it|this)?",
        "n:(the |)(phone|telephone|house|account) number of the (owner|artist|maker|shop)", "What is (his|her|their|the owner's|the artist's|the maker's) (name|phone number|age|email address|address|job|favorite food|birthday)?", "Can I call the owner, and at which number?", "How many people have seen (this|it)?", "How many copies (exist|were sold|are there in the world)?", "Is (it|this) (famous|stolen|insured|a copy|a present|a fake)?", "Who is standing (behind the camera|next to the artist|outside the <pic>)?", "Who else (saw|has) this?",
    ),
    "first": (
        "What (was|is) (in|on) the (first|earlier|previous|other) <pic>?", "What did the (first|earlier|previous) <pic> show?", "(And|What about|How about|Back to) the (<pic> before|first <pic>|first one|previous <pic>|earlier one)(?|: what was it?|. What was that?)", "What did you see in the (first|earlier|previous) <pic>?", "v:remind me what the (first|previous|earlier) <pic> (was|showed)", "i:what (the first <pic> showed|was in the first <pic>|we had in the first <pic>)",
        "n:the content of the first <pic>", "The first <pic> again: what was (it|in it)?", "v:describe the (first|earlier|previous) <pic>( again|)", "Do you (still |)remember the first <pic>?", "What was the <pic> before this one?", "What did I (send|show) you (first|before|at first|at the start)?", "Before this one, what did you see?", "(first|previous) <pic>?",
    ),
    "second": (
        "(And|What about|How about|Now|OK, and|Next,) (this one|this <pic>|that one|the new one|this|the next one|the second one|the next <pic>)?", "What is (in|on) (this|the new|the second|the next) (one|<pic>)?", "And what is (here|this|in here)?", "Now this (one|<pic>)(.|: what is it?|. What do you see?)", "Next (<pic>|one): what (is it|do you see)?", "Here is another (one|<pic>). What (is it|does it show|do you see)?", "v:(describe|look at|name) (this one|the new <pic>|the second <pic>)( too| as well| now|)",
        "i:what (this one|the new <pic>|this second <pic>) (shows|is)", "And what do you see (now|here|this time)?", "What does (this|the new|the second) (one|<pic>) show?", "Another <pic>. What is it?", "The same for this (one|<pic>), please.", "I have (one more|another|a second) <pic>. What is (this|it)?",
    ),
    "both": (
        "What is (in|on) (the two|both|these|these two) (pictures|images|photos|drawings)?", "v:(describe|look at|name|compare) (both|the two|these|these two) (pictures|images|photos|drawings)", "What do (the|these|both|the two) (pictures|images|photos) show?", "What are these( two|)?", "What do you see in (the two|both|these) (pictures|images|photos)?", "i:what (both|the two|these) (pictures|images) show", "n:the content of (both|the two) (pictures|images)",
        "Two pictures: what (do you see|is in them)?", "What is shown (on|in) each (picture|image|one)?", "What do you see (on the one and on the other|in each of them)?", "Both pictures, please.", "Here are two (pictures|images). What (are they|do they show|do you see)?", "What have I sent you?",
    ),
    "of_two": (
        "What (is|do you see|can be seen) (in|on) the {x} (<pic>|one)?", "What does the {x} (<pic>|one) (show|depict|contain)?", "What is the {x} (one|<pic>)?", "(And|What about|How about|Now) the {x} (one|<pic>)?", "v:(describe|name|explain) the {x} (<pic>|one)", "i:what (the {x} <pic> shows|is in the {x} <pic>|you see in the {x} one)", "n:the content of the {x} <pic>", "{x} (<pic>|one)?", "{x} (<pic>|one)(:| -|,) what is it?",
        "Only the {x} <pic>: what is it?", "Look at the {x} (<pic>|one). What (is it|do you see)?", "The {x} (one|<pic>) shows what?",
    ),
}  # fmt: skip
_CLASS = re.compile(r"<(\w+)>")
_SLOT = re.compile(r"\{(\w)\}")
_MOST = 400  # forms of one line: the rest would differ in a word or two, and take memory


def _expand(text: str) -> list[str]:
    """All texts without brackets and classes."""
    while "<" in text:
        text = _CLASS.sub(lambda m: f"({WORDS[m[1]]})", text)
    return every(text.replace("(", "[").replace(")", "]"))


def _line(line: str) -> tuple[str, ...]:
    """The sentences a line stands for, at most _MOST of them, always the same ones."""
    chance = Random(line)
    mark, _, core = line.partition(":")
    if mark not in FRAMES:
        made = _expand(line)
    else:
        cores, frames = _expand(core), [f for frame in FRAMES[mark] for f in _expand(frame)]
        pairs = [(c, f) for c in cores for f in frames]
        chosen = pairs if len(pairs) <= 2 * _MOST else chance.sample(pairs, 2 * _MOST)
        made = [f.replace("{}", c) if f[:2] == "{}" else first_upper(f.replace("{}", c)) for c, f in chosen]
    made = [text for text in dict.fromkeys(made) if is_free(text)]
    return tuple(made if len(made) <= _MOST else chance.sample(made, _MOST))


_FORMS = {kind: tuple(_line(line) for line in lines) for kind, lines in LINES.items()}
QUESTIONS: dict[str, tuple[str, ...]] = {
    kind: tuple(dict.fromkeys(text for line in lines for text in line)) for kind, lines in _FORMS.items()
}


@lru_cache(maxsize=256)
def _fitting(kind: str, words: frozenset[str], named: bool) -> tuple[tuple[list[str], ...], tuple[float, ...]]:
    """Lines of a kind that can be filled with these words, and how often each is taken."""
    lines = []
    for line in _FORMS[kind]:
        fits = [t for t in line if (words == set(_SLOT.findall(t)) if named else words >= set(_SLOT.findall(t)))]
        if fits:
            lines.append(fits)
    return tuple(lines), tuple(len(line) ** 0.4 for line in lines)


def choose(rng: Random, kind: str, words: frozenset[str], named: bool) -> str:
    """A template; every line has its chance, those with many forms a greater one."""
    lines, weights = _fitting(kind, words, named)
    return rng.choice(rng.choices(lines, weights)[0])
