"""Targets of the command line: what they name is loaded, and what is wrong with them said in one sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from convwright.cli.targets import Targets, called, factory, load, running
from convwright.errors import BadInput
from convwright.tuning.recall import magnitude

SOURCE = """
import neighbour_of_targets
class Net:
    @staticmethod
    def forward(): return neighbour_of_targets.ANSWER
def forward(): return 1
number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module, its neighbour, and modules that cannot be imported; the search path stays as it was."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    (tmp_path / "module_of_targets.py").write_text(SOURCE)
    (tmp_path / "neighbour_of_targets.py").write_text("ANSWER = 42")
    (tmp_path / "module_of_targets.txt").write_text(SOURCE)
    (tmp_path / "folder_of_targets").mkdir()
    (tmp_path / "broken_of_targets.py").write_text("raise RuntimeError('first line\\nsecond line')")
    (tmp_path / "unwritten_of_targets.py").write_text("def f(:\n")
    (tmp_path / "ending_of_targets.py").write_text("import sys\nsys.exit()")
    yield tmp_path
    for name in [name for name in sys.modules if "_of_targets" in name]:
        del sys.modules[name]


def test_a_function_of_a_file_that_imports_its_neighbour(folder: Path) -> None:
    assert load(f"{folder / 'module_of_targets.py'}:forward")() == 1
    assert load(f"{folder / 'module_of_targets.py'}:Net.forward")() == 42


def test_a_function_of_a_module_in_the_present_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert load("module_of_targets:forward")() == 1
    assert load("module_of_targets.py:forward")() == 1


MISTAKES = [
    ("hello", "module:function or path/to/file.py:function, got 'hello'"),
    (":f", "got ':f'"),
    ("math:", "got 'math:'"),
    ("there.is.none:f", "module 'there.is.none' cannot be imported: ModuleNotFoundError: No module named 'there'"),
    ("math:sqroot", "'math' has no attribute 'sqroot'"),
    ("math:pi", "'math:pi' must name something callable, got float"),
    ("nowhere/file.py:f", "there is no file 'nowhere/file.py'"),
    ("module_of_targets.txt:f", "one of Python, whose name ends in .py, got 'module_of_targets.txt'"),
    ("folder_of_targets:f", "path/to/file.py:function, and 'folder_of_targets' is a folder"),
    ("broken_of_targets:f", "module 'broken_of_targets' cannot be imported: RuntimeError: first line"),
    (
        "broken_of_targets.py:f",
        "file 'broken_of_targets.py' cannot be imported: RuntimeError: first line (broken_of_targets.py, line 1)",
    ),
    ("unwritten_of_targets:f", "cannot be imported: SyntaxError"),
    ("ending_of_targets:f", "module 'ending_of_targets' cannot be imported: it ends the program by sys.exit()"),
    ("ending_of_targets.py:f", "file 'ending_of_targets.py' cannot be imported: it ends the program by sys.exit()"),
]


@pytest.mark.parametrize(("target", "sentence"), MISTAKES, ids=[target for target, _ in MISTAKES])
def test_mistakes(target: str, sentence: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(BadInput) as raised:
        load(target)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)
    assert target.partition(":")[0].removesuffix(".py") not in set(sys.modules) - {"math"}


def test_what_a_function_raises_is_said_in_words() -> None:
    def fails() -> None:
        raise ValueError("no luck\nand a traceback")

    place = r"\(test_targets.py, line \d+, in fails\)$"
    with pytest.raises(BadInput, match=f"'a:fails' is called without arguments and raised ValueError: no luck {place}"):
        called("a:fails", fails)
    with pytest.raises(BadInput, match=r"raised TypeError: .*'needed'$"):
        called("a:needs", lambda needed: needed)
    assert called("a:fine", lambda: 3) == 3


FAILING = """
import json, torch
def inner(width):
    return torch.ones(2, width).reshape(7)
def fails(): return inner(3)
def fails_in_pythons_own():
    return json.loads("{")
torn = lambda: 1 / 0
"""


@pytest.mark.parametrize(
    ("name", "place"),
    [("fails", "line 4, in inner"), ("fails_in_pythons_own", "line 7, in fails_in_pythons_own"), ("torn", "line 8")],
)
def test_what_fails_in_a_library_is_found_where_the_users_code_called_it(name: str, place: str, folder: Path) -> None:
    target = f"{folder}/failing_of_targets.py:{name}"
    (folder / "failing_of_targets.py").write_text(FAILING)
    with pytest.raises(BadInput) as raised:
        Targets([target]).call(target)
    assert str(raised.value).endswith(f" (failing_of_targets.py, {place})")
    assert "\n" not in str(raised.value)


