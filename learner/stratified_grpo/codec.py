"""Between text and tokens: what the environment says becomes ids here, and only here.

Content (prompts, observations) is encoded with special-token parsing off, so a retrieved
``<|im_end|>`` stays text; chat-template glue is trusted ids. Sampled ids are decoded for reading
and never encoded again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from stratified_grpo.errors import ConfigError

_SENTINEL = "QZCONTENTZQ"
_REPLY = "QZREPLYZQ"


class Codec:
    """Text to token ids and back for one tokenizer.

    Args:
        tokenizer: a Hugging Face tokenizer.
        chat: render roles through the tokenizer's chat template; the default does so
            exactly when the tokenizer has one (as Search-R1 does, for base models too).
    """

    def __init__(self, tokenizer: Any, *, chat: bool | None = None) -> None:
        self.tokenizer = tokenizer
        self.chat = bool(tokenizer.chat_template) if chat is None else chat
        if self.chat and not tokenizer.chat_template:
            raise ConfigError("chat=true needs a tokenizer with a chat template; this one has none")

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the vocabulary, merges and template: equal means ids are interchangeable."""
        backend = self.tokenizer.backend_tokenizer.to_str()
        text = f"{backend}\0{self.tokenizer.chat_template or ''}\0{self.chat}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end a turn."""
        eos = self.tokenizer.eos_token_id
        return frozenset() if eos is None else frozenset([int(eos)])

    def content(self, text: str) -> list[int]:
        """Encode untrusted text: no special token is ever produced from it.

        Under a chat template this holds for every added token, such as Qwen's ``<tool_call>``,
        which the vocabulary does not call special. Without one, added words are just words.
        """
        if self._control is not None and self._control.search(text):
            return list(self._plain.encode(text, add_special_tokens=False).ids)
        return list(
            self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        )

    def prompt(self, text: str) -> list[int]:
        """Encode the first message, with the template's glue or the tokenizer's own prefix."""
        if not self.chat:
            prefix = self.tokenizer("", add_special_tokens=True)["input_ids"]
            bos = self.tokenizer.bos_token_id
            return [
                *([bos] if bos is not None and prefix[:1] == [bos] else []),
                *self.content(text),
            ]
        before, after = self._glue("user", first=True)
        return [*before, *self.content(text), *after]

    def observation(self, text: str, role: str, last: Sequence[int]) -> list[int]:
        """Encode what the environment adds after an action.

        Args:
            text: the observation.
            role: ``continue`` (raw continuation of the model's turn), ``user`` or ``tool``.
            last: the sampled ids it follows; an end-of-turn token already sampled is not repeated.
        """
        if role == "continue" or not self.chat:
            return self.content(text)
        before, after = self._glue(role, first=False)
        if last and before and last[-1] == before[0]:
            before = before[1:]
        return [*before, *self.content(text), *after]

    def decode(self, ids: Sequence[int]) -> str:
        """Ids as text, special tokens left out."""
        return str(
            self.tokenizer.decode(
                list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )

    def tokens_for(self, ids: Sequence[int], consumed_chars: int) -> int:
        """How many leading ids are needed to hold the first ``consumed_chars`` characters.

        Whole tokens are kept up to the one that completes the action (in many vocabularies
        ``>`` and the newlines after it are one token); the rest leaves the row.
        """
        text = self.decode(ids)
        if len(text) <= consumed_chars:
            return len(ids)
        wanted = text[:consumed_chars]  # compared as text: half a character decodes as one, too
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high) // 2
            if self.decode(ids[:middle]).startswith(wanted):
                high = middle
            else:
                low = middle + 1
        return low

    @cached_property
    def _control(self) -> re.Pattern[str] | None:
        """Added tokens that are not special, where a chat template may use them."""
        if not self.tokenizer.chat_template:
            return None
        added = self.tokenizer.added_tokens_decoder.values()
        words = [re.escape(token.content) for token in added if not token.special]
        return re.compile("|".join(words)) if words else None

    @cached_property
    def _plain(self) -> Any:
        """The same vocabulary without any added token."""
        from tokenizers import Tokenizer

        document = json.loads(self.tokenizer.backend_tokenizer.to_str())
        return Tokenizer.from_str(json.dumps({**document, "added_tokens": []}))

    def _glue(self, role: str, *, first: bool) -> tuple[list[int], list[int]]:
        key = (role, first)
        cache: dict[tuple[str, bool], tuple[list[int], list[int]]] = self.__dict__.setdefault(
            "_glue_cache", {}
        )
        if key not in cache:
            cache[key] = self._render_glue(role, first=first)
        return cache[key]

    def _render_glue(self, role: str, *, first: bool) -> tuple[list[int], list[int]]:
        messages = [{"role": role, "content": _SENTINEL}]
        if not first:
            history = [
                {"role": "user", "content": "x"},
                {"role": "assistant", "content": _REPLY},
            ]
            messages = [*history, *messages]
        text = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        before, sentinel, after = text.partition(_SENTINEL)
        if not first:
            before = before.partition(_REPLY)[2]
        if not sentinel:
            raise ConfigError(f"the chat template drops messages of role {role!r}")
        return self._trusted(before), self._trusted(after)

    def _trusted(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
