"""What services/README.md says is so."""

import re
from pathlib import Path

from searchqa_services.search.settings import Settings

TEXT = (Path(__file__).parents[2] / "services" / "README.md").read_text()


def test_the_python_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names = {}
    exec(example, names)
    assert names["hits"][0].document.id == "7"


def test_every_setting_is_listed_with_its_default():
    for name, field in Settings.model_fields.items():
        row = next(
            line for line in TEXT.splitlines() if line.startswith("|") and f"`{name}`" in line
        )
        assert field.default is None or str(field.default) in row, name
