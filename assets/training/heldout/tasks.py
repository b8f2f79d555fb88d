"""The rows of the ability table: how an item of each task is made, and what score is wanted."""

from __future__ import annotations

import random
from collections.abc import Callable

from PIL import Image

from assets.training.chats import facts
from assets.training.chats.mix import Chat
from assets.training.heldout import items as judge
from assets.training.heldout import questions as q
from assets.training.heldout.drawings import (
    GROUNDS,
    SIZES,
    Figure,
    bar_chart,
    figures_picture,
    icon_picture,
    line_chart,
    printed_text,
    scattered,
)
from assets.training.heldout.items import SHAPES, Ask, Item
from assets.training.material import FEW_WORDS, Material
from assets.training.phrases import plural
from assets.training.pictures.names import THINGS

NUMBERS = ("no", "one", "two", "three", "four", "five", "six")


class Tasks:
    """Makes items; the n-th item of a task is always the same."""

    def __init__(self, material: Material, chats: list[Chat]) -> None:
        self.material, self.chats = material, chats
        self.fonts = material.held_fonts or material.fonts
        self.words = material.held_words or list(FEW_WORDS)
        ranks = {w: i for i, w in enumerate(material.nouns)}
        named = set(material.held_icons.names) if material.held_icons else set()
        self.things = set(sorted(named, key=lambda n: (ranks.get(n.split()[-1], 10**6), n))[:300])

    def make(self, task: str, number: int) -> Item:
        rng = random.Random(f"{task} {number}")
        maker, _ = TASKS[task]
        return maker(self, rng)

    def _ask(self, rng: random.Random, kind: str, *pictures: Image.Image, **words: str) -> Ask:
        return Ask(rng.choice(q.ASKED[kind]).format(**words), pictures)

    def _scene(
        self, rng: random.Random, count: int, kinds: tuple[str, ...] = SHAPES
    ) -> tuple[list[Figure], Image.Image]:
        ground = rng.choice(list(GROUNDS))
        figures = scattered(rng, count, ground, kinds)
        if count == 1:
            figures = [figures[0]._replace(radius=rng.uniform(0.1, 0.22))]
        return figures, figures_picture(rng, figures, GROUNDS[ground], rng.choice(SIZES))

    def _single(self, rng: random.Random, several: bool) -> tuple[Figure, Image.Image]:
        """A figure whose shape occurs once."""
        while True:
            figures, picture = self._scene(rng, rng.randint(2, 5) if several else 1)
            alone = [f for f in figures if sum(o.shape == f.shape for o in figures) == 1]
            if alone:
                return rng.choice(alone), picture

    def colour(self, rng: random.Random, task: str = "colour", several: bool = False) -> Item:
        one, picture = self._single(rng, several)
        return Item(task, (self._ask(rng, "colour", picture, s=one.shape),), judge.colour(one.colour), one.colour)

    def shape(self, rng: random.Random) -> Item:
        one, picture = self._single(rng, False)
        return Item("shape", (self._ask(rng, "shape", picture),), judge.shape(one.shape), one.shape)

    def position(self, rng: random.Random, task: str = "position", several: bool = False) -> Item:
        one, picture = self._single(rng, several)
        return Item(task, (self._ask(rng, "position", picture, s=one.shape),), judge.place(one.zone), one.zone)

    def count(self, rng: random.Random) -> Item:
        kind, count = rng.choice(SHAPES), rng.randint(1, 6)
        _, picture = self._scene(rng, count, (kind,))
        return Item("count", (self._ask(rng, "count", picture, p=plural(kind)),), judge.number(count), NUMBERS[count])

    def count_kind(self, rng: random.Random) -> Item:
        kinds = tuple(rng.sample(SHAPES, 2))
        figures, picture = self._scene(rng, rng.randint(3, 6), kinds)
        count = sum(f.shape == kinds[0] for f in figures)
        asked = self._ask(rng, "count", picture, p=plural(kinds[0]))
        return Item("count_kind", (asked,), judge.number(count), NUMBERS[count])

    def relation(self, rng: random.Random) -> Item:
        relation = rng.choice(list(q.RELATIONS))
        while True:
            ground = rng.choice(list(GROUNDS))
            kinds = rng.sample(SHAPES, 3)
            figures = [f._replace(shape=k) for f, k in zip(scattered(rng, 3, ground), kinds, strict=True)]
            if relation == "bigger than":
                figures = [f._replace(radius=r) for f, r in zip(figures, rng.sample((0.07, 0.13, 0.1), 3), strict=True)]
            a, b = figures[:2]
            gap = {"left of": b.x - a.x, "right of": a.x - b.x, "above": b.y - a.y, "below": a.y - b.y}
            lead = gap.get(relation, 5 * (a.radius - b.radius))
            if abs(lead) > 0.2:
                break
        picture = figures_picture(rng, figures, GROUNDS[ground], rng.choice(SIZES))
        said = rng.choice(q.RELATIONS[relation])
        asked = self._ask(rng, "relation", picture, a=a.shape, b=b.shape, x=said)
        return Item("relation", (asked,), judge.yes_no(lead > 0), "yes" if lead > 0 else "no")

    def largest(self, rng: random.Random) -> Item:
        kind = rng.choice(("largest", "smallest"))
        chart = bar_chart(rng, rng.choice(self.fonts))
        best = (max if kind == "largest" else min)(chart.values)
        colour = chart.colours[chart.values.index(best)]
        return Item("largest", (self._ask(rng, kind, chart.picture),), judge.colour(colour), colour)

    def trend(self, rng: random.Random) -> Item:
        picture, rises = line_chart(rng, rng.choice(self.fonts))
        up = ("up", "rising", "rises", "climbing", "increases", "upward")
        down = ("down", "falling", "falls", "dropping", "decreases", "downward")
        good = up if rises else down
        other = up + down
        return Item("trend", (self._ask(rng, "trend", picture),), judge.only(good, other), good[0])

    def value(self, rng: random.Random) -> Item:
        chart = bar_chart(rng, rng.choice(self.fonts))
        i = rng.randrange(len(chart.values))
        asked = self._ask(rng, "value", chart.picture, c=chart.colours[i])
        return Item("value", (asked,), judge.number(chart.values[i], 0.1), str(chart.values[i]))

    def number(self, rng: random.Random) -> Item:
        text = str(rng.randint(0, 10 ** rng.randint(1, 4) - 1))
        picture = printed_text(rng, text, rng.choice(self.fonts))
        return Item("number", (self._ask(rng, "number", picture),), judge.number(float(text)), text)

    def word(self, rng: random.Random) -> Item:
        text = rng.choice(self.words)
        shown = rng.choice((text, text.upper(), text.capitalize()))
        picture = printed_text(rng, shown, rng.choice(self.fonts))
        return Item("word", (self._ask(rng, "word", picture),), judge.written(text), text)

    def _thing(self, rng: random.Random) -> tuple[str, Image.Image]:
        icons = self.material.held_icons
        if icons is None:  # nothing was packed: shapes stand in
            one, picture = self._single(rng, False)
            return one.shape, picture
        row = rng.choice([i for i, name in enumerate(icons.names) if name in self.things])
        return icons.names[row], icon_picture(rng, icons, row)

    def thing(self, rng: random.Random) -> Item:
        name, picture = self._thing(rng)
        return Item("thing", (self._ask(rng, "thing", picture),), judge.any_of(THINGS.get(name, (name,))), name)

    def follow_up(self, rng: random.Random) -> Item:
        """A second question about one picture, or one about the first of two."""
        one, picture = self._single(rng, True)
        if rng.random() < 0.5:
            asks = (self._ask(rng, "position", picture, s=one.shape), self._ask(rng, "again_colour", s=one.shape))
            return Item("follow_up", asks, judge.colour(one.colour), one.colour)
        alone, first = self._single(rng, False)
        asks = (
            self._ask(rng, "shape", first), self._ask(rng, "position", picture, s=one.shape), self._ask(rng, "first_picture"),
        )  # fmt: skip
        return Item("follow_up", asks, judge.any_of((alone.shape,)), alone.shape)

    def refusal(self, rng: random.Random) -> Item:
        kind = rng.choice(("no picture", "beyond", "unknown"))
        if kind == "unknown":
            _, picture = self._single(rng, False)
            asked = self._ask(rng, "unknown", picture)
        else:
            asked = Ask(rng.choice(q.NO_PICTURE if kind == "no picture" else q.BEYOND))
        return Item("refusal", (asked,), judge.refuses, kind)

    def knowledge(self, rng: random.Random) -> Item:
        """Sums, capitals, days, opposites, spelling and definitions in turn."""
        kind = rng.choice(("sum", "difference", "capital", "day", "opposite", "spelling", "definition"))
        if kind == "definition" and not self.material.glosses:
            kind = "sum"
        if kind in ("sum", "difference"):
            a, b = sorted((rng.randint(0, 20), rng.randint(0, 20)), reverse=True)
            value = a + b if kind == "sum" else a - b
            text = rng.choice(q.SUMS if kind == "sum" else q.DIFFERENCES).format(a=a, b=b)
            return Item("knowledge", (Ask(text),), judge.number(value), str(value))
        if kind == "capital":
            country, city = rng.choice(list(facts.CAPITALS.items()))
            return Item("knowledge", (Ask(rng.choice(q.CAPITALS).format(x=country)),), judge.any_of((city,)), city)
        if kind == "day":
            i = rng.randrange(7)
            wanted, today = facts.DAYS[(i + 1) % 7], facts.DAYS[i]
            others = [d.lower() for d in facts.DAYS if d != today]
            return Item(
                "knowledge",
                (Ask(rng.choice(q.DAYS_AFTER).format(x=today)),),
                judge.only((wanted.lower(),), others),
                wanted,
            )
        if kind == "opposite":
            a, _ = rng.choice(facts.OPPOSITES)
            accepted = {y for x, y in facts.OPPOSITES if x == a} | {x for x, y in facts.OPPOSITES if y == a}
            return Item(
                "knowledge",
                (Ask(rng.choice(q.OPPOSITES).format(x=a)),),
                judge.any_of(accepted),
                "/".join(sorted(accepted)),
            )
        if kind == "spelling":
            word = rng.choice(self.words)
            return Item(
                "knowledge", (Ask(rng.choice(q.SPELLINGS).format(x=word)),), judge.spelled(word), "-".join(word)
            )
        common = [w for w in self.material.nouns[:1500] if w in self.material.glosses][:1000] or list(
            self.material.glosses
        )
        word = rng.choice(common)
        gloss = self.material.glosses[word]
        return Item("knowledge", (Ask(rng.choice(q.DEFINITIONS).format(x=word)),), judge.covers(gloss), gloss)

    def recall(self, rng: random.Random) -> Item:
        """Told at the start, 100 to 1,800 tokens of other talk (about four characters a token), asked at the end."""
        kind = rng.choice(list(q.FACTS))
        told, asked = q.FACTS[kind]
        value = {
            "name": lambda: rng.choice(facts.NAMES), "number": lambda: str(rng.randint(10, 9999)),
            "colour": lambda: rng.choice(judge.COLOURS[:9]), "city": lambda: rng.choice(facts.CITIES),
        }[kind]()  # fmt: skip
        before = [(rng.choice(told).format(x=value), "Okay.")]
        room = rng.choice((100, 300, 700, 1800)) * rng.uniform(0.7, 1.0) * 4
        pool = self.chats or _FILLER
        while room > 0:
            chat = rng.choice(pool)
            before += list(zip(chat[0::2], chat[1::2], strict=True))
            room -= sum(len(t) + 8 for t in chat)
        return Item("recall", (Ask(rng.choice(asked)),), judge.any_of((value,)), value, tuple(before))


