"""Evaluation asks in other words than training does, draws what it says, and judges fairly."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from assets.training.chats import refusals, small_talk
from assets.training.chats.recall import TOLD
from assets.training.chats.wording import ASKED as CHAT_ASKED
from assets.training.documents import PictureCutter
from assets.training.heldout import items
from assets.training.heldout.items import Item
from assets.training.heldout.reserved import HELD, plain
from assets.training.heldout.tasks import TASKS, Tasks
from assets.training.material import Material
from assets.training.pictures.canvas import COLOURS
from assets.training.pictures.canvas import SHAPES as DRAWN_SHAPES
from assets.training.pictures.mix import SHARES, scene
from assets.training.pictures.names import THINGS, is_same
from assets.training.pictures.questions import QUESTIONS
from assets.training.shape import Shape


def test_no_paraphrase_is_a_training_template() -> None:
    trained = {plain(t) for many in QUESTIONS.values() for t in many} | {
        plain(t) for many in CHAT_ASKED.values() for t in many
    }
    refused = [refusals.NO_PICTURE, *refusals.REFUSALS.values()]
    for exchange in (*refused, *small_talk.TALK):
        trained |= {plain(t) for t in exchange[0]}
    rng = random.Random(4)  # patterns with very many sentences are not spelled out
    trained |= {plain(r.asked.draw(rng)) for r in refused for _ in range(3000)}
    for kind in TOLD.values():
        trained |= {plain(t) for t in (*kind.told, *kind.asked)}
    assert len(HELD) > 150 and [t for t in HELD if plain(t) in trained] == []
    assert len(set(HELD)) == len(HELD)


@pytest.fixture(scope="module")
def tasks() -> Tasks:
    return Tasks(Material.load(Path("/nonexistent")), [])


def test_every_task_makes_the_same_items_again(tasks: Tasks) -> None:
    for task in TASKS:
        one, two = tasks.make(task, 3), tasks.make(task, 3)
        assert one.asks[-1].text == two.asks[-1].text and one.wanted == two.wanted
        assert one.task == task and one.asks
        for a, b in zip(one.asks, two.asks, strict=True):
            assert [p.tobytes() for p in a.pictures] == [p.tobytes() for p in b.pictures]


ANSWERS = {
    "colour": "The thing is {w}.", "shape": "It is a {w}.", "position": "It is at the {w}.", "count": "There are {w} of them.",
    "colour_of": "It is {w}.", "position_of": "It is at the {w}.", "count_kind": "I see a red one: {w} stars.",
    "relation": "The star is big, so {w}.", "largest": "The {w} bar is it.", "trend": "The line goes {w}.",
    "value": "It is about {w}.", "number": "I read 1 2: {w}.", "word": 'I read x-y, so it says "{w}".', "thing": "I see a {w}.",
    "follow_up": "It is a {w}.", "refusal": "I can't tell that.", "knowledge": "{w}", "recall": "It is {w}.",
}  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_right_answers_pass_and_others_do_not(tasks: Tasks, task: str) -> None:
    made: list[Item] = [tasks.make(task, n) for n in range(24)]
    for item in made:
        wanted = item.wanted.split("/")[0]
        assert item.judge(ANSWERS[task].format(w=wanted)), (item.wanted, ANSWERS[task].format(w=wanted))
        assert not item.judge("The weather is nice.")
    mixed = [item.judge(ANSWERS[task].format(w=made[i - 1].wanted)) for i, item in enumerate(made)]
    if task != "refusal":
        assert sum(mixed) < 20  # the answer to another item is mostly wrong


def test_judges_read_the_end_of_derived_answers() -> None:
    assert items.yes_no(False)("The star is at the top and the ring at the bottom, so no.")
    assert not items.yes_no(True)("Yes? No, it is not.")
    assert items.number(3)("I see a red star, a blue star and a star: three stars.")
    assert items.number(1)("There is a star.") and not items.number(1)("There are no stars.")
    assert items.number(0)("There are no stars.")
    assert items.place("top left")("It is at the top left.") and not items.place("top")("It is at the top left.")
    assert items.place("center")("It is in the centre.") and not items.place("left")("It is in the middle.")
    assert items.colour("gray")("It is grey.") and not items.colour("red")("It is red or blue.")
    assert items.written("leaf")('I read l-e-a-f, so it says "leaf".') and not items.written("leaf")(
        "I read l-e-a-f, so lead."
    )
    assert items.number(40, 0.1)("It is about 43.") and not items.number(40, 0.1)("It is about 45.")


def test_training_pictures_have_all_shapes_of_the_resize_rule() -> None:
    rng, material, cut = random.Random(2), Material.load(Path("/nonexistent")), PictureCutter(Shape())
    grids = set()
    for number in range(400):
        kind = list(SHARES)[number % len(SHARES)]
        made = scene(rng, material, kind)
        assert made.questions and made.shown
        grid = cut(made.picture).grid
        assert grid[0] * grid[1] <= 256
        grids.add(grid)
    assert len(grids) > 40
    assert max(g[0] / g[1] for g in grids) >= 2.5 and max(g[1] / g[0] for g in grids) >= 2.5


def test_both_sides_know_the_same_words() -> None:
    assert set(items.SHAPES) == set(DRAWN_SHAPES) and set(COLOURS) < set(items.COLOURS)
    assert len(THINGS) >= 300 and is_same("car", "automobile") and not is_same("car", "bus")
