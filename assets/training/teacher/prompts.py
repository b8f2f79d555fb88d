"""What the teacher is asked. Prompts are made from templates and word lists, so that hardly any is asked twice."""

from __future__ import annotations

import random
from typing import NamedTuple

from assets.training.chats.facts import NAMES
from assets.training.material import FEW_WORDS

PLACES = (
    "the kitchen", "school", "the office", "the garden", "a small town", "the beach", "the mountains", "a big city", "home",
    "a farm", "the library", "space", "the forest", "a train", "a hospital", "the gym", "a museum", "the supermarket",
)  # fmt: skip
FEELINGS = (
    "sad", "tired", "stressed", "happy", "bored", "nervous", "lonely", "angry", "excited", "worried", "confused", "proud",
    "curious", "thankful", "shy", "jealous", "hopeful", "restless",
)  # fmt: skip
GOALS = (
    "learn to cook", "save money", "sleep better", "learn a new language", "get fit", "read more books", "make new friends",
    "study for an exam", "write a letter", "plan a trip", "clean my room", "start a garden", "learn to draw", "play chess",
    "learn the guitar", "find a job", "be more organized", "wake up early", "drink more water", "train my dog",
    "give a speech", "write a poem", "bake bread", "fix a bike", "take better photos", "learn to swim", "relax after work",
    "stay focused", "make a budget", "eat healthier", "spend less time on my phone", "say no politely", "pack a suitcase",
    "welcome a guest", "choose a gift", "keep plants alive", "remember names", "learn to dance", "calm down", "be on time",
)  # fmt: skip
TEMPLATES: tuple[tuple[str, float], ...] = (
    ("What is {n}?", 4), ("What is a {n} used for?", 2), ("Tell me about {n}.", 3), ("Explain {n} in simple words.", 3),
    ("Can you explain what {n} means?", 2), ("Tell me a short story about a {a} {n}.", 2), ("How do people use a {n}?", 2),
    ("Write a very short story about {name} and a {n}.", 2), ("Why is {n} important?", 2), ("Where does {n} come from?", 2),
    ("What is the difference between {n} and {m}?", 1), ("Give me three tips on how to {goal}.", 2), ("How can I {goal}?", 3),
    ("I want to {goal}. Any advice?", 2), ("I feel {f} today because of {n}.", 2), ("I am {f}. What should I do?", 1),
    ("What does it mean to {v}?", 2), ("What can I do at {p}?", 1), ("Describe {p}.", 0.5), ("Give me a fun fact about {n}.", 1),
    ("Name three things you find in {p}.", 0.5), ("Where can I find {n}?", 1), ("How does a {n} work?", 1),
    ("Write a short message to {name} about {n}.", 2), ("What do you think about {n}?", 2), ("Is {n} good or bad?", 1),
    ("What would you say to someone who likes {n}?", 1), ("My friend {name} has a {n}. What can we do with it?", 2),
    ("Describe a {a} {n}.", 2), ("How would you describe {n} to a child?", 2), ("I saw a {a} {n} at {p}.", 2),
    ("What makes a {n} {a}?", 2), ("Why do people {v}?", 2), ("When should I {v}?", 1), ("{name} wants to {v}. Any ideas?", 2),
)  # fmt: skip
FOLLOW_UPS = (
    "Why?", "Can you give me an example?", "Tell me more.", "Say it in one short sentence.", "How do I start?", "Is that hard?",
    "What else?", "Thank you, that helps. What should I read next?", "And what if that doesn't work?", "Who could help me?",
    "What does that mean?", "Can you explain it to a child?",
)  # fmt: skip
SYSTEMS = (
    "You are a helpful assistant. Give a short answer in one or two sentences.",
    "You are a friendly assistant. Answer in one to three short, simple sentences.",
    "You are a helpful assistant. Keep every answer short and clear.",
)  # fmt: skip


class Asked(NamedTuple):
    """One conversation to be written: the user's turns are given, the answers are the teacher's."""

    system: str
    questions: tuple[str, ...]


class Prompts:
    """Random conversations; word lists come from the sources stage, or a few built-in ones."""

    def __init__(self, rng: random.Random, words: dict[str, list[str]]) -> None:
        self.rng = rng
        self.nouns = words.get("nouns") or list(FEW_WORDS)
        self.verbs = words.get("verbs") or ["walk", "read", "sing"]
        self.adjectives = words.get("adjectives") or ["small", "old", "green"]

    def make(self) -> Asked:
        rng = self.rng
        text = rng.choices([t for t, _ in TEMPLATES], [w for _, w in TEMPLATES])[0]
        question = text.format(
            n=rng.choice(self.nouns), m=rng.choice(self.nouns), a=rng.choice(self.adjectives), v=rng.choice(self.verbs),
            name=rng.choice(NAMES), p=rng.choice(PLACES), f=rng.choice(FEELINGS), goal=rng.choice(GOALS),
        )  # fmt: skip
        if rng.random() < 0.1:
            question = question[0].lower() + question[1:]
        more = rng.choices((0, 1, 2), (65, 27, 8))[0]
        return Asked(rng.choice(SYSTEMS), (question, *rng.sample(FOLLOW_UPS, more)))
