"""How people ask about pictures. Evaluation uses other sentences: `heldout/questions.py`.

{s} shape or thing, {p} its plural, {c} colour, {a} and {b} two things, {r} relation, {x} a label.
"""

from __future__ import annotations

QUESTIONS: dict[str, tuple[str, ...]] = {
    "colour": (
        "What color is the {s}?", "Which color does the {s} have?", "What is the color of the {s}?", "What color is it?",
        "The {s} is what color?", "What color does the {s} have?", "Name the color of the {s}.", "color of the {s}?",
        "Which color is the {s}?", "Do you see which color the {s} is?", "Say the color of the {s}.", "color?",
        "What colored {s} is this?", "Is the {s} red, blue or another color?", "Look at the {s}. What color is it?",
    ),
    "shape": (
        "What shape is this?", "What shape do you see?", "Which shape is in the picture?", "What is the {c} thing?",
        "What shape is it?", "Which shape is it?", "What shape is the {c} one?", "shape?", "Name the shape.",
        "What kind of shape is this?", "What is the shape of the {c} object?", "Which shape is {c}?",
        "What shape does the {c} thing have?", "Look at the {c} object. What shape is it?", "What shape is {c}?",
    ),
    "position": (
        "Where is the {s}?", "Where in the picture is the {s}?", "Where is it?", "In which part is the {s}?",
        "Where do you see the {s}?", "Where can I find the {s}?", "What is the position of the {s}?", "where's the {s}?",
        "Where is the {s} in the image?", "Whereabouts is the {s}?", "position of the {s}?", "Locate the {s}.",
        "At which place is the {s}?", "Is the {s} at the top, in the middle or at the bottom?",
    ),
    "background": (
        "What color is the background?", "Which color is behind the shape?", "What is the background color?",
        "background color?", "What color is behind it?", "Which color does the background have?",
        "What is the color of the background?",
    ),
    "count": (
        "How many {p} are there?", "How many {p} do you see?", "Count the {p}.", "how many {p}?", "How many {p} are here?",
        "Can you count the {p}?", "How many {p} are in the picture?", "What is the number of {p}?", "number of {p}?",
        "How many {p} does the picture show?", "Please count the {p}.", "How many {p} can you find?",
        "Count how many {p} there are.", "How many {p} are drawn here?", "How many {p} in the image?",
    ),
    "count_all": (
        "How many shapes are there?", "How many objects do you see?", "Count the shapes.", "how many things are there?",
        "How many shapes are in the picture?", "Count all the objects.", "How many things do you see?",
        "How many objects are in the image?", "What is the total number of shapes?",
    ),
    "exists": (
        "Is there {s} in the picture?", "Is there {s}?", "Do you see {s}?", "Can you see {s}?", "Does the picture have {s}?",
        "Is {s} in the image?", "Any chance there is {s} here?", "Does it show {s}?",
    ),
    "is_colour": (
        "Is the {s} {c}?", "Is the color of the {s} {c}?", "Does the {s} look {c}?", "Is it true that the {s} is {c}?",
        "Is this a {c} {s}?", "Would you say the {s} is {c}?",
    ),
    "relation": (
        "Is the {a} {r} the {b}?", "Is the {a} {r} the {b} or not?", "Do you see the {a} {r} the {b}?",
        "Is it true that the {a} is {r} the {b}?", "Would you say the {a} is {r} the {b}?", "the {a} {r} the {b}?",
        "Can you see whether the {a} is {r} the {b}?", "Does the picture show the {a} {r} the {b}?",
        "Look closely: is the {a} {r} the {b}?", "Am I right that the {a} is {r} the {b}?",
    ),
    "which_side": (
        "What is the place of the {a} compared with the {b}?", "Where is the {a} compared to the {b}?",
        "Where is the {a}, seen from the {b}?", "On which side of the {b} is the {a}?", "Where is the {a} relative to the {b}?",
    ),
    "bigger": (
        "Which is bigger, the {a} or the {b}?", "Which one is larger, the {a} or the {b}?", "What is bigger: {a} or {b}?",
        "Which of the two is bigger, the {a} or the {b}?", "Is the {a} or the {b} bigger?",
    ),
    "describe": (
        "What do you see?", "Describe the picture.", "What is in this picture?", "What's in the image?", "What is this?",
        "Can you describe this image?", "What is in the picture?", "Tell me what you see.", "What does the picture show?",
        "Describe this.", "What can you see here?", "What is shown?", "Explain the picture.", "What am I looking at?",
    ),
    "largest": (
        "Which bar is the tallest?", "Which bar is the highest?", "What color is the tallest bar?", "Which bar is largest?",
        "Which one is the biggest bar?", "What is the color of the highest bar?", "Which bar has the largest value?",
        "Which bar is the longest?", "tallest bar?", "Show me the biggest bar: which color?", "What bar is on top?",
    ),
    "smallest": (
        "Which bar is the shortest?", "Which bar is the smallest?", "What color is the shortest bar?", "shortest bar?",
        "Which bar is the lowest?", "Which bar has the smallest value?", "What is the color of the lowest bar?",
        "Which one is the smallest bar?", "What color is the tiniest bar?",
    ),
    "bars": ("How many bars are there?", "Count the bars.", "How many bars does the chart have?", "number of bars?"),
    "value": (
        "What is the value of the {c} bar?", "How high is the {c} bar?", "What value does the {c} bar have?",
        "How much is the {c} bar?", "Read the {c} bar.", "value of the {c} bar?", "Which number does the {c} bar reach?",
        "How tall is the {c} bar?", "The {c} bar shows which value?",
    ),
    "trend": (
        "Does the line go up or down?", "What is the trend?", "Is the line rising or falling?", "trend?",
        "Which way does the line go?", "Is it going up or down?", "Does it rise or fall?", "How does the line develop?",
        "Is the trend upward or downward?", "What does the line do?",
    ),
    "peak": (
        "Where is the line highest?", "At which label is the highest point?", "Where is the peak?", "When is it highest?",
        "Which label has the highest point?", "At which point does the line reach its maximum?",
    ),
    "low": (
        "Where is the line lowest?", "At which label is the lowest point?", "When is it lowest?",
        "Which label has the lowest point?", "At which point does the line reach its minimum?",
    ),
    "value_at": (
        "What is the value at {x}?", "How high is the line at {x}?", "value at {x}?", "Which value does {x} have?",
        "How much is it at {x}?", "Read the value at {x}.",
    ),
    "number": (
        "What number is this?", "Read the number.", "Which number do you see?", "What does it say?", "number?",
        "What is written here?", "Which number is written there?", "What number do you see?", "Can you read the number?",
        "Tell me the number.", "What number is in the picture?", "Read this.", "What number is shown?",
    ),
    "word": (
        "What does it say?", "Read the word.", "What word is this?", "What is written here?", "Can you read the text?",
        "What does the picture say?", "Read this.", "Which word do you see?", "What is the word?", "Read the text.",
        "Which word is written there?", "What text is in the image?", "word?", "Please read it.", "What is written?",
    ),
    "sum": ("What is the answer?", "Solve it.", "Calculate this.", "What is the result?", "Can you solve this?"),
    "text_colour": ("What color is the text?", "Which color are the letters?", "What color is the writing?"),
    "thing": (
        "What is this?", "What do you see?", "What is in the picture?", "What does the picture show?", "what's this",
        "Which thing is this?", "Can you tell me what this is?", "What is it?", "Name this.", "Do you know what this is?",
        "What is shown here?", "What's in the image?", "Identify this.", "What object is this?", "What kind of thing is it?",
    ),
    "is_thing": (
        "Is this {s}?", "Is it {s}?", "Do you see {s}?", "Does this show {s}?", "Could this be {s}?", "Is that {s}?",
        "Would you call this {s}?",
    ),
    "meaning": ("Tell me more about it.", "What is that used for?", "Explain it.", "What can you say about it?"),
    "at_place": ("What is {x}?", "What do you see {x}?", "Which thing is {x}?", "What's {x}?"),
    "unknown": (
        "Who took this picture?", "When was this picture taken?", "Where was this picture taken?", "Who made this?",
        "How much does it cost?", "What is the name of the owner?", "What is behind it?", "What happened before this?",
        "Why was it drawn?", "Who drew it?", "How old is it?", "What does it smell like?", "Which camera was used?",
        "How heavy is it?", "Who does it belong to?", "What will happen next?", "What is inside?", "Is it expensive?",
    ),
    "first": (
        "What was in the first picture?", "What did the first picture show?", "And the picture before?",
        "What did you see in the first image?", "Remind me what the first picture was.",
    ),
    "second": (
        "And this one?", "What about this one?", "And what is here?", "Now this one.", "And this picture?",
        "What is in this one?", "How about this?", "Next picture: what is it?",
    ),
    "both": (
        "What is in the two pictures?", "Describe both pictures.", "What do the pictures show?", "What are these two?",
        "What do you see in the two images?",
    ),
    "of_two": (
        "What is in the {x} picture?", "What does the {x} picture show?", "What is the {x} one?", "And the {x} one?",
        "Describe the {x} image.",
    ),
}  # fmt: skip
