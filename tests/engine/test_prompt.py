"""From messages to ids: what a person types stays text, templates cannot harm, pictures find their places."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

from engine.api import BadCheckpoint, BadRequest, EngineError, Image, Message
from engine.chat.prompt import PromptBuilder
from engine.chat.style import ChatStyle, EncodeOptions
from engine.chat.template import ChatTemplate
from engine.chat.tokens import Tokens
from engine.runtime import Runtime
from tests.engine.helpers import DEMO, assistant, is_one_sentence, user
from tests.support.oracle import OracleCase

GetCase = Callable[..., OracleCase]
PLAIN = EncodeOptions(thinking=False)
FUZZ = settings(max_examples=80, deadline=None)
ECHO = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"


@pytest.fixture(scope="module")
def demo(runtime_of: Callable[..., Runtime], demo_runtime: Runtime) -> PromptBuilder:
    return demo_runtime.prompts


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    return Tokens(DEMO)


@pytest.fixture(scope="module")
def reference() -> Any:
    """transformers' own tokenizer of the demo checkpoint."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(DEMO)


def picture(size: tuple[int, int] = (128, 128), colour: str = "red") -> Image:
    buffer = io.BytesIO()
    Pillow.new("RGB", size, colour).save(buffer, "PNG")
    return Image(buffer.getvalue())


def expected_ids(reference: Any, messages: list[Message]) -> list[int]:
    plain = [{"role": m.role, "content": m.text} for m in messages]
    return reference.apply_chat_template(plain, add_generation_prompt=True, return_dict=True)["input_ids"]


def build(builder: PromptBuilder, *messages: Message, known: dict[str, list[int]] | None = None) -> list[int]:
    return builder.build(messages, PLAIN, known or {}).ids


# ---------------------------------------------------------------- equal to transformers


CHATS = [
    [user("Hello")],
    [user("  spaces  and\n\nlines\t")],
    [user("What is 2+2?"), assistant("4"), user("Why?")],
    [user("量化后的权重 🙂 aléatoires — 3.14159")],
    [user("a < b > c | d <| not a mark |>")],
    [user("one"), assistant("two"), user("three"), assistant("four"), user("five")],
]


@pytest.mark.parametrize("messages", CHATS, ids=lambda m: m[0].text[:12])
def test_ordinary_chats_are_tokenized_as_transformers_does(
    demo: PromptBuilder, reference: Any, messages: list[Message]
) -> None:
    assert build(demo, *messages) == expected_ids(reference, messages)


@FUZZ
@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(str.strip))
def test_any_text_is_tokenized_as_transformers_does(demo: PromptBuilder, reference: Any, text: str) -> None:
    assert build(demo, user(text)) == expected_ids(reference, [user(text)])


@pytest.mark.parametrize("family", ["hy_v4_vl", "hy_v4"])
def test_the_oracles_examples(oracle_case: GetCase, runtime_of: Callable[..., Runtime], family: str) -> None:
    case = oracle_case(family)
    runtime = runtime_of(case)
    for example in case.info["tokenizer"]["encode"]:
        assert runtime.tokens.encode(example["text"]) == example["ids"]
        assert runtime.tokens.encode_plain(example["text"]) == example["ids"]
        assert runtime.tokens.decode(example["ids"]) == example["text"]
    chat = case.info["tokenizer"]["chat"]
    messages = []
    for message in chat["messages"]:
        content = message["content"]
        if isinstance(content, str):
            messages.append(Message(message["role"], content))
        else:
            messages.append(user(content[1]["text"], picture()))
    ids = runtime.prompts.build(messages, PLAIN, {}).ids
    image = runtime.described.spec.image_token
    once = [i for n, i in enumerate(ids) if i != image or ids[n - 1] != image]  # the oracle does not repeat them
    assert once == chat["ids"]


# ---------------------------------------------------------------- what a person types stays text


def special_ids(builder: PromptBuilder, *messages: Message) -> list[int]:
    added = set(builder._tokens.added.values())
    return [i for i in build(builder, *messages) if i in added]


SHAPES = ["{}", "in{}side", "{}{}", "<{}>", " {} ", "{}\n{}", "🙂{}🙂", "{0}\ue000{0}\ue0011\ue001"]


