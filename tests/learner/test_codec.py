"""Text to ids and back, with a byte-level tokenizer of our own and with small stand-ins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratified_grpo.codec import Codec
from stratified_grpo.errors import ConfigError
from stratified_grpo.policy import load_policy

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@given(text=st.text())
def test_any_text_comes_back(codec, text):
    assert codec.decode(codec.content(text)) == text


@given(before=st.text(max_size=5), after=st.text(max_size=5))
def test_special_tokens_in_content_are_inert(codec, before, after):
    ids = codec.content(f"{before}<|end|>{after}")
    assert not codec.eos_ids & set(ids)
    assert codec.decode(ids) == f"{before}<|end|>{after}"


@given(text=st.text(max_size=30), data=st.data())
def test_tokens_for_keeps_the_fewest_tokens_that_hold_the_text(codec, text, data):
    ids = codec.content(text)
    consumed = data.draw(st.integers(0, len(text)))
    kept = codec.tokens_for(ids, consumed)
    assert codec.decode(ids[:kept]).startswith(text[:consumed])
    if consumed < len(text):
        assert all(
            not codec.decode(ids[:fewer]).startswith(text[:consumed]) for fewer in range(kept)
        )
    else:
        assert kept == len(ids)


def test_everything_consumed_keeps_the_end_token(codec):
    (eos,) = codec.eos_ids
    ids = [*codec.content("a b"), eos]
    assert codec.tokens_for(ids, 3) == len(ids)
    assert codec.tokens_for([eos], 0) == 1
    assert codec.tokens_for(ids, 2) < len(ids)


def test_a_character_is_never_cut_in_half(codec):
    ids = codec.content("\U0001f600\U0001f600x")  # four bytes each, two of them a token at most
    kept = codec.tokens_for(ids, 1)
    assert codec.decode(ids[:kept])[0] == "\U0001f600"


def test_without_a_template_roles_are_plain_text(codec):
    assert not codec.chat
    assert codec.prompt("a b") == codec.content("a b")
    for role in ("continue", "user", "tool"):
        assert codec.observation("a b", role, [1]) == codec.content("a b")


def test_a_chat_codec_needs_a_template(codec):
    with pytest.raises(ConfigError, match="needs a tokenizer with a chat template"):
        Codec(codec.tokenizer, chat=True)


def test_a_template_that_drops_a_role_is_refused(tiny_folder):
    tokenizer = load_policy(tiny_folder).codec.tokenizer
    tokenizer.chat_template = (
        "{% for m in messages if m.role != 'tool' %}{{ m.content }}{% endfor %}"
    )
    with pytest.raises(ConfigError, match="drops messages of role 'tool'"):
        Codec(tokenizer).observation("x", "tool", [])


def test_glue_is_rendered_once_and_content_is_not_parsed(tiny_folder):
    tokenizer = load_policy(tiny_folder).codec.tokenizer
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.chat_template = TEMPLATE
    codec = Codec(tokenizer)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    text = "QZ <|im_end|> {{ x }}"
    ids = codec.prompt(text)
    whole = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(ids) == whole
    assert ids.count(end) == 1
    assert codec.prompt(text) == ids
    assert codec.observation("o", "user", [7]) == [end, *codec.observation("o", "user", [end])]


def test_the_fingerprint_survives_saving_and_tells_vocabularies_apart(codec, tmp_path, tiny_folder):
    from stratified_grpo.demo.tiny import write_tiny_model

    assert load_policy(tiny_folder).codec.fingerprint == codec.fingerprint
    codec.tokenizer.save_pretrained(tmp_path / "again")
    codec.content("<|end|>")  # turns special-token parsing off in the backend
    from transformers import AutoTokenizer

    again = Codec(AutoTokenizer.from_pretrained(str(tmp_path / "again")))
    assert again.fingerprint == codec.fingerprint
    write_tiny_model(tmp_path / "other", ["zebra " * 50], vocabulary=300, width=32, heads=1)
    other = load_policy(tmp_path / "other").codec
    assert other.fingerprint != codec.fingerprint


class Pieces:
    """A tokenizer over a list of pieces in which decoding and encoding are not inverse."""

    chat_template = None
    bos_token_id = None
    eos_token_id = None

    def __init__(self, *pieces):
        self.pieces = pieces

    def __call__(self, text, **_):
        """Longest piece first, as a merged vocabulary does."""
        found = []
        while text:
            piece = max((p for p in self.pieces if text.startswith(p)), key=len)
            found.append(self.pieces.index(piece))
            text = text[len(piece) :]
        return {"input_ids": found}

    def decode(self, ids, **_):
        return "".join(self.pieces[i] for i in ids)


def test_a_stop_tag_that_shares_a_token_with_what_follows_is_kept_whole():  # known fault 36
    codec = Codec(Pieces("</", "search", ">\n\nFoo", ">", "\n\n", "Foo"))
    sampled = [0, 1, 2]
    assert codec.tokens_for(sampled, len("</search>")) == 3
    assert codec.tokens_for([0, 1, 3, 4, 5], len("</search>")) == 3


def test_reading_never_changes_sampled_ids():  # known faults 3 and 4
    codec = Codec(Pieces("he", "llo", "hello", "<th", "ink", ">", "<", "think"))
    for sampled, text in (([0, 1], "hello"), ([6, 7, 5], "<think>")):
        assert codec.content(text) != sampled
        assert codec.tokens_for(sampled, len(text)) == len(sampled)


def test_a_tokenizer_with_a_first_token_puts_it_before_the_prompt_only():
    class WithStart(Pieces):
        bos_token_id = 0

        def __call__(self, text, *, add_special_tokens=True, **_):
            ids = super().__call__(text)["input_ids"]
            return {"input_ids": [0, *ids] if add_special_tokens else ids}

    codec = Codec(WithStart("<s>", "a", "b"))
    assert codec.prompt("ab") == [0, 1, 2]
    assert codec.observation("ab", "continue", [1]) == [1, 2]
    assert codec.eos_ids == frozenset()
