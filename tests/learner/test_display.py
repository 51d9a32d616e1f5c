"""What a run shows, on a terminal and without one."""

import io

from rich.console import Console

from stratified_grpo.display import Display, evaluation_table, sparkline
from stratified_grpo.evaluate import Evaluation, Score

METRICS = {
    "reward": 0.25,
    "alpha": 0.8,
    "episode/num_searches": 1.5,
    "time/rollout_s": 1.0,
    "time/update_s": 0.5,
    "stratum/0/share": 0.75,
    "stratum/0/reward": 0.1,
    "stratum/0/abs_advantage": 0.2,
    "stratum/0/mass": 0.4,
    "stratum/a/b/share": 0.25,
    "stratum/a/b/reward": 0.9,
    "stratum/a/b/abs_advantage": 0.2,
    "stratum/a/b/mass": 0.6,
}


def evaluation(em=0.5):
    score = Score(name="all", questions=10, em=em, low=0.24, high=0.76, searches=1.25, answered=0.9)
    return Evaluation(metric="em", temperature=0.0, invalid=0, scores=(score,))


def console(terminal):
    return Console(file=io.StringIO(), force_terminal=terminal, width=100, height=60)


def test_sparklines():
    assert sparkline([]) == ""
    assert sparkline([0.0, 0.5, 1.0]) == " ▄█"
    assert sparkline([-3.0, 7.0]) == " █"
    assert sparkline([0.0, 1.0, 1.0], width=2) == "██"


def test_without_a_terminal_every_event_is_one_line():
    out = console(terminal=False)
    with Display("title", 10, out) as display:
        display.evaluated(0, evaluation())
        display.updated(1, METRICS)
    lines = out.file.getvalue().splitlines()
    assert lines == [
        "evaluation after 0 updates: EM 0.500 [0.240, 0.760] on 10 questions, "
        "1.25 searches per question",
        "update 1: reward 0.250, searches 1.50, alpha 0.80, 1.5 s",
    ]


def test_an_environment_without_searches_can_be_shown():
    out = console(terminal=False)
    metrics = {k: v for k, v in METRICS.items() if k != "episode/num_searches"}
    with Display("title", 1, out) as display:
        display.updated(1, metrics)
    assert "searches 0.00" in out.file.getvalue()


def test_on_a_terminal_a_panel_shows_curves_strata_and_evaluations():
    out = console(terminal=True)
    with Display("the run", 10, out) as display:
        for step in range(9):
            display.evaluated(step, evaluation(step / 10))
        display.updated(1, METRICS)
    shown = out.file.getvalue()
    final = shown[shown.rindex("the run") :]
    for text in (
        "reward",
        "0.250",
        "searches",
        "1.50",
        "a/b",
        "0.60",
        "10 (all)",
        "0.240 to 0.760",
    ):
        assert text in final, text
    assert "0.000" in final  # the first evaluation stays beside the last five
    assert "0.200" not in final


def test_names_are_not_markup():
    out = console(terminal=True)
    metrics = {k.replace("a/b", "[/x]"): v for k, v in METRICS.items()}
    with Display("runs/[/red]", 10, out) as display:
        display.updated(1, metrics)
    assert "runs/[/red]" in out.file.getvalue()
    assert "[/x]" in out.file.getvalue()


def test_an_evaluation_outside_a_run_has_no_step():
    out = console(terminal=False)
    out.print(evaluation_table([(-1, evaluation())]))
    assert "-1" not in out.file.getvalue()


def test_a_display_makes_its_own_console(capsys):
    with Display("title", 1) as display:
        display.updated(1, METRICS)
    assert "update 1" in capsys.readouterr().out
