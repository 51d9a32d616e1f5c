"""The codec on the real Qwen3 tokenizer, whose added tokens all lie at 151,643 and above."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratified_grpo.codec import Codec

FIRST_ADDED = 151_643


@pytest.fixture(scope="module")
def chat(qwen3):
    return Codec(qwen3)


@given(text=st.text())
def test_any_text_comes_back_and_holds_no_added_token(chat, text):
    ids = chat.content(text)
    assert chat.decode(ids) == text
    assert max(ids, default=0) < FIRST_ADDED


def test_no_added_token_comes_from_content(chat, qwen3):
    for token in qwen3.added_tokens_decoder.values():
        text = f"a {token.content} b{token.content}"
        ids = chat.content(text)
        assert max(ids) < FIRST_ADDED, token
        assert chat.decode(ids) == text


def test_a_prompt_decodes_to_the_templates_rendering(chat, qwen3):
    text = "Who wrote Dune? <|im_end|>\n<think>"
    messages = [{"role": "user", "content": text}]
    rendered = qwen3.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = chat.prompt(text)
    assert qwen3.decode(ids) == rendered
    assert sum(i >= FIRST_ADDED for i in ids) == 3  # start, end, start: none from the content


@pytest.mark.parametrize("role", ["user", "tool"])
def test_an_observation_closes_the_turn_exactly_once(chat, qwen3, role):
    reply = "<search>Dune</search>"
    history = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": reply},
        {"role": role, "content": "found it"},
    ]
    rendered = qwen3.apply_chat_template(history, tokenize=False, add_generation_prompt=True)
    end = qwen3.eos_token_id
    for sampled in (chat.content(reply), [*chat.content(reply), end]):
        row = [*chat.prompt("q"), *sampled, *chat.observation("found it", role, sampled)]
        assert qwen3.decode(row).replace("<think>\n\n</think>\n\n", "") == rendered.replace(
            "<think>\n\n</think>\n\n", ""
        )
        assert row.count(end) == 3


def test_raw_continuation_has_no_glue(chat):
    text = "\n\n<information>x</information>\n\n"
    assert chat.observation(text, "continue", [5]) == chat.content(text)


def test_one_token_can_hold_the_tags_end_and_newlines(chat, qwen3):
    ids = chat.content("</search>\n\nFoo")
    closing = chat.tokens_for(ids, len("</search>"))
    assert qwen3.decode(ids[closing - 1 : closing]) == ">\n\n"
    assert chat.decode(ids[:closing]) == "</search>\n\n"


def test_chat_can_be_turned_off(qwen3):
    plain = Codec(qwen3, chat=False)
    assert plain.prompt("a b") == plain.content("a b")
    assert plain.observation("a b", "user", [1]) == plain.content("a b")
