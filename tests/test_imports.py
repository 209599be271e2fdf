"""Imports point one way, and what is pure stays pure: the graph of all imports, those inside functions included."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn

import convwright

ROOT = Path(convwright.__file__).parent

# A room may import from itself and from those above it. Rooms on one line do not know each other.
ORDER = [
    {"errors"},
    {"naming", "option_names", "forking", "writable", "process", "strict_json", "store_url", "clusters", "notebook"},
    {"settings", "torch_api"},
    {"core"},
    {"graph"},
    {"suites"},
    {"store"},
    {"tensors", "flags", "shortage", "uncompiled"},
    {"epilogue_math", "torch_operators", "torch_pooling"},
    {"rewrites", "backends", "measuring"},
    {"prediction"},
    {"tuning"},
    {"eager"},
    {"wording"},
    {"api"},
    {"engine"},
    {"campaign"},
    {"placement"},
    {"training"},
    {"nn"},
    {"quantizing", "advising"},
    {"emit"},
    {"report"},
    {"cli"},
    {"__main__"},
]

# What core and graph may import besides the standard library.
SHARED = ("convwright.errors", "convwright.naming", "convwright.strict_json")
# What a module of graph may import inside of functions alone.
LATE = {"convwright.graph.integer_program": ("numpy", "scipy")}

# The same for the rooms inside of a room, below what stands in it openly.
INNER_ORDER = {
    "measuring": [{"hardware", "checking"}, {"disturbances"}],
    "eager": [{"asking"}, {"calls"}, {"running"}, {"gradients"}],
    "report": [{"words"}, {"tables", "benchmarks"}],
    "engine": [
        {"capture", "export"},
        {"passes"},
        {"planning"},
        {"precision", "running"},
        {"saving"},
        {"inspecting"},
        {"buckets"},
    ],
}


def ranks(order: list[set[str]]) -> dict[str, int]:
    return {room: rank for rank, rooms in enumerate(order) for room in rooms}


RANK, INNER_RANK = ranks(ORDER), {room: ranks(order) for room, order in INNER_ORDER.items()}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def statements(node: ast.AST, in_function: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """The imports below ``node``, and whether each is in a function; what only a type checker sees is left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):  # no statement stands in an expression
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            for other in child.orelse:
                yield from statements(other, in_function)
        elif isinstance(child, ast.Import | ast.ImportFrom):
            yield child, in_function
        else:
            yield from statements(child, in_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


@cache  # of the imports alone: the trees of all modules take 130 MB
def imports(module: str) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
    return list(statements(ast.parse(MODULES[module].read_text())))


@cache
def imported(module: str, *, inside_functions: bool = True) -> set[str]:
    """The modules that ``module`` imports, by full name."""
    found = set()
    for statement, in_function in imports(module):
        if in_function and not inside_functions:
            continue
        if isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names}
        else:
            assert statement.level == 0, f"{module} imports relatively"
            assert statement.module is not None
            for alias in statement.names:
                inner = f"{statement.module}.{alias.name}"
                found.add(inner if inner in MODULES else statement.module)
    return found


def ours(module: str) -> set[str]:
    return {name for name in imported(module) if name.partition(".")[0] == "convwright"}


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def inside(package: str) -> list[str]:
    return [module for module in MODULES if module == package or module.startswith(f"{package}.")]


def test_every_room_has_its_place() -> None:
    assert {room(module) for module in MODULES} - {""} == set(RANK)


def test_imports_point_one_way() -> None:
    for module in [module for module in MODULES if module != "convwright"]:
        for target in ours(module):
            if target == "convwright":  # its version
                assert room(module) == "cli", f"{module} imports the public face"
            elif room(target) != room(module):
                assert RANK[room(target)] < RANK[room(module)], f"{module} imports {target}"


def inner_room(module: str) -> str | None:
    """The room inside of its room in which a module stands."""
    parts = module.split(".")
    package = ROOT.joinpath(*parts[1:3])
    return parts[2] if len(parts) > 2 and package.is_dir() else None


@pytest.mark.parametrize("room_name", INNER_ORDER)
def test_every_inner_room_has_its_place(room_name: str) -> None:
    assert {inner_room(module) for module in inside(f"convwright.{room_name}")} - {None} == set(INNER_RANK[room_name])


def test_imports_inside_of_a_room_point_one_way() -> None:
    for module in [module for module in MODULES if room(module) in INNER_ORDER and inner_room(module)]:
        rank, here = INNER_RANK[room(module)], inner_room(module)
        for target in ours(module):
            there = inner_room(target)
            if room(target) == room(module) and there not in (None, here):
                assert rank[there] < rank[here], f"{module} imports {target}"


def test_no_imports_go_in_circles() -> None:
    """Imports inside functions count, those that only a type checker sees do not."""
    left = {module: {name for name in ours(module) if name in MODULES and name != module} for module in MODULES}
    while done := [module for module, targets in left.items() if not targets & left.keys()]:
        for module in done:
            del left[module]
    assert left == {}, f"these import each other: {', '.join(sorted(left))}"


def test_the_public_face_imports_next_to_nothing() -> None:
    """But for what has to be there before the first fork, which itself needs nothing."""
    for module in "convwright", "convwright.forking":
        others = imported(module) - {"convwright", "convwright.forking"}
        assert {name.partition(".")[0] for name in others} <= set(sys.stdlib_module_names)