_FILLER: list[Chat] = [
    ["What is a river?", "A river is water that flows to the sea."], ["What do cows eat?", "Cows eat grass and hay."],
    ["Is snow cold?", "Yes, snow is frozen water, so it is cold."], ["What is a bakery?", "A bakery is a shop that sells bread."],
    ["Why do birds sing?", "Birds sing to find a partner and to guard their place."],
]  # fmt: skip
# task -> (maker, score wanted)
TASKS: dict[str, tuple[Callable[[Tasks, random.Random], Item], float]] = {
    "colour": (Tasks.colour, 0.97),
    "shape": (Tasks.shape, 0.97),
    "position": (Tasks.position, 0.97),
    "count": (Tasks.count, 0.97),
    "colour_of": (lambda t, r: t.colour(r, "colour_of", True), 0.95),
    "position_of": (lambda t, r: t.position(r, "position_of", True), 0.95),
    "count_kind": (Tasks.count_kind, 0.90),
    "relation": (Tasks.relation, 0.90),
    "largest": (Tasks.largest, 0.95),
    "trend": (Tasks.trend, 0.95),
    "value": (Tasks.value, 0.80),
    "number": (Tasks.number, 0.95),
    "word": (Tasks.word, 0.60),
    "thing": (Tasks.thing, 0.70),
    "follow_up": (Tasks.follow_up, 0.90),
    "refusal": (Tasks.refusal, 0.90),
    "knowledge": (Tasks.knowledge, 0.95),
    "recall": (Tasks.recall, 0.95),
}