def test_that_a_function_ends_the_program_is_said_with_its_name() -> None:
    with pytest.raises(
        BadInput, match=r"^'a:ends' is called without arguments and ended the program by sys.exit\(3\)$"
    ):
        called("a:ends", lambda: sys.exit(3))
    said = r"^'a:f' or 'b:g' ended the program by sys.exit\('done\\nfor'\)$"
    with pytest.raises(BadInput, match=said), running("a:f", "b:g", as_json=False):
        sys.exit("done\nfor")


OF_ITS_OWN = """
from __future__ import annotations
import pickle
from dataclasses import dataclass
from typing import ClassVar
@dataclass
class Size:
    h: int
    w: ClassVar[int] = 1
COPY = pickle.loads(pickle.dumps(Size(3)))
def again(): return pickle.loads(pickle.dumps(COPY))
"""


@pytest.mark.parametrize("name", ["own_of_targets", "own.v2_of_targets", "json"])
def test_a_file_finds_itself_by_its_name(folder: Path, name: str) -> None:
    import json

    (folder / f"{name}.py").write_text(OF_ITS_OWN)
    again = load(f"{folder}/{name}.py:again")
    assert again().h == 3
    assert again() == again(), "the class is the same"
    assert sys.modules["json"] is json, "a file takes no other module's name"
    sys.modules.pop(again.__module__)


def test_a_file_is_executed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "b_of_targets.py").write_text("import sys\nsys.counted_of_targets.append(__name__)\ndef f(): pass")
    (folder / "a_of_targets.py").write_text("import b_of_targets\ndef f(): return b_of_targets.f\ndef g(): pass")
    monkeypatch.setattr(sys, "counted_of_targets", [], raising=False)
    monkeypatch.chdir(folder)
    names = [
        "a_of_targets.py:f",
        "./a_of_targets.py:g",
        "b_of_targets.py:f",
        "b_of_targets:f",
        f"{folder}/b_of_targets.py:f",
    ]
    found = Targets(names).functions
    assert sys.counted_of_targets == ["b_of_targets"]
    assert {found[name] for name in names[2:]} == {found[names[0]]()}
    assert found[names[0]].__globals__ is found[names[1]].__globals__


RUN = """
import sys
sys.path.append({lib!r})
import helper_of_targets
from package_of_targets import inner
from plain_of_targets.part import PART
from deep_of_targets import DEEP
def f(): return helper_of_targets.NAME, inner.NAME, PART, DEEP
def late():
    import helper_of_targets as helper
    return helper.NAME
def lone():
    import lone_of_targets
    return lone_of_targets.NAME
"""


