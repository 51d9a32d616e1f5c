"""The budgets and habits of the code, as the contributing guide states them."""

import ast
from statistics import median

MAX_FILE, MAX_FUNCTION, MEDIAN_FILE, MEDIAN_FUNCTION, MAX_MODULE_DOC = 400, 60, 150, 12, 8


def length(node):
    return node.end_lineno - node.lineno + 1


def test_no_file_is_too_long(library, tests):
    assert {s.name: s.lines for s in [*library, *tests] if s.lines > MAX_FILE} == {}
    assert median(s.lines for s in library) <= MEDIAN_FILE


def test_no_function_is_too_long(library):
    functions = {f"{s.name}:{node.name}": length(node) for s in library for node in s.functions()}
    assert {name: lines for name, lines in functions.items() if lines > MAX_FUNCTION} == {}
    assert median(functions.values()) <= MEDIAN_FUNCTION


def test_every_module_says_what_it_is_in_a_few_lines(library):
    docs = {s.name: ast.get_docstring(s.tree) for s in library if s.text.strip()}
    assert [name for name, doc in docs.items() if not doc] == []
    assert [name for name, doc in docs.items() if len(doc.splitlines()) > MAX_MODULE_DOC] == []


def test_public_names_are_documented(library):
    missing = [
        f"{source.name}:{node.name}"
        for source in library
        for owner in [source.tree, *(c for c in source.classes() if c.name[0] != "_")]
        for node in owner.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert missing == []


def test_every_field_of_the_boundary_types_is_documented(library):
    missing = [
        f"{source.name}:{node.name}.{field.target.id}"
        for source in library
        if source.path.name == "types.py"
        for node in source.classes()
        for field, after in zip(node.body, [*node.body[1:], None], strict=True)
        if isinstance(field, ast.AnnAssign) and not is_text(after)
    ]
    assert missing == []


def is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def test_libraries_do_not_print(library):
    printing = [
        f"{source.name}:{node.lineno}"
        for source in library
        if source.path.name != "cli.py"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert printing == []


def test_names_say_what_things_are(library):
    assert [s.name for s in library if s.path.stem in {"utils", "util", "helpers", "common"}] == []
    assert [c.name for s in library for c in s.classes() if c.name.endswith("Manager")] == []


def parents_of(library):
    """Return the base names of every class of ours by package and name."""
    return {
        (source.name.split("/")[1], node.name): [
            getattr(base, "attr", getattr(base, "id", "")) for base in node.bases
        ]
        for source in library
        for node in source.classes()
    }


def ancestors(parents, package, name):
    """Return every base name above a class, ours and others'."""
    above = parents.get((package, name), [])
    return [*above, *(far for base in above for far in ancestors(parents, package, base))]


def is_error(parents, package, name):
    return any(base.endswith(("Error", "Exception")) for base in ancestors(parents, package, name))


def test_inheritance_is_one_deep(library):
    """A class of ours may inherit from one of ours, and that from none; errors form a tree."""
    parents = parents_of(library)
    deep = [
        name
        for package, name in parents
        if not is_error(parents, package, name)
        and sum((package, base) in parents for base in ancestors(parents, package, name)) > 1
    ]
    assert deep == []


def test_the_errors_of_a_package_have_one_root(library):
    parents = parents_of(library)
    errors = [(package, name) for package, name in parents if is_error(parents, package, name)]
    roots = [
        (package, name)
        for package, name in errors
        if not any((package, base) in parents for base in parents[package, name])
    ]
    assert sorted(package for package, _ in roots) == sorted({package for package, _ in errors})


def test_only_contract_tests_know_two_packages(tests):
    ours = {"env": "searchqa", "learner": "stratified_grpo", "services": "searchqa_services"}
    strangers = [
        f"{source.name} imports {name}"
        for source in tests
        if (folder := source.name.split("/")[1]) in ours
        for name in source.imported()
        if (package := name.split(".")[0]) in ours.values()
        and package != ours[folder]
        # the one arrow between packages: the environment's embedded search
        and not (folder == "env" and name.startswith("searchqa_services.search.engine"))
    ]
    assert strangers == []
