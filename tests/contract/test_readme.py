"""The first page does what it says: its Python runs and prints what its comments promise."""

import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_example_of_the_first_page_runs():
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "README.md", "exec"), {})
    lines = [line for line in printed.getvalue().splitlines() if line]
    assert lines[0] in block  # the question stands in a comment
    assert lines[-1] == "1.0 2 S1m S2h A 2"
    assert lines[-1] in block
    assert any("Demo Babult founded the company" in line for line in lines)
