"""Conversations about pictures: one picture with follow-ups, or two pictures."""

from __future__ import annotations

import random

from assets.training.documents import Document, Turn
from assets.training.material import Material
from assets.training.phrases import follow_up
from assets.training.pictures.blank import blank, unanswerable
from assets.training.pictures.canvas import Question, Scene, ask, worn
from assets.training.pictures.charts import chart
from assets.training.pictures.icons import icon
from assets.training.pictures.printed import printed
from assets.training.pictures.scenes import mixture, row_of_kind, single

# Share of pictures; icons need the most looking-at, relations the most pairs.
SHARES = {"single": 6, "row": 8, "mixture": 24, "chart": 9, "printed": 24, "icon": 26, "blank": 3}
_SMALL = (
    ("Thank you!", "You're welcome!"), ("Thanks.", "You are welcome. Do you have another picture?"),
    ("Are you sure?", "I think so, but I am a small model and can be wrong."), ("Great!", "I am glad that helped."),
    ("ok thanks", "You're welcome!"), ("Is that right?", "I think so, but please check it."),
)  # fmt: skip
_OF_PICTURE = (
    "In the {} picture: {}", "In the {} image, {}", "About the {} picture: {}", "Look at the {} picture. {}",
    "For the {} picture: {}", "On the {} one: {}", "Back to the {} picture: {}", "And in the {} picture, {}", "{} picture: {}",
    "The {} picture again: {}", "Now the {} image. {}", "I mean the {} picture: {}",
)  # fmt: skip


def scene(rng: random.Random, material: Material, kind: str | None = None) -> Scene:
    """One random picture; without icon material, icons become mixtures."""
    kind = kind or rng.choices(list(SHARES), list(SHARES.values()))[0]
    if kind == "icon" and material.icons is None:
        kind = "mixture"
    if kind in ("chart", "printed", "icon"):
        made = {"chart": chart, "printed": printed, "icon": icon}[kind](rng, material)
    else:
        made = {"single": single, "row": row_of_kind, "mixture": mixture, "blank": blank}[kind](rng)
    return made._replace(picture=worn(rng, made.picture))


def _turns(rng: random.Random, questions: list[Question], made: Scene, first: bool) -> list[Turn]:
    """Later questions often open like a follow-up."""
    said = [follow_up(rng, q.text) if i and rng.random() < 0.25 else q.text for i, q in enumerate(questions)]
    return [
        Turn(text, q.answer, (made.picture,) if first and i == 0 else ())
        for i, (text, q) in enumerate(zip(said, questions, strict=True))
    ]


def _about(rng: random.Random, which: str, made: Scene) -> Turn:
    """A question about one of two pictures that names which."""
    asked = rng.choice([q for q in made.questions if q.kind != "describe"])
    text = asked.text[:1].lower() + asked.text[1:]
    return Turn(rng.choice(_OF_PICTURE).format(which, text), asked.answer)


def _some(rng: random.Random, made: Scene, most: int) -> list[Question]:
    count = min(len(made.questions), most, rng.choices((1, 2, 3, 4, 5), (15, 25, 30, 20, 10))[0])
    return rng.sample(made.questions, count)


def picture_document(rng: random.Random, material: Material, most: int = 5) -> Document:
    """About 80 % one picture, the rest two in one conversation."""
    if rng.random() < 0.2:
        return _two_pictures(rng, material)
    made = scene(rng, material)
    turns = _turns(rng, _some(rng, made, most), made, True)
    if rng.random() < 0.1:
        turns.append(Turn(*unanswerable(rng)[1:]))
    if rng.random() < 0.06:
        turns.append(Turn(*rng.choice(_SMALL)))
    return Document(tuple(turns))


def _two_pictures(rng: random.Random, material: Material) -> Document:
    one, two = scene(rng, material), scene(rng, material)
    if rng.random() < 0.4:  # both at once
        both = (one.picture, two.picture)
        each = {"first": one.shown, "second": two.shown}
        all_of = ask(rng, "both", f"The first picture shows {one.shown}, the second {two.shown}.")
        parts = [ask(rng, "of_two", f"The {x} picture shows {shown}.", x=x) for x, shown in each.items()]
        chosen = [all_of, *parts]
        rng.shuffle(chosen)
        spoken = [Turn(q.text, q.answer) for q in chosen[: rng.randint(1, 3)]]
        if rng.random() < 0.6:
            spoken += [_about(rng, *rng.choice((("first", one), ("second", two)))) for _ in range(rng.randint(1, 2))]
            rng.shuffle(spoken)
        return Document((spoken[0]._replace(pictures=both), *spoken[1:]))
    turns = _turns(rng, _some(rng, one, 2), one, True)
    later = _some(rng, two, 2)
    if rng.random() < 0.4:
        later = [ask(rng, "second", f"This picture shows {two.shown}."), *later[:1]]
    turns += _turns(rng, later, two, True)
    if rng.random() < 0.5:
        back = ask(rng, "first", f"The first picture showed {one.shown}.")
        turns.append(Turn(back.text, back.answer))
    if rng.random() < 0.4:
        turns.append(_about(rng, *rng.choice((("first", one), ("first", one), ("second", two)))))
    return Document(tuple(turns))
