"""The Search-R1 protocol: ``<search>`` and ``<answer>`` tags in one raw continuation.

Prompt, tags, observation and invalid-action message are the published ones (see NOTICE), so
checkpoints trained elsewhere run unchanged. Source: ``search_r1/llm_agent/generation.py`` and
``scripts/data_process/nq_search.py`` of Search-R1. Where we differ, ``SearchR1`` says how.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from searchqa.protocols.base import Action, Answer, Invalid, InvalidReason, Rendered, Search
from searchqa.spaces import well_formed
from searchqa.types import SearchHit

PROMPT = (
    "Answer the given question. You must conduct reasoning inside <think> and </think> first "
    "every time you get new information. After reasoning, if you find you lack some knowledge, "
    "you can call a search engine by <search> query </search> and it will return the top "
    "searched results between <information> and </information>. You can search as many times as "
    "your want. If you find no further external knowledge needed, you can directly provide the "
    "answer inside <answer> and </answer>, without detailed illustrations. For example, "
    "<answer> Beijing </answer>. Question: {question}\n"
)
INVALID = (
    "\nMy previous action is invalid. If I want to search, I should put the query between "
    "<search> and </search>. If I want to give the final answer, I should put the answer between "
    "<answer> and </answer>. Let me try again.\n"
)
OVER_BUDGET = (
    "\nMy search budget is used up. I should give the final answer between <answer> and "
    "</answer> now.\n"
)
NO_RESULTS = "No results found."
_OPEN, _CLOSE = "\n\n<information>", "</information>\n\n"

_TAG = re.compile(r"</?(?:think|search|answer|information)>")
_END = re.compile(r"</(search|answer)>")
_TAG_LIKE = re.compile(
    r"<(\s{0,8}/?\s{0,8}(?:think|search|answer|information)\s{0,8}/?\s{0,8})>", re.IGNORECASE
)


def neutralise(text: str) -> str:
    """Make our tags in a passage inert: ``<answer>`` becomes ``‹answer›``.

    The replacement is visible, keeps the length, and touches nothing else, so a passage about
    HTML stays readable. Variants in case and spacing are replaced too.

    Args:
        text: A passage, or several.

    Returns:
        Text of the same length in which none of the protocol's tags occurs.
    """
    return _TAG_LIKE.sub(r"‹\1›", text) if "<" in text else text


@dataclass(frozen=True, slots=True)
class SearchR1:
    """Search-R1's protocol, with five stated differences.

    The first complete action counts, wherever it stands, inside ``<think>`` too, as in Search-R1:
    a sampler that honours ``stop`` never writes past it, so no other rule would read the replies
    of all samplers alike.

    1. A reply ends at the first closing ``</search>`` or ``</answer>``; what follows is dropped
       and counted. Search-R1 looks for ``</search>`` first. So for any text
       ``parse(text) == parse(text cut right after its first stop string)``.
    2. The innermost opening tag counts: ``<search>a <search>b</search>`` asks for ``b``. A query
       that still holds a tag is invalid. An answer may hold other tags; it just scores 0.
    3. An empty query is invalid; runs of whitespace inside a query become one blank.
    4. Our tags inside passages are neutralised, see :func:`neutralise`.
    5. A search that finds nothing says so instead of showing an empty block.
    """

    name: str = "search_r1"
    stop: tuple[str, ...] = ("</search>", "</answer>")
    role: str = "continue"
    min_observation_chars: int = len(_OPEN) + len(_CLOSE) + len(NO_RESULTS)

    def prompt(self, question: str) -> str:
        """The published prompt; the question gets a ``?`` where it lacks one."""
        text = question.strip()
        return PROMPT.replace("{question}", text if text.endswith("?") else text + "?")

    def parse(self, text: str) -> Action:
        """Read a reply; the first complete action counts, wherever it stands."""
        end = _END.search(text)
        if end is None:
            opened = "<search>" in text or "<answer>" in text
            return Invalid("unclosed_tag" if opened else "no_action", len(text))
        opener = f"<{end[1]}>"
        start = text.rfind(opener, 0, end.start())
        if start < 0:
            return Invalid("unopened_tag", end.end())
        content = text[start + len(opener) : end.start()]
        if end[1] == "answer":
            return Answer(content.strip(), end.end())
        return self._search(content, end.end())

    def _search(self, content: str, consumed: int) -> Search | Invalid:
        if _TAG.search(content):
            return Invalid("tag_in_query", consumed)
        query = " ".join(content.split())
        return Search((query,), consumed) if query else Invalid("empty_query", consumed)

    def render(self, results: Sequence[Sequence[SearchHit]], max_chars: int | None) -> Rendered:
        """``<information>`` around ``Doc 1(Title: T) text`` lines.

        ``T`` is the first line of the passage's contents as stored, quotes included, as in
        Search-R1. With ``max_chars``, whole passages are kept while they fit, the next one is
        cut and marked with an ellipsis, the rest is left out; the tags always stay whole.

        Args:
            results: Hits of each query, best first.
            max_chars: Most characters of the observation; None for no limit.
        """
        docs = [_document(i, hit) for hits in results for i, hit in enumerate(hits, 1)]
        body = neutralise(well_formed("".join(docs).strip()))
        if not body:
            return Rendered(f"{_OPEN}{NO_RESULTS}{_CLOSE}", False)
        room = len(body) if max_chars is None else max_chars - len(_OPEN) - len(_CLOSE)
        if len(body) <= room:
            return Rendered(f"{_OPEN}{body}{_CLOSE}", False)
        return Rendered(f"{_OPEN}{body[: room - 1].rstrip()}…{_CLOSE}", True)

    def fabricated(self, text: str) -> bool:
        """Whether a reply holds an ``<information>`` tag of the agent's own."""
        return "<information>" in text

    def invalid_message(self, reason: InvalidReason) -> str:
        """The published sentence, whatever the reason."""
        return INVALID

    def over_budget_message(self) -> str:
        """Ours: Search-R1 has no turn in which a search is refused."""
        return OVER_BUDGET


def _document(number: int, hit: SearchHit) -> str:
    title, _, text = hit.contents.partition("\n")
    return f"Doc {number}(Title: {title}) {text}\n"
