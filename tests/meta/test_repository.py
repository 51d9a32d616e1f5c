"""What lies where, and that the files which describe the project agree with each other."""

import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


@pytest.fixture(scope="module")
def project(root):
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tracked(root):
    """Every file under version control."""
    if not (root / ".git").exists() or not shutil.which("git"):
        pytest.skip("needs the git checkout")
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True
    )
    return [root / name for name in listing.stdout.split("\0") if name and (root / name).exists()]


def test_each_root_folder_holds_one_package_and_no_loose_module(root, project):
    for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        folder, name = package.split("/")
        assert (root / package / "py.typed").exists()
        assert (root / package / "__init__.py").exists()
        assert list((root / folder).glob("*.py")) == []
        assert [p.parent.name for p in (root / folder).glob("*/__init__.py")] == [name]


def test_test_folders_are_no_packages(root):
    assert list((root / "tests").rglob("__init__.py")) == []


def test_ignore_patterns_hide_no_source(root):
    patterns = (root / ".gitignore").read_text(encoding="utf-8").split()
    loose = {p for p in patterns if not p.startswith("/")}
    assert loose <= {"__pycache__/", "*.egg-info/"}, "anchor patterns: a bare env/ hides our code"
    top = {p.strip("/").split("/")[0] for p in patterns if p.startswith("/")}
    assert not top & {"env", "learner", "services", "tests", "docs", "benchmarks", "scripts"}


def test_the_changelog_names_the_version(root, project):
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[?{re.escape(project['project']['version'])}\]?", text, re.MULTILINE)


def test_the_documents_a_reader_expects_exist(root):
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "NOTICE"):
        assert (root / name).read_text(encoding="utf-8").strip(), name


def test_nothing_names_a_place_on_somebodys_machine(tracked):
    places = re.compile(r"(?<![\w.])/(?:work|home/\w|root|Users)/")
    guilty = {
        str(path): match.group()
        for path in tracked
        if path.suffix in {".py", ".md", ".toml", ".yaml", ".txt", ".sh", ""}
        and (match := places.search(path.read_text(encoding="utf-8")))
    }
    assert guilty == {}


def test_every_dependency_is_pinned_within_its_range(root, project):
    pins = {}
    for line in (root / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            pin = Requirement(line)
            (specifier,) = pin.specifier
            assert specifier.operator == "==", line
            pins[canonicalize_name(pin.name)] = specifier.version
    wanted = list(project["project"]["dependencies"])
    wanted += [r for rs in project["project"]["optional-dependencies"].values() for r in rs]
    wanted += project["dependency-groups"]["dev"]
    for requirement in map(Requirement, wanted):
        if requirement.name != project["project"]["name"]:
            version = pins.get(canonicalize_name(requirement.name))
            assert version, f"constraints.txt lacks {requirement.name}"
            assert requirement.specifier.contains(version), f"{requirement} excludes {version}"


@pytest.mark.parametrize("script", ["scripts/setup", "scripts/check", "scripts/test", ".ci/run"])
def test_scripts_can_be_run(root, script):
    assert os.access(root / script, os.X_OK)
    subprocess.run(["bash", "-n", str(root / script)], check=True)


def test_ci_runs_the_scripts_people_run(root):
    text = (root / ".ci/run").read_text(encoding="utf-8")
    assert "scripts/check" in text
    assert "scripts/test" in text


def test_under_ci_the_real_data_is_there():
    if os.environ.get("CI") != "true":
        pytest.skip("only under CI=true is missing data a failure")
    folder = os.environ.get("SEARCHQA_TEST_DATA", "")
    assert os.path.isdir(folder), "set SEARCHQA_TEST_DATA to the folder of test data"


def test_commands_of_the_wheel_lead_somewhere(project):
    for target in project["project"]["scripts"].values():
        module, function = target.split(":")
        code = f"import {module} as m; assert callable(m.{function})"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
