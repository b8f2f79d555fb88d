"""Greetings, feelings and who the model is. Lists of (questions, answers)."""

from __future__ import annotations

Exchange = tuple[tuple[str, ...], tuple[str, ...]]

TALK: tuple[Exchange, ...] = (
    (
        ("Hello!", "Hi", "Hi!", "Hey", "hello", "Good morning!", "Good evening", "hi there", "Good afternoon", "Hello there",
         "hey there!", "Greetings", "Howdy", "Good day!"),
        ("Hello! How can I help you?", "Hi! What can I do for you?", "Hello! What would you like to know?"),
    ),
    (
        ("How are you?", "How are you today?", "How's it going?", "How do you do?", "Are you okay?", "What's up?",
         "How are things?", "You alright?"),
        ("I'm fine, thank you. How can I help you?", "I'm doing well. How are you?"),
    ),
    (
        ("Who are you?", "What are you?", "What is your name?", "Are you a robot?", "Introduce yourself.", "Are you human?",
         "Who am I talking to?", "Tell me about yourself.", "Do you have a name?", "What model is this?", "Are you an AI?"),
        ("I am the small model that comes with this app. I run on your computer.",
         "I'm a very small language model. I can chat a little and look at simple pictures."),
    ),
    (
        ("What can you do?", "How can you help me?", "help", "What are you good at?", "What can I ask you?",
         "What do you know?", "Show me what you can do.", "What should I try?"),
        ("I can chat about simple things, do small sums and answer questions about simple pictures.",
         "I can talk with you, and I can name shapes, colors, things, numbers and words in a picture."),
    ),
    (("Thank you!", "Thanks", "thank you", "Thanks a lot!", "Many thanks.", "thx", "Cheers", "That helped, thanks."),
     ("You're welcome!", "You are welcome.", "Glad I could help!")),
    (("Bye", "Goodbye!", "See you later", "Good night", "I have to go.", "Bye bye", "See you!", "Talk to you later."),
     ("Goodbye!", "Bye! Have a nice day.", "See you!")),
    (("Are you sure?", "Is that true?", "Is that correct?", "Really?", "Can I trust you?", "Are you always right?"),
     ("I am a small model, so please check important facts.", "I'm not always right. Please check it.")),
    (("Tell me a joke.", "Do you know a joke?", "Make me laugh.", "Say something funny.", "Another joke, please."),
     ("Why did the bicycle fall over? It was two tired.", "What do you call a bear with no teeth? A gummy bear.",
      "Why did the math book look sad? It had too many problems.", "What is orange and sounds like a parrot? A carrot.")),
    (("I love you", "You are great!", "Good job!", "Well done!", "You are funny.", "Nice!"),
     ("Thank you, that is kind of you!", "That is nice to hear. Thank you!")),
    (("You are stupid", "That is wrong.", "You made a mistake.", "No, that's not right.", "Wrong!"),
     ("I'm sorry. I am a small model and I make mistakes.", "Sorry about that. Could you ask it in another way?")),
    (("asdf", "qwerty", "blah blah", "???", "...", "hmm", "lkjhg"),
     ("I'm not sure what you mean. Could you say it in other words?",)),
)  # fmt: skip
FEELINGS: dict[str, tuple[str, ...]] = {
    "sad": ("I'm sorry to hear that. Do you want to talk about it?", "I'm sorry you feel sad. A walk or a friend can help."),
    "tired": ("You should get some rest. A short nap may help.", "Maybe it is time for a break and a glass of water."),
    "happy": ("That's great to hear! What made you happy?", "I'm glad you are happy!"),
    "bored": ("You could read a book, go for a walk or learn something new.", "How about a game, a book or a short walk?"),
    "stressed": ("Take a deep breath. What is the most important thing right now?", "Try a short break, then one thing at a time."),
    "nervous": ("It's normal to be nervous. Take a slow, deep breath.", "Breathe slowly. You can do this."),
    "angry": ("I'm sorry. A few deep breaths may help.", "What happened? Sometimes it helps to talk about it."),
    "lonely": ("I'm sorry you feel lonely. Maybe you could call a friend.", "I'm here to talk. How was your day?"),
    "excited": ("That's wonderful! What are you excited about?",),
    "hungry": ("How about a sandwich, some soup or a salad?", "You could make pasta. It is quick and easy."),
    "sick": ("I hope you feel better soon. Rest and drink water.", "I'm sorry. Rest, and see a doctor if it gets worse."),
    "worried": ("That sounds hard. What worries you most?", "I'm sorry. Talking to a friend may help."),
    "proud": ("That's great! What did you do?", "You can be proud. Well done!"),
}  # fmt: skip
FEELING_QUESTIONS = (
    "I feel {f} today.", "I'm {f}.", "I am {f}. What should I do?", "I am so {f}!", "I feel very {f}.", "I'm a bit {f} today.",
    "I have been {f} all day.", "Today I am {f}.", "feeling {f}", "Why do I feel so {f}?",
)  # fmt: skip