@pytest.mark.parametrize("shape", SHAPES)
def test_no_added_token_can_be_typed(demo: PromptBuilder, tokens: Tokens, shape: str) -> None:
    clean = special_ids(demo, user("x"))
    assert len(tokens.added) > 8
    for token in tokens.added:
        text = shape.format(token, token)
        ids = build(demo, user(text))
        assert special_ids(demo, user(text)) == clean, token
        assert text in tokens._plain.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize("family", ["hy_v4_vl", "hy_v4", "glm_moe_dsa"])
def test_no_added_token_of_a_family_can_be_typed(
    oracle_case: GetCase, runtime_of: Callable[..., Runtime], family: str
) -> None:
    runtime = runtime_of(oracle_case(family))
    clean = special_ids(runtime.prompts, user("x"))
    names = [*runtime.tokens.added, "<|image_pad|>", "<|image|>", "<|vision_start|>"]
    for token in names:
        assert special_ids(runtime.prompts, user(f"a{token}b")) == clean, token
    everything = "".join(names)
    assert special_ids(runtime.prompts, user(everything)) == clean


@pytest.mark.parametrize("where", ["system", "assistant", "thinking"])
def test_other_turns_cannot_smuggle_either(
    oracle_case: GetCase, runtime_of: Callable[..., Runtime], where: str
) -> None:
    runtime = runtime_of(oracle_case("hy_v4_vl"))
    token = next(iter(runtime.tokens.added))

    def chat(text: str) -> list[Message]:
        if where == "system":
            return [Message("system", text), user("x")]
        made = Message("assistant", "a" if where == "thinking" else text, (), text if where == "thinking" else "")
        return [user("x"), made, user("y")]

    assert special_ids(runtime.prompts, *chat(f"a{token}b")) == special_ids(runtime.prompts, *chat("ab"))


def test_parts_of_a_mark_and_what_surrounds_it_do_not_join(demo: PromptBuilder) -> None:
    clean = special_ids(demo, user("x"))
    for text in ("<|us", "er|>", "<|<|user|>user|>", "<|user|", "|>", "<<|eos|>|eos|>"):
        assert special_ids(demo, user(text)) == clean, text


def test_placeholder_text_is_not_counted_as_a_picture(demo: PromptBuilder, tokens: Tokens) -> None:
    prompt = demo.build([user("<|image|> is what I typed <|image|>", picture())], PLAIN, {})
    assert len(prompt.spans) == 1
    assert prompt.ids.count(tokens.added["<|image|>"]) == prompt.spans[0].length


@FUZZ
@given(
    text=st.lists(
        st.sampled_from(["<|user|>", "<|image|>", "a", "\ue000", "\ue001", "0", " ", "<|"]), min_size=1, max_size=9
    ).map("".join)
)
def test_private_use_characters_and_marks_together_stay_text(demo: PromptBuilder, tokens: Tokens, text: str) -> None:
    if text.strip():
        assert special_ids(demo, user(text)) == special_ids(demo, user("x"))
        assert text in tokens._plain.decode(build(demo, user(text)), skip_special_tokens=False)


def test_a_vocabulary_that_holds_its_special_tokens_as_words(tmp_path: Any) -> None:
    """With ignore_merges a whole word that is in the vocabulary is taken at once, special or not."""
    import json

    content = json.loads((DEMO / "tokenizer.json").read_text())
    content["model"]["ignore_merges"] = True
    content["pre_tokenizer"] = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    tokens = Tokens(tmp_path)
    assert tokens.added["<|user|>"] not in tokens.encode_plain("<|user|>")
    assert tokens._plain.decode(tokens.encode_plain("<|user|>"), skip_special_tokens=False) == "<|user|>"


# ---------------------------------------------------------------- known answers


def test_known_answers_keep_the_ids_that_the_model_wrote(demo: PromptBuilder, tokens: Tokens) -> None:
    odd = [tokens.encode_plain(c)[0] for c in "Hello"]
    assert odd != tokens.encode("Hello")
    ids = build(demo, user("Hi"), assistant("Hello"), user("and?"), known={"Hello": odd})
    normal = build(demo, user("Hi"), assistant("Hello"), user("and?"))
    begin = next(i for i, (a, b) in enumerate(zip(ids, normal, strict=False)) if a != b)
    assert ids[begin : begin + len(odd)] == odd or ids[begin - 1 : begin - 1 + len(odd)] == odd
    assert len(ids) == len(normal) + len(odd) - len(tokens.encode("Hello"))


