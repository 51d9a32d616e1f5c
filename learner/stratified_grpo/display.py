"""The live view of a run: reward, searches, strata, evaluations; plain lines without a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from stratified_grpo.evaluate import Evaluation

_BARS = " ▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 48) -> str:
    """The last ``width`` values, each in [0, 1], as block characters."""
    return "".join(_BARS[round(8 * min(1.0, max(0.0, value)))] for value in values[-width:])


class Display:
    """A `Watcher` that draws; a context manager.

    Args:
        title: shown on the panel.
        updates: updates of the whole run.
        console: where to draw; without a terminal one line per event is written instead.
    """

    def __init__(self, title: str, updates: int, console: Console | None = None) -> None:
        self.console = console or Console()
        self._title = title
        self._progress = Progress(
            TextColumn("update"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        )
        self._task = self._progress.add_task("updates", total=updates)
        self._rewards: list[float] = []
        self._searches: list[float] = []
        self._metrics: dict[str, float] = {}
        self._evaluations: list[tuple[int, Evaluation]] = []
        self._live: Live | None = None

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            self._live = Live(self._draw(), console=self.console, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def updated(self, step: int, metrics: dict[str, float]) -> None:
        """Show an update."""
        self._metrics = metrics
        self._rewards.append(metrics["reward"])
        self._searches.append(metrics.get("episode/num_searches", 0.0))
        self._progress.update(self._task, completed=step)
        if self._live is not None:
            self._live.update(self._draw())
        else:
            self.console.print(
                f"update {step}: reward {metrics['reward']:.3f}, searches "
                f"{self._searches[-1]:.2f}, alpha {metrics['alpha']:.2f}, "
                f"{metrics['time/rollout_s'] + metrics['time/update_s']:.1f} s",
                highlight=False,
                soft_wrap=True,
            )

    def evaluated(self, step: int, evaluation: Evaluation) -> None:
        """Show an evaluation."""
        self._evaluations.append((step, evaluation))
        if self._live is not None:
            self._live.update(self._draw())
            return
        score = evaluation.overall
        self.console.print(
            f"evaluation after {step} updates: EM {score.em:.3f} "
            f"[{score.low:.3f}, {score.high:.3f}] on {score.questions} questions, "
            f"{score.searches:.2f} searches per question",
            highlight=False,
            soft_wrap=True,
        )

    def _draw(self) -> RenderableType:
        parts: list[RenderableType] = [self._progress]
        if self._rewards:
            top = max(1.0, *self._searches)
            parts.append(Text(f"reward    {self._rewards[-1]:.3f}  {sparkline(self._rewards)}"))
            scaled = [value / top for value in self._searches]
            parts.append(Text(f"searches  {self._searches[-1]:.2f}   {sparkline(scaled)}"))
            parts.append(self._strata())
        if self._evaluations:
            parts.append(evaluation_table(self._evaluations[:1] + self._evaluations[1:][-5:]))
        return Panel(Group(*parts), title=Text(self._title))

    def _strata(self) -> Table:
        table = Table("stratum", "share", "reward", "advantage mass", box=None, padding=(0, 2))
        keys = [k.removeprefix("stratum/") for k in self._metrics if k.startswith("stratum/")]
        names = {k.rpartition("/")[0] for k in keys}  # a stratum's own name may hold a slash
        for name in sorted(names, key=lambda text: (len(text), text)):
            row = [self._metrics[f"stratum/{name}/{part}"] for part in ("share", "reward", "mass")]
            table.add_row(Text(name), *(f"{value:.2f}" for value in row))
        return table


def evaluation_table(evaluations: Sequence[tuple[int, Evaluation]]) -> Table:
    """Evaluations as a table, one line per set of questions."""
    table = Table("updates", "questions", "EM", "95 % interval", "searches", "answered", box=None)
    for step, evaluation in evaluations:
        for score in evaluation.scores:
            table.add_row(
                str(step) if step >= 0 else "",
                f"{score.questions} ({score.name})",
                f"{score.em:.3f}",
                f"{score.low:.3f} to {score.high:.3f}",
                f"{score.searches:.2f}",
                f"{score.answered:.2f}",
            )
    return table