@pytest.fixture
def states(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two states of a project in two folders, which both have a module, a package, a folder without an ``__init__`` and
    a place that they look for modules in besides; and what one of them has alone."""
    for state in ("old", "new"):
        for part in ("package_of_targets", "plain_of_targets", "lib"):
            (folder / state / part).mkdir(parents=True)
        files = {
            "run_of_targets.py": RUN.format(lib=f"{folder}/{state}/lib/../lib"),
            "helper_of_targets.py": f"NAME = {state!r}",
            "package_of_targets/__init__.py": "",
            "package_of_targets/inner.py": "from helper_of_targets import NAME",
            "plain_of_targets/part.py": f"PART = {state!r}",
            "lib/deep_of_targets.py": f"DEEP = {state!r}",
        }
        for name, text in files.items():
            (folder / state / name).write_text(text)
    (folder / "new" / "lone_of_targets.py").write_text("NAME = 'lone'")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("order", [("old", "new"), ("new", "old"), ("old", "new", "old")])
def test_what_a_file_imports_is_that_of_its_own_folder(states: Path, order: tuple[str, ...]) -> None:
    targets = [f"{state}/run_of_targets.py:{name}" for state, name in zip(order, ("f", "f", "late"), strict=False)]
    found = Targets(targets).functions
    for state in ("old", "new"):
        assert found[f"{state}/run_of_targets.py:f"]() == (state,) * 4


LATE = [f"{state}/run_of_targets.py:late" for state in ("old", "new")]


def test_what_a_function_imports_in_its_first_call_is_that_of_its_own_folder(states: Path) -> None:
    loaded = Targets(LATE)
    assert [loaded.call(target) for target in LATE] == ["old", "new"]


def test_what_two_folders_have_is_refused_outside_of_a_first_call(states: Path) -> None:
    loaded = Targets([*LATE, "new/run_of_targets.py:lone"])
    said = r"^'helper_of_targets' may be \S+/old/helper_of_targets.py or \S+/new/helper_of_targets.py: "
    for target in LATE:
        loaded.call(target)
        with pytest.raises(BadInput, match=said):
            loaded.functions[target]()
    with pytest.raises(ImportError, match="a function can import it in its first call only, and a file at its head"):
        __import__("plain_of_targets.part")
    assert loaded.functions["new/run_of_targets.py:lone"]() == "lone", "what one alone has is found as ever"
    with pytest.raises(ModuleNotFoundError):
        __import__("absent_of_targets")


def test_of_one_folder_everything_is_found_later_too(states: Path) -> None:
    targets = [LATE[0], "old/run_of_targets.py:f"]
    assert Targets(targets).functions[LATE[0]]() == "old"
    assert sys.modules["helper_of_targets"].NAME == sys.modules["deep_of_targets"].DEEP == "old"


def test_a_module_that_both_find_in_one_place_is_no_other(states: Path) -> None:
    for state in ("old", "new"):
        text = f"import sys\nsys.path.append('{states}/{state}/..')\nfrom shared_of_targets import f\n"
        (states / state / "run_of_targets.py").write_text(text + "def late(): import shared_of_targets")
    (states / "shared_of_targets.py").write_text("def f(): pass")
    for late in Targets(LATE).functions.values():
        late()


TIRING = "calls = []\ndef tires():\n    calls.append(0)\n    if len(calls) > 2:\n        raise ValueError('no more')\n"


@pytest.mark.parametrize("packaged", [False, True])
def test_what_fails_after_it_ran_is_said_and_what_is_ours_is_not(packaged: bool, folder: Path) -> None:
    place = folder / "site-packages" if packaged else folder
    place.mkdir(exist_ok=True)
    target = f"{place}/tiring_of_targets.py:tires"
    (place / "tiring_of_targets.py").write_text(TIRING)
    tires = load(target)
    said = r"tires' ran at first, and later raised ValueError: no more"
    said += "" if packaged else r" \(tiring_of_targets.py, line 5, in tires\)$"
    for _ in range(2):
        tires()
    with pytest.raises(BadInput, match=said), running(target, as_json=False):
        tires()
    with pytest.raises(AttributeError, match="bit_length"), running(target, as_json=False):
        magnitude("no number")  # type: ignore[arg-type]


PYTHONS_OWN = [
    "builtins:breakpoint", "builtins:print", "builtins:exit", "builtins:input", "os:abort", "os:fork", "os:makedirs",
    "os:getcwd", "pdb:main", "sys:exit", "threading:Thread", "builtins:int", "math:sqrt", "builtins:str.upper",
    "pathlib:Path.cwd",
]  # fmt: skip


@pytest.mark.parametrize("target", PYTHONS_OWN)
def test_what_is_pythons_own_makes_no_model(target: str) -> None:
    """It is refused before it is called: that might wait for a debugger, or end the program."""
    with pytest.raises(BadInput) as raised:
        factory(target)
    assert str(raised.value) == (
        f"{target!r} is built in or of Python's standard library, so it does not make a model: "
        "name a function of yours or of a package"
    )


MAKERS = """
from functools import lru_cache, partial, wraps
def made(): return 1
kept = lru_cache(made)
part = partial(made)
opened = partial(open, "x")
def wrapping(function):
    @wraps(function)
    def inner(): return function()
    return inner
wrapped = wrapping(made)
class Maker:
    def __call__(self): return 1
    def method(self): return 1
    @classmethod
    def by_class(cls): return 1
maker = Maker()
"""


def test_what_a_user_or_a_package_wrote_may_make_one(folder: Path) -> None:
    (folder / "statistics_of_targets.py").write_text(MAKERS)
    for name in ("made", "kept", "part", "wrapped", "Maker", "maker", "maker.method", "Maker.by_class"):
        assert callable(factory(f"{folder / 'statistics_of_targets.py'}:{name}"))
    assert callable(factory("torch.nn:Conv2d"))
    with pytest.raises(BadInput, match="is built in or of Python's standard library"):
        factory(f"{folder / 'statistics_of_targets.py'}:opened")