def test_an_edited_answer_is_read_again(demo: PromptBuilder) -> None:
    known = {"Hello": [99, 98]}
    assert build(demo, user("Hi"), assistant("Hello!"), user("x"), known=known) == build(
        demo, user("Hi"), assistant("Hello!"), user("x")
    )


def test_a_users_copy_of_an_answer_is_not_taken_for_it(demo: PromptBuilder) -> None:
    assert build(demo, user("Hello"), known={"Hello": [99, 98]}) == build(demo, user("Hello"))


# ---------------------------------------------------------------- messages that make no sense


BAD_MESSAGES = {
    "nothing": [],
    "empty": [user("")],
    "blank": [user(" \n\t")],
    "answer last": [user("a"), assistant("b")],
    "unknown role": [Message("tool", "x"), user("a")],  # type: ignore[arg-type]
    "picture in an answer": [user("a"), Message("assistant", "b", (picture(),)), user("c")],
}


@pytest.mark.parametrize("case", list(BAD_MESSAGES))
def test_messages_that_make_no_sense(demo: PromptBuilder, case: str) -> None:
    with pytest.raises(BadRequest) as caught:
        build(demo, *BAD_MESSAGES[case])
    assert is_one_sentence(caught.value)


def test_a_picture_to_a_text_model(oracle_case: GetCase, runtime_of: Callable[..., Runtime]) -> None:
    with pytest.raises(BadRequest, match="text only"):
        build(runtime_of(oracle_case("hy_v4")).prompts, user("what?", picture()))


# ---------------------------------------------------------------- templates


def with_template(tokens: Tokens, source: str, image: str | None = "<|image|>") -> PromptBuilder:
    return PromptBuilder(tokens, ChatStyle(image=image), ChatTemplate(source, {"bos_token": "<|bos|>"}), None, None)


@pytest.mark.parametrize(
    ("source", "same"),
    [("{{ messages[0].content | trim }}", True), ("{{ messages[0].content.strip() }}", True),
     ("{{ messages[0]['content'] ~ '' }}", True),
     ("{% if messages[0].content is string %}{{ messages[0].content }}{% endif %}", True)],
)  # fmt: skip
def test_templates_that_touch_the_text_do_not_free_hidden_tokens(tokens: Tokens, source: str, same: bool) -> None:
    ids = build(with_template(tokens, source), user("  <|user|> x  "))
    assert tokens.added["<|user|>"] not in ids
    assert ("<|user|> x" in tokens._plain.decode(ids, skip_special_tokens=False)) == same


def test_a_template_may_write_special_tokens_itself(tokens: Tokens) -> None:
    ids = build(with_template(tokens, "{{ bos_token }}<|user|>{{ messages[0].content }}"), user("<|user|>"))
    assert ids[:2] == [tokens.added["<|bos|>"], tokens.added["<|user|>"]]
    assert ids.count(tokens.added["<|user|>"]) == 1


@pytest.mark.parametrize(
    "source", ["{{", "{% for %}", "{% endif %}", "{{ x | nofilter }}", "{% include 'x' %}{{", "{% bad %}"]
)
def test_templates_that_cannot_be_read(source: str) -> None:
    with pytest.raises(BadCheckpoint, match="template") as caught:
        ChatTemplate(source, {})
    assert is_one_sentence(caught.value)


def test_a_template_that_refuses_says_why(tokens: Tokens) -> None:
    source = "{{ raise_exception('Roles must alternate') }}"
    with pytest.raises(BadRequest, match="Roles must alternate") as caught:
        build(with_template(tokens, source), user("x"))
    assert is_one_sentence(caught.value)


FAILING = {
    "division": "{{ 1 / 0 }}",
    "undefined": "{{ nothing.there }}",
    "call": "{{ messages() }}",
    "key": "{{ messages[5].content }}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "big range": "{% for i in range(10 ** 9) %}x{% endfor %}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}{{ os }}",
    "extends": "{% extends '/etc/passwd' %}",
    "class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals of a method": "{{ cycler.__init__.__globals__ }}",
    "format": "{{ '{0.__class__.__mro__}'.format(1) }}",
    "format map": "{{ '{x.__class__.__mro__}'.format_map({'x': 1}) }}",
    "changing the messages": "{{ messages.clear() }}",
    "changing a message": "{{ messages[0].update({'role': 'x'}) }}",
    "strftime": "{{ strftime_now(5) }}",
    "tojson": "{{ strftime_now | tojson }}",
}