def is_pure(target: str) -> bool:
    """Neither the machine nor another package has a say in what it does."""
    standard = target.partition(".")[0] in sys.stdlib_module_names and target not in ("os", "time", "random")
    return standard or target in SHARED or target.startswith("convwright.core")


def test_core_is_pure() -> None:
    for module in inside("convwright.core"):
        for target in imported(module):
            assert is_pure(target), f"{module} imports {target}"


def test_graph_is_pure() -> None:
    for module in inside("convwright.graph"):
        at_once = imported(module, inside_functions=False)
        for target in imported(module):
            late = target not in at_once and target.partition(".")[0] in LATE.get(module, ())
            assert late or is_pure(target) or target.startswith("convwright.graph"), f"{module} imports {target}"


# Rooms that need no torch until a function of theirs asks for it.
LIGHT = [module for name in ("core", "graph", "placement", "cli") for module in inside(f"convwright.{name}")]


def test_torch_is_not_imported_until_it_is_needed() -> None:
    for module in LIGHT:
        seen, open_ = set(), {module}
        while open_:
            current = open_.pop()
            seen.add(current)
            for target in imported(current, inside_functions=False):
                assert target.partition(".")[0] not in ("torch", "triton", "cudnn"), f"{current} imports {target}"
                if target in MODULES and target not in seen:
                    open_.add(target)


def backend_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[2] if parts[1:2] == ["backends"] and len(parts) > 2 and parts[2] != "registry" else None


def test_no_backend_knows_another() -> None:
    for module in [module for module in MODULES if backend_of(module)]:
        for target in ours(module):
            assert backend_of(target) in (None, backend_of(module)), f"{module} imports {target}"
            assert target != "convwright.backends.registry"
            assert room(target) not in ("tuning", "rewrites", "measuring"), f"{module} imports {target}"


def test_rewrites_know_no_backend() -> None:
    for module in inside("convwright.rewrites"):
        assert not {target for target in ours(module) if room(target) in ("backends", "measuring", "tuning")}, module


# What tensors, modules and storages of PyTorch keep private.
_PRIVATE_OF_TORCH = {
    name
    for kept in (torch.ones(1), torch.ones(1).untyped_storage(), nn.Conv2d(1, 1, 1), nn.ConvTranspose2d(1, 1, 1))
    for name in dir(kept)
    if is_private(name)
}


# A private attribute of something else than `self`, `cls` or `super()`. Only modules that have one need to be parsed.
_PRIVATE_ATTRIBUTE = re.compile(r"(?<![^.\w]self)(?<![^.\w]cls)(?<!super\(\))\._(?!_)")


def test_only_torch_api_names_what_is_private_to_torch() -> None:
    """Not by an import, nor as an attribute of what was imported, nor as one of a tensor or a module."""
    for module in [module for module in MODULES if module != "convwright.torch_api"]:
        of_torch: set[str] = set()
        for statement, _ in imports(module):
            home = statement.module or "" if isinstance(statement, ast.ImportFrom) else ""
            for alias in statement.names:
                path = f"{home}.{alias.name}".strip(".").split(".")
                if path[0] == "torch":
                    assert not any(map(is_private, path)), f"{module}:{statement.lineno} imports {'.'.join(path)}"
                    of_torch.add(alias.asname or (path[-1] if home else path[0]))
        source = MODULES[module].read_text()
        for node, owner in private_attributes(source, of_torch) if _PRIVATE_ATTRIBUTE.search(source) else ():
            its_own = owner in ("self", "cls", "super()") and not isinstance(node.value, ast.Attribute)
            theirs = owner in of_torch or (node.attr in _PRIVATE_OF_TORCH and not its_own)
            assert not theirs, f"{module}:{node.lineno} names {ast.unparse(node)}"


def private_attributes(source: str, of_torch: set[str]) -> Iterator[tuple[ast.Attribute, str]]:
    """Each with the name at its beginning. ``of_torch`` are names of PyTorch's; other names for these are added."""
    nodes = list(ast.walk(ast.parse(source)))
    for node in nodes:  # as in `_aten: Any = torch.ops.aten`
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Attribute):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if root(node.value) in of_torch:
                of_torch |= {target.id for target in targets if isinstance(target, ast.Name)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            yield node, root(node.value)


def root(node: ast.AST) -> str:
    """The name at the beginning of ``a.b.c``, or ``super()``; nothing where it begins with something else."""
    while isinstance(node, ast.Attribute):
        node = node.value
    if isinstance(node, ast.Name):
        return node.id
    return "super()" if isinstance(node, ast.Call) and root(node.func) == "super" else ""


def test_no_module_needs_itself_to_be_imported() -> None:
    """Imports inside functions may lead back: a problem reads and writes its own notation."""
    graph = {module: imported(module, inside_functions=False) - {module} for module in MODULES}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path, module))
        if module not in done:
            for target in sorted(graph.get(module, ())):
                visit(target, (*path, module))
            done.add(module)

    for module in MODULES:
        visit(module, ())


def test_a_first_check_of_a_search_loads_nothing_that_takes_long() -> None:
    """Some functions of PyTorch's load sympy when they are first called, which takes longer than a search may."""
    script = (
        "import sys, torch\n"
        "from convwright.core.problem import ConvProblem\n"
        "from convwright.measuring.checking.data import operands\n"
        "from convwright.measuring.checking.of_kind import sampled_reference\n"
        "problem = ConvProblem.parse('ic8ih32oc8kh3ph1')\n"
        "given, before = operands(problem, 'normal', 'cpu'), set(sys.modules)\n"
        "sampled_reference(problem, given)\n"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
