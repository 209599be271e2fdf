"""Suites: fixed rows that stay what they are, files of users, and what is wrong with them in one sentence."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest

from convwright import suites
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput
from convwright.suites.suite import Row, Suite

COUNTS = {"deepbench": 217, "gtc": 14, "msd": 120, "padding-sweep": 99, "zoo": 437, "zoo-sample": 40}
# Of all names and keys: a benchmark whose rows change silently compares nothing.
DIGESTS = {
    "deepbench": "90e365cf5cfdf162",
    "gtc": "b10aad2590411227",
    "msd": "27160f792b352aad",
    "padding-sweep": "96537fd3ae0de756",
    "zoo": "6719729b9e6a8afa",
    "zoo-sample": "de354cb89f32ef8d",
}


def test_the_names() -> None:
    assert set(suites.names()) == set(COUNTS)


@pytest.mark.parametrize("name", COUNTS)
def test_rows_are_fixed(name: str) -> None:
    rows = suites.load(name).rows
    assert len(rows) == COUNTS[name]
    assert len({row.name for row in rows}) == len(rows)
    told = "".join(f"{row.name} {row.problem.key} {row.count}\n" for row in rows)
    assert sha256(told.encode()).hexdigest()[:16] == DIGESTS[name]


@pytest.mark.parametrize("name", COUNTS)
def test_every_row_reads_back(name: str) -> None:
    for row in suites.load(name).rows:
        assert ConvProblem.parse(row.problem.key) == row.problem
        assert " " not in row.text, "a suite leaves dtype, layout and direction to the caller"


@pytest.mark.parametrize("name", COUNTS)
def test_title_source_and_licence_are_told(name: str) -> None:
    suite = suites.load(name)
    assert (suite.name, bool(suite.title), bool(suite.source)) == (name, True, True)
    assert suite.licence.startswith({"zoo": "MIT", "zoo-sample": "MIT"}.get(name, "Apache-2.0"))


def test_deepbench_has_three_sets() -> None:
    sets = Counter(row.source for row in suites.load("deepbench").rows)
    assert sets == {"training_set": 94, "inference_server_set": 107, "inference_device_set": 16}


def test_the_zoo_stands_for_all_layers() -> None:
    rows = suites.load("zoo").rows
    assert sum(row.count for row in rows) == 1251
    assert len({network for row in rows for network in row.source.split()}) == 24
    assert len({row.problem for row in rows}) == len(rows)


def kind(problem: ConvProblem) -> str:
    if problem.groups > 1:
        return "groups"
    if problem.x.shape[2:] == (1, 1):
        return "1x1 image"
    return {1: "1x1", 3: "3x3"}.get(problem.taps[0], "larger")


def test_the_sample_follows_its_rule() -> None:
    """The rule that stands in its file, applied to the zoo."""
    chosen, taken = [], Counter[str]()
    for which, places in (("1x1", 15), ("3x3", 14), ("larger", 5), ("groups", 3), ("1x1 image", 3)):
        rows = [row for row in suites.load("zoo").rows if kind(row.problem) == which]
        rows.sort(key=lambda row: (row.problem.flops, row.name))
        for place in range(places):
            part = rows[len(rows) * place // places : len(rows) * (place + 1) // places]
            best = min(part, key=lambda row: (min(taken[n] for n in row.source.split()), -row.count, row.name))
            taken.update(best.source.split())
            chosen.append(best)
    assert suites.load("zoo-sample").rows == tuple(chosen)
    assert len(taken) == 24, "every network is there"


def test_msd_is_a_grid() -> None:
    for row in suites.load("msd").rows:
        channels, dilation, size = (int("".join(filter(str.isdigit, word))) for word in row.name.split("-"))
        same = ConvProblem.of((1, channels, size, size), (1, channels, 3, 3), padding=dilation, dilation=dilation)
        assert row.problem == same
        assert row.problem.y.shape == (1, 1, size, size)


def test_the_padding_sweep_is_a_grid() -> None:
    shapes = {(row.problem.padding[0][0], row.problem.x.shape) for row in suites.load("padding-sweep").rows}
    assert shapes == {(padding, (1, 3, 225, width)) for padding in range(9) for width in range(220, 231)}


def test_the_talks_outputs() -> None:
    """The sizes that the talk writes on both sides of its arrows."""
    outputs = {row.name: row.problem.y.shape[1:] for row in suites.load("gtc").rows}
    assert outputs["16x16x128-256-7x7"] == (256, 8, 8)
    assert outputs["1920x1080x4-32-9x9"] == (32, 960, 540)
    assert outputs["800x800x8-8-9x9"] == (8, 400, 400)
    assert outputs["128x128x128-128-11x11"] == (128, 128, 128)


MINE = """# title: Mine
# source: a drawer
# licence: CC0
# A stem, and what follows.