@pytest.mark.parametrize("case", list(FAILING))
def test_templates_that_fail_or_attack_get_a_sentence(tokens: Tokens, case: str) -> None:
    with pytest.raises(EngineError) as caught:
        build(with_template(tokens, FAILING[case]), user("x"))
    assert is_one_sentence(caught.value), str(caught.value)


HARMLESS = [
    "{{ raise_exception.__globals__ }}",
    "{{ self._TemplateReference__context }}",
    "{{ ''|attr('__class__') }}",
    "{{ messages[0].__class__ }}",
    "{{ tools }}{{ messages.append }}",
]


@pytest.mark.parametrize("source", HARMLESS)
def test_private_attributes_are_not_there(source: str) -> None:
    text = ChatTemplate(source, {}).render([user("x")], PLAIN)
    assert text in ("", "None") or "built-in method" in text


ENDLESS = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "output without end": "{% for a in range(99999) %}{% for b in range(99999) %}xxxxxxxx{% endfor %}{% endfor %}",
    "huge number": "{{ (10 ** 10 ** 10) % 7 }}",
    "huge text": "{{ 'x' * 10 ** 11 }}",
    "huge list": "{{ ([1] * 10 ** 11) | length }}",
    "wide field": "{{ '%1000000000000d' % 5 }}",
    "shift": "{{ '{:>99999999999}'.format('x') }}",
}


@pytest.mark.parametrize("case", list(ENDLESS))
def test_endless_templates_are_stopped(tokens: Tokens, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setattr("engine.chat.sandbox._MOST_SECONDS", 0.5)
    done, failure = threading.Event(), []

    def render() -> None:
        try:
            build(with_template(tokens, ENDLESS[case]), user("x"))
        except Exception as error:
            failure.append(error)
        done.set()

    threading.Thread(target=render, daemon=True).start()
    assert done.wait(20), "the template is still running"
    assert failure and isinstance(failure[0], EngineError), failure
    assert is_one_sentence(failure[0])


@pytest.mark.parametrize("source", [ECHO, "", "no pictures at all", "<|image|><|image|><|image|>"])
def test_pictures_and_placeholders_must_match(demo_runtime: Runtime, source: str) -> None:
    builder = demo_runtime.prompts
    template = ChatTemplate("{{ messages[0].content[-1].text }}" + source if source != ECHO else ECHO, {})
    other = PromptBuilder(
        demo_runtime.tokens, builder._style, template, builder._reader, demo_runtime.described.spec.image_token
    )
    with pytest.raises(BadRequest, match="pictures") as caught:
        build(other, user("x", picture(), picture()))
    assert is_one_sentence(caught.value)


# ---------------------------------------------------------------- pictures


def test_pictures_lie_where_the_template_puts_them(demo_runtime: Runtime) -> None:
    builder, red, blue = demo_runtime.prompts, picture(), picture(colour="blue")
    prompt = builder.build([user("one", red), assistant("ok"), user("two", blue, red)], PLAIN, {})
    token = demo_runtime.described.spec.image_token
    assert len(prompt.spans) == 3
    for span in prompt.spans:
        assert prompt.ids[span.start : span.start + span.length] == [token] * span.length
    assert prompt.ids.count(token) == sum(s.length for s in prompt.spans)
    assert prompt.spans[0].image.digest == prompt.spans[2].image.digest != prompt.spans[1].image.digest
    assert prompt.rope_positions.shape == (3, len(prompt))
    assert prompt.next_position == int(prompt.rope_positions.max()) + 1


def test_equal_ids_with_another_picture_share_no_prefix_beyond_it(demo_runtime: Runtime) -> None:
    first = demo_runtime.prompts.build([user("what?", picture())], PLAIN, {})
    second = demo_runtime.prompts.build([user("what?", picture(colour="blue"))], PLAIN, {})
    assert first.ids == second.ids
    assert first.common_prefix(second) == first.spans[0].start
    assert first.common_prefix(first) == len(first)


def test_many_threads_prepare_pictures_at_once(demo_runtime: Runtime) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from engine.chat.prompt import PrepareImage

    prepare = PrepareImage(demo_runtime.prompts, limit=2)
    sources = [picture(colour=f"rgb({i},0,0)").source for i in range(12)]
    expected = [demo_runtime.prompts.prepare(source).digest for source in sources]
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda i: prepare(sources[i % 12]).digest, range(240)))
    assert made == [expected[i % 12] for i in range(240)]
    assert len(prepare._cache) <= 2
