"""``SearchQA-v0`` as a Gymnasium environment: a thin shell over the episode machine.

Everything that decides an episode lives in :mod:`searchqa.episode`; this module opens the
questions and the search, picks a question for a seed, runs the queries the machine asks for, and
writes ``info``. The class docstring is the specification.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium

from searchqa.episode import EpisodeMachine, Rules
from searchqa.errors import ConfigError, EpisodeError, SearchUnavailable
from searchqa.protocols import get_protocol
from searchqa.protocols.base import ActionProtocol
from searchqa.questions import open_questions
from searchqa.record import to_json
from searchqa.scoring import REWARDS, em
from searchqa.search import SearchBackend, open_search
from searchqa.spaces import FreeText
from searchqa.structure import StratumKey, check_stratum_key
from searchqa.types import Question, SearchHit, Status

INFO_SCHEMA = "searchqa.info/1"


class SearchQAEnv(gymnasium.Env[str, str]):
    """Answer a question, searching a corpus first as often as it takes.

    ## Description
    Each episode is one question. The agent writes text. The first complete action in a reply
    counts, wherever it stands: a search is carried out and its results come back as text, an
    answer ends the episode and is scored. Only the agent's own text is ever parsed or scored; the
    protocol's tags inside a retrieved passage are made inert. The environment knows no tokenizer
    and no chat template, and is deterministic as long as the search is.

    ## Action Space
    ``FreeText()``: any string, the agent's whole reply of one turn. What follows the first
    complete action is dropped: ``info["consumed_chars"]`` says how much counted, and
    ``info["stop"]`` lists the strings at which a sampler should stop anyway.

    ## Observation Space
    ``FreeText()``: the prompt at reset, then the text to append after each action: search
    results, or a sentence on why there are none. It is empty at the end of an episode.
    ``AsyncVectorEnv`` needs ``shared_memory=False`` (and says so), as for all custom spaces.

    ## Starting State
    The prompt of one question. Of N questions ``reset(seed=s)`` takes ``perm(s // N)[s % N]``, a
    fixed permutation for each epoch: a pure function of s, so that consecutive seeds cover the
    questions once an epoch and the members of a group share a question by sharing a seed.
    ``options={"question_id": id}`` or ``{"index": i}`` names one. Without either, the
    environment's own generator draws.

    ## Rewards
    0.0 until the end, then the reward of the answer: ``em``, exact match as Search-R1 scores it
    (see :func:`searchqa.scoring.em` for the one deviation). Without an answer it is 0.0.

    ## Episode End
    *Terminated*: the agent answered, in whatever turn. *Truncated*: the last of ``max_turns``
    turns passed without an answer (``turn_limit``), or a search failed and
    ``on_search_failure="void"`` (``error_search``, reward 0.0, ``valid`` False). Never both.
    Every reply is a turn, invalid ones too. On the last turn only an answer counts; a search
    in it is not carried out and is over budget. With the default ``max_turns`` an agent can
    thus use its whole search budget and answer. A search beyond ``max_searches`` is answered with
    a sentence that says so. When the search fails and ``on_search_failure="raise"``, ``step``
    raises :class:`SearchUnavailable` and the episode stands as it did before the step: the same
    action may be tried again. ``abandon()`` ends an episode from outside (``external``); after a
    truncation by a wrapper such as ``TimeLimit`` the status still reads ``running``.

    ## Information
    The same keys with the same types at every reset and step, in a fresh dict:

    | key | type | meaning |
    |---|---|---|
    | ``schema`` | str | ``searchqa.info/1`` |
    | ``question_id``, ``question`` | str | the question, as asked by its author |
    | ``num_questions`` | int | N above |
    | ``golden_answers`` | list of str | accepted answers: for scoring, not for the agent |
    | ``hops`` | int | facts to chain; 0 where unknown |
    | ``status`` | str | running, answered, turn_limit, error_search, external |
    | ``valid`` | bool | False: do not train on this episode |
    | ``role`` | str | of the returned text: continue, user or tool |
    | ``stop`` | list of str | stop strings for the sampler |
    | ``consumed_chars`` | int | characters of the last action that counted |
    | ``invalid_reason`` | str | why the last action was invalid, else empty |
    | ``num_turns`` | int | replies so far |
    | ``num_searches`` | int | searches carried out |
    | ``num_attempted`` | int | ``num_searches + num_failed + num_over_budget`` |
    | ``num_failed``, ``num_over_budget`` | int | searches not carried out, and why |
    | ``num_empty``, ``num_repeated`` | int | of those carried out: found nothing, asked before |
    | ``num_hits`` | int | of those carried out: a golden answer occurs in the results as shown |
    | ``num_supporting`` | int | supporting passages found; -1 where the question names none |
    | ``num_invalid`` | int | invalid replies |
    | ``num_fabricated`` | int | replies in which the agent wrote results itself |
    | ``num_dropped_chars`` | int | characters dropped after actions |
    | ``structure`` | str | signature such as ``S1h X2 S3m A``, see :mod:`searchqa.structure` |
    | ``stratum`` | str | the structural stratum so far |
    | ``answer`` | str | the agent's answer, empty without one |
    | ``em`` | float | exact match at the end, 0.0 before |
    | ``reward_<name>`` | float | each part of the reward at the end, 0.0 before |
    | ``record`` | str | episode record (``searchqa.episode/1``) at the end, empty before |

    With ``include_timing=True`` also ``search_seconds``, a float: wall-clock time this episode
    spent searching, which is not reproducible.

    ## Arguments
    * ``questions`` (``"demo:train"``): ``demo:SPLIT?hops=2&relations=demo&passages=4000&seed=0``
      (keys: hops, types, relations, limit, and the world's passages, seed, mode_share), the path
      of a ``.jsonl`` or ``.jsonl.gz`` in the FlashRAG form, or a sequence of ``Question``.
    * ``search`` (``"embedded"``): BM25 over the demo world of ``questions``; ``embedded:PATH``
      (an index folder or a corpus file), the URL of a service, or a ``SearchBackend``.
    * ``protocol`` (``"search_r1"``): a name, or an ``ActionProtocol``.
    * ``prompt`` (None): a template with ``{question}``; None is the protocol's published prompt.
    * ``reward`` (``"em"``): a name in :data:`searchqa.scoring.REWARDS`.
    * ``max_searches`` (4): searches carried out in an episode.
    * ``max_turns`` (None): replies in an episode; None is ``max_searches + 1``.
    * ``top_k`` (3): passages a search.
    * ``stratum`` (``"num_searches"``): a counter's name, ``structure``, or a function of both.
    * ``on_search_failure`` (``"raise"``): or ``"void"``, see Episode End.
    * ``search_timeout_s`` (30.0): total deadline of one call to a service, retries included.
    * ``max_query_chars`` (2000): a longer query is invalid.
    * ``max_observation_chars`` (None): most characters of results; passages are cut, tags never.
    * ``render_mode`` (None): or ``"ansi"``, with which ``render()`` returns the transcript.
    * ``include_timing`` (False): see Information.

    ## Version History
    * v0: first version.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 (as in Env)

    def __init__(
        self,
        questions: str | Sequence[Question] = "demo:train",
        search: str | SearchBackend = "embedded",
        protocol: str | ActionProtocol = "search_r1",
        prompt: str | None = None,
        reward: str = "em",
        max_searches: int = 4,
        max_turns: int | None = None,
        top_k: int = 3,
        stratum: StratumKey = "num_searches",
        on_search_failure: str = "raise",
        search_timeout_s: float = 30.0,
        max_query_chars: int = 2000,
        max_observation_chars: int | None = None,
        render_mode: str | None = None,
        include_timing: bool = False,
    ) -> None:
        self.rules = Rules(
            protocol=get_protocol(protocol),
            template=prompt,
            reward=reward,
            max_searches=max_searches,
            max_turns=_turns(max_searches) if max_turns is None else max_turns,
            top_k=top_k,
            max_query_chars=max_query_chars,
            max_observation_chars=max_observation_chars,
            stratum=check_stratum_key(stratum),
        )
        _check(self.rules, on_search_failure, render_mode)
        self.questions = open_questions(questions)
        spec = questions if isinstance(questions, str) else ""
        self.search = open_search(search, spec, search_timeout_s)
        self.on_search_failure = on_search_failure
        self.include_timing = include_timing
        self.render_mode = render_mode
        self.action_space = FreeText()
        self.observation_space = FreeText()
        self._machine: EpisodeMachine | None = None
        self._probed = False
        self._search_s = 0.0

    @property
    def machine(self) -> EpisodeMachine:
        """The running episode.

        Raises:
            EpisodeError: There is none yet.
        """
        if self._machine is None:
            raise EpisodeError("there is no episode yet; call reset() first")
        return self._machine

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: Names the question, see the class; None draws one.
            options: ``question_id`` or ``index`` names the question instead.

        Returns:
            The prompt, and ``info``.

        Raises:
            ConfigError: The options name no question.
            SearchUnavailable: The search service did not come up within ten seconds, or
                ``search_timeout_s`` if that is less (first reset only).
        """
        super().reset(seed=seed)
        question = self._choose(seed, dict(options or {}))
        if not self._probed:
            self.search.check_ready()
            self._probed = True
        self._machine = EpisodeMachine(
            question,
            self.rules,
            seed=-1 if seed is None else int(seed),
            index_fingerprint=self.search.fingerprint,
        )
        self._search_s = 0.0
        return self._machine.prompt, self._info(role="user")

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take one reply of the agent.

        Args:
            action: The whole reply; what follows its first action is dropped.

        Returns:
            The text to append, the reward, terminated, truncated, ``info``.

        Raises:
            EpisodeError: No episode runs, or the action is not a string.
            SearchUnavailable: The search failed and ``on_search_failure="raise"``.
            SearchProtocolError: The search service does not speak the wire.
        """
        machine = self.machine
        if not isinstance(action, str):
            raise EpisodeError(f"an action must be a string, not {type(action).__name__}")
        queries = machine.act(action)
        text = self._observe(machine, queries)
        terminated = machine.status is Status.ANSWERED
        reward = machine.reward if machine.done else 0.0
        truncated = machine.done and not terminated
        return text, reward, terminated, truncated, self._info(self.rules.protocol.role)

    def abandon(self) -> dict[str, Any]:
        """End the running episode from outside and return its ``info``, record included.

        For callers with a limit of their own, such as a full context window.

        Raises:
            EpisodeError: No episode runs.
        """
        self.machine.abandon()
        return self._info(self.rules.protocol.role)

    def render(self) -> str | None:
        """The transcript so far, or None without ``render_mode="ansi"``."""
        if self.render_mode is None:
            return None
        machine = self.machine
        lines = [f"[{segment.source}] {segment.text}" for segment in machine.segments]
        return "\n".join([*lines, f"[{machine.status}] {machine.structure}"])

    def _choose(self, seed: int | None, options: dict[str, Any]) -> Question:
        unknown = sorted(set(options) - {"question_id", "index"})
        if unknown or len(options) > 1:
            raise ConfigError(
                f"options may name question_id or index, one of the two, not {sorted(options)}"
            )
        if "question_id" in options:
            return self.questions.by_id(str(options["question_id"]))
        if "index" in options:
            return self.questions.by_index(options["index"])
        if seed is not None:
            return self.questions.by_seed(int(seed))
        return self.questions.by_index(int(self.np_random.integers(len(self.questions))))

    def _observe(self, machine: EpisodeMachine, queries: tuple[str, ...]) -> str:
        if not queries:
            return machine.observe()
        try:  # the status is the episode before the step, whatever failed
            try:  # the status is a voided episode
                results = self._timed_search(queries)
            except SearchUnavailable:
                if self.on_search_failure == "raise":
                    raise
                machine.void()
                return ""
            machine.index_fingerprint = self.search.fingerprint
            return machine.observe(results)
        except BaseException:
            machine.retract()
            raise

    def _timed_search(self, queries: tuple[str, ...]) -> list[list[SearchHit]]:
        began = time.perf_counter()
        try:  # time counts whatever comes of it
            return self.search.search(queries, self.rules.top_k)
        finally:
            self._search_s += time.perf_counter() - began

    def _info(self, role: str) -> dict[str, Any]:
        """A fresh dict: the same keys and types at every reset and step."""
        machine = self.machine
        question, turn = machine.question, machine.turns[-1] if machine.turns else None
        info: dict[str, Any] = {
            "schema": INFO_SCHEMA,
            "question_id": question.id,
            "question": question.text,
            "num_questions": len(self.questions),
            "golden_answers": list(question.golden_answers),
            "hops": question.hops,
            "status": machine.status.value,
            "valid": machine.valid,
            "role": role,
            "stop": list(self.rules.protocol.stop),
            "consumed_chars": turn.consumed_chars if turn else 0,
            "invalid_reason": turn.reason if turn else "",
            **machine.counts,
            "structure": machine.structure,
            "stratum": machine.stratum,
            "answer": machine.answer,
            "em": em(machine.answer, question.golden_answers) if machine.done else 0.0,
            **{f"reward_{name}": value for name, value in machine.reward_parts.items()},
            "record": to_json(machine.episode()) if machine.done else "",
        }
        if self.include_timing:
            info["search_seconds"] = self._search_s
        return info


def _turns(max_searches: object) -> int:
    """The default ``max_turns``; a ``max_searches`` of another kind is refused later, by name."""
    return max_searches + 1 if isinstance(max_searches, int) else 1


def _check(rules: Rules, on_search_failure: str, render_mode: str | None) -> None:
    """Refuse what cannot work, with one sentence."""
    template: object = rules.template
    if template is not None and not (isinstance(template, str) and "{question}" in template):
        raise ConfigError(f"prompt={template!r} must be a text and must contain {{question}}")
    if not isinstance(rules.reward, str) or rules.reward not in REWARDS:
        raise ConfigError(f"reward={rules.reward!r} is unknown; use one of {', '.join(REWARDS)}")
    if on_search_failure not in ("raise", "void"):
        raise ConfigError(f"on_search_failure={on_search_failure!r} must be 'raise' or 'void'")
    if render_mode not in (None, "ansi"):
        raise ConfigError(f"render_mode={render_mode!r} must be None or 'ansi'")
    least = {"max_searches": 0, "max_turns": 1, "top_k": 1, "max_query_chars": 1}
    if rules.max_observation_chars is not None:
        least["max_observation_chars"] = rules.protocol.min_observation_chars
    for name, bound in least.items():
        value = getattr(rules, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < bound:
            raise ConfigError(f"{name}={value!r} must be an integer of at least {bound}")