name,problem,count,source
stem,ic3oc64ih224kh7sh2ph3,2,net
mixed,"ic8oc8ih9kh3 tag:x=nhwc,w=nchw,y=nhwc"
"""


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(MINE)
    suite = suites.load(tmp_path / "mine.csv")
    assert (suite.name, suite.title, suite.source, suite.licence) == ("mine", "Mine", "a drawer", "CC0")
    stem, mixed = suite.rows
    assert (stem.name, stem.count, stem.source) == ("stem", 2, "net")
    assert (mixed.count, mixed.source, str(mixed.problem.w.layout)) == (1, "", "nchw")
    assert suites.asked_for(str(tmp_path / "mine.csv")) == suite


BAD = [
    ("stem\n", "line 1: a line has 2 to 4 cells, name,problem,count,source, got 1"),
    ("# here\n\na,ic8ih9oc8kh3\nb,ic8ih9oc8\n", "line 4: the filter's size kh is missing"),
    ("a,ic8ih9oc8kh3,many\n", "line 1: count must be a whole number"),
    (
        "a,ic8ih9oc8kh3,1\nb,ic8ih9oc8kh3,0\n",
        "line 2: count is how many layers a problem stands for, at least 1, got 0",
    ),
    ("a,ic8ih9oc8kh3,-2\n", "line 1: count must be a whole number of at most 18 digits, got '-2'"),
    (",ic8ih9oc8kh3\n", "line 1: a problem needs a name"),
    ("a,ic8ih9oc8kh3\na,ic8ih9oc8kh5\n", "line 2: each name may stand once, got 'a' again"),
    ('a,"ic8ih9oc8kh3\n', "line 1: it is no line of CSV, unexpected end of data"),
    ("a,hello\n", "line 1: a problem is written like"),
    ("# nothing\n", "has no problems"),
]


@pytest.mark.parametrize(("text", "sentence"), BAD, ids=[sentence for _, sentence in BAD])
def test_a_bad_file_is_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(BadInput) as raised:
        suites.load(path)
    assert str(raised.value).startswith(str(path))
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "folder.csv").mkdir()
    for name, sentence in (
        ("bytes.csv", "UTF-8"),
        ("folder.csv", "cannot be read: Is a directory"),
        ("absent.csv", "there is no file"),
        ("zooo", "a suite is one of deepbench, gtc"),
    ):
        with pytest.raises(BadInput, match=sentence):
            suites.load(tmp_path / name if name.endswith("csv") else name)


def test_a_problem_or_a_suite() -> None:
    assert suites.asked_for("zoo") == suites.load("zoo")
    assert [row.text for row in suites.asked_for("ic8ih9oc8kh3 dt:fp16").rows] == ["ic8ih9oc8kh3 dt:fp16"]
    with pytest.raises(BadInput, match=r"a suite \(deepbench, .*got 'zooo'"):
        suites.asked_for("zooo")
    with pytest.raises(BadInput, match="kh is missing"):
        suites.asked_for("ic8ih9oc8")


def test_a_size_that_will_vary_need_not_be_written() -> None:
    sizes = {"ih": 16, "mb": 2}
    suite = suites.asked_for("ic8oc8kh3", sizes)
    assert (suite.title, suite.rows[0].problem) == ("ic8oc8kh3", ConvProblem.parse("ic8oc8kh3ih16mb2"))
    assert suites.asked_for("ic8ih9oc8kh3", sizes) == suites.asked_for("ic8ih9oc8kh3")
    for text, sentence in (("ic8kh3", "'oc' is missing in 'ic8kh3'"), ("zoo2", "'zoo' in 'zoo2' is no size")):
        with pytest.raises(BadInput, match=sentence):
            suites.asked_for(text, sizes)


def test_what_a_caller_overrides() -> None:
    suite = suites.load("gtc").with_(batch=4, dtype="float16", layout="nhwc", epilogue="bias+relu")
    for before, after in zip(suites.load("gtc").rows, suite.rows, strict=True):
        assert (before.name, before.problem.x.shape[1:]) == (after.name, after.problem.x.shape[1:])
        assert (after.problem.n, str(after.problem.dtype), str(after.problem.epilogue)) == (4, "fp16", "bias+relu")
        assert {str(spec.layout) for spec in (after.problem.x, after.problem.y)} == {"nhwc"}
    backward = suites.load("gtc").with_(direction="backward_data")
    assert {str(row.problem.direction) for row in backward.rows} == {"backward_data"}
    assert suites.load("gtc").with_() == suites.load("gtc")


def test_an_override_replaces_what_a_row_says() -> None:
    suite = Suite("mine", "", "", "", (Row("a", "mb2ic8ih9oc8kh3 dt:fp16 ep:bias"),))
    (row,) = suite.with_(batch=3, dtype="fp32").rows
    assert row.problem == ConvProblem.parse("mb3ic8ih9oc8kh3 ep:bias")
    with pytest.raises(BadInput, match=r"^a: a bias has no part in the input's gradient"):
        suite.with_(direction="backward_data")
    with pytest.raises(BadInput, match=r"^a: a layout must be one of"):
        suite.with_(layout="hwcn")
