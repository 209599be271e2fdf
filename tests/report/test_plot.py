"""Plots: what is drawn is what was measured."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from convwright.core.finding import Interval
from convwright.errors import BadInput
from convwright.report.benchmarks.curves import chart
from convwright.report.benchmarks.result import Outcome, Result
from convwright.report.fit import fits_of
from convwright.report.plot import MOST_COLOURS, Chart, Curve, Fit, draw_chart, draw_fits
from convwright.suites.sweep import Sweep
from convwright.wording.pictures import picture_path
from unprivileged import read_only

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is missing")
SWEEPS = [Sweep.parse("ih=8..32:*2")]


def around(value: float) -> Interval:
    return Interval(value, 0.9 * value, 1.1 * value)


def result(ih: int, choice: str, *, name: str = "", **more: int) -> Result:
    at = (("ih", ih), *more.items())
    words = " ".join([name, *(f"{size}={value}" for size, value in at)]).strip()
    times_us = {"torch/default": around(ih * ih), "a/fast[x=1]": around(ih), "a/fast[x=2]": around(2 * ih)}
    return Result(words, "", at, None, "torch/default", choice, times_us, outcome=Outcome.FASTER, limit_us=ih / 2)


RESULTS = [result(32, "a/fast[x=2]"), result(8, "torch/default"), result(16, "a/fast[x=1]")]


def made(*algorithms: str) -> Chart:
    return chart(RESULTS, SWEEPS, algorithms, title="a title", caption="conditions")


def test_curves_of_a_sweep() -> None:
    drawn = {curve.label: curve for curve in made("a/fast", "absent").curves}
    assert set(drawn) == {"PyTorch's own call", "chosen", "a/fast", "physical limit"}
    assert all(curve.x == (8, 16, 32) for curve in drawn.values()), "in the order of what is swept"
    assert [each.value for each in drawn["PyTorch's own call"].times_us] == [64, 256, 1024]
    assert [each.value for each in drawn["chosen"].times_us] == [64, 16, 64]
    assert [each.value for each in drawn["a/fast"].times_us] == [8, 16, 32], "the fastest of its configurations"
    assert [each.value for each in drawn["physical limit"].times_us] == [4, 8, 16]
    assert drawn["chosen"].notes == ((8, 64, "torch/default"), (16, 16, "a/fast"))
    assert len({curve.colour for curve in drawn.values()}) == 4


def test_what_is_not_known_is_not_drawn() -> None:
    results = [replace(RESULTS[0], limit_us=None), replace(RESULTS[1], times_us=None), RESULTS[2]]
    drawn = {curve.label: curve.x for curve in chart(results, SWEEPS, (), title="", caption="").curves}
    assert drawn == {"PyTorch's own call": (16, 32), "chosen": (16, 32), "physical limit": (8, 16)}
    with pytest.raises(BadInput, match="nothing to draw"):
        chart([Result("ih=8", "", (("ih", 8),), "failed")], SWEEPS, (), title="", caption="")


def test_rows_of_a_suite_without_a_sweep() -> None:
    rows = [replace(each, name=name, at=()) for each, name in zip(RESULTS, "abc", strict=True)]
    drawn = chart(rows, (), ["a/*", "a/fast"], title="", caption="")
    curves = {curve.label: curve for curve in drawn.curves}
    assert drawn.names == ("a", "b", "c")
    assert all(curve.x == (0, 1, 2) for curve in curves.values())
    assert [each.value for each in curves["chosen"].times_us] == [64, 64, 16]
    assert [each.value for each in curves["a/*"].times_us] == [32, 8, 16]
    assert all(not curve.notes for curve in curves.values())


def test_more_lines_than_colours_can_be_told_apart() -> None:
    algorithms = [f"a/fast[x={number}]" for number in range(1, 11)]
    results = [replace(each, times_us=dict.fromkeys(algorithms, around(9.0))) for each in RESULTS]
    drawn = chart(results, SWEEPS, algorithms, title="", caption="").curves
    assert len({(curve.colour % MOST_COLOURS, curve.line, curve.marker) for curve in drawn}) == len(drawn) > 10


def test_other_sweeps_and_rows_are_other_colours() -> None:
    results = [result(ih, "a/fast[x=1]", name=name, mb=mb) for name in "pq" for mb in (1, 2) for ih in (8, 16)]
    curves = chart(results, SWEEPS, (), title="", caption="").curves
    assert {curve.label for curve in curves if "chosen" in curve.label} == {
        "p mb=1: chosen", "p mb=2: chosen", "q mb=1: chosen", "q mb=2: chosen",
    }  # fmt: skip
    assert len({curve.colour for curve in curves}) == 4
    with pytest.raises(BadInput, match=f"at most {MOST_COLOURS} swept problems, got {MOST_COLOURS + 1}"):
        chart([result(8, "a/fast[x=1]", mb=mb) for mb in range(MOST_COLOURS + 1)], SWEEPS, (), title="", caption="")


def axes_of(figure: object) -> object:
    (axes,) = figure.axes  # type: ignore[attr-defined]
    return axes


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list:
    """The figures that would be saved. To write them takes half a second each."""
    from matplotlib.figure import Figure

    saved: list = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **options: saved.append(self))
    return saved


def test_a_chart_has_the_lines_of_its_curves(tmp_path: Path, figures: list) -> None:
    draw_chart(made(), tmp_path / "chart.png")
    axes = axes_of(figures[0])
    assert (axes.get_xscale(), axes.get_yscale(), axes.get_xlabel()) == ("log", "log", "ih")
    assert [line.get_label() for line in axes.get_lines()] == ["chosen", "PyTorch's own call", "physical limit"]
    assert list(axes.get_lines()[0].get_ydata()) == [64, 16, 64]
    assert len(axes.collections) == 3, "a band each"


def test_names_of_many_rows_have_room(tmp_path: Path, figures: list) -> None:
    names = tuple(f"row {place}" for place in range(99))
    curve = Curve("a", tuple(map(float, range(99))), tuple(around(place + 1.0) for place in range(99)))
    draw_chart(Chart("", "", (curve,), names=names), tmp_path / "chart.png")
    axes = axes_of(figures[0])
    assert [label.get_text() for label in axes.get_xticklabels()] == list(names[::3])
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")


@pytest.mark.parametrize(("least", "most"), [(16.5, 31.0), (20.0, 21.0), (31.0, 33.0), (100.0, 4000.0)])
def test_a_logarithmic_axis_has_figures_however_close_times_lie(
    least: float, most: float, tmp_path: Path, figures: list
) -> None:
    times_us = tuple(Interval(value, value, value) for value in (least, most))
    draw_chart(Chart("", "ih", (Curve("a", (8.0, 16.0), times_us),), logarithmic=True), tmp_path / "chart.png")
    axes = axes_of(figures[0])
    figures[0].canvas.draw()
    low, high = axes.get_ylim()
    shown = [label.get_text() for label in axes.get_yticklabels() if low <= label.get_position()[1] <= high]
    assert len([text for text in shown if text]) >= 2


def test_steps_are_drawn_on_even_axes(tmp_path: Path, figures: list) -> None:
    draw_chart(Chart("", "ic", (Curve("a", (1.0, 9.0), (around(1.0), around(2.0))),)), tmp_path / "chart.png")
    axes = axes_of(figures[0])
    assert (axes.get_xscale(), axes.get_yscale(), axes.get_ylim()[0]) == ("linear", "linear", 0)


@pytest.mark.parametrize(
    ("sizes", "shown"),
    [((8, 32), ["8", "32"]), ((1, 3, 5, 7), ["1", "3", "5", "7"]), ((8, 9, 64), None)],
    ids=["two", "even", "too close for an axis"],
)
def test_an_even_axis_is_labelled_with_the_sizes_that_were_measured(
    sizes: tuple[float, ...], shown: list[str] | None, tmp_path: Path, figures: list
) -> None:
    curve = Curve("a", tuple(map(float, sizes)), tuple(map(around, sizes)))
    draw_chart(Chart("", "ih", (curve,)), tmp_path / "chart.png")
    labels = [label.get_text() for label in axes_of(figures[0]).get_xticklabels()]  # type: ignore[attr-defined]
    assert labels == shown if shown else "9" not in labels


def test_one_wide_interval_does_not_stretch_the_axis_and_is_marked(tmp_path: Path, figures: list) -> None:
    times_us = (around(100.0), Interval(200.0, 0.0, 9e6), around(400.0), around(800.0))
    for logarithmic in (False, True):
        curve = Curve("a", (8.0, 16.0, 32.0, 64.0), times_us)
        draw_chart(Chart("", "ih", (curve,), logarithmic=logarithmic), tmp_path / "chart.png")
        axes = axes_of(figures[-1])
        assert 800.0 < axes.get_ylim()[1] < 2_000.0
        markers = [line.get_marker() for line in axes.get_lines() if list(line.get_xdata()) == [16.0]]
        assert markers == (["v", "^"] if logarithmic else ["^"]), "no time is below 0"
        assert "interval cut off by the axis" in [text.get_text() for text in axes.get_legend().get_texts()]


def test_intervals_of_which_most_are_worthless_do_not_stretch_it_either(tmp_path: Path, figures: list) -> None:
    curve = Curve("a", (1.0, 2.0, 3.0), (around(10.0), Interval(11.0, 0.0, 5e4), Interval(12.0, 0.0, 9e9)))
    draw_chart(Chart("", "ih", (curve,)), tmp_path / "chart.png")
    assert axes_of(figures[0]).get_ylim()[1] < 50.0


def test_intervals_that_are_all_wide_are_shown_whole(tmp_path: Path, figures: list) -> None:
    curve = Curve("a", (1.0, 2.0, 3.0), tuple(Interval(us, us / 2, 1.9 * us) for us in (10.0, 11.0, 12.0)))
    draw_chart(Chart("", "ih", (curve,)), tmp_path / "chart.png")
    axes = axes_of(figures[0])
    assert axes.get_ylim()[1] > 1.9 * 12
    assert len(axes.get_lines()) == 1, "none is marked"


def test_rows_of_a_suite_are_not_joined(tmp_path: Path, figures: list) -> None:
    curves = tuple(Curve(name, (0.0, 1.0), (around(1.0), around(9.0)), colour) for colour, name in enumerate("ab"))
    draw_chart(Chart("", "", curves, names=("x", "y")), tmp_path / "chart.png")
    points = [line for line in axes_of(figures[0]).get_lines() if line.get_label() in "ab"]
    assert [line.get_linestyle() for line in points] == ["None", "None"]
    assert points[0].get_xdata()[0] != points[1].get_xdata()[0], "side by side"


def test_axes_have_units_that_are_read_easily(tmp_path: Path, figures: list) -> None:
    for logarithmic in (False, True):
        curve = Curve("a", (8.0, 16.0), (around(300.0), around(4e6)))
        draw_chart(Chart("", "ih", (curve,), logarithmic=logarithmic), tmp_path / "chart.png")
        figures[-1].canvas.draw()
        units = {label.get_text().partition(" ")[2] for label in axes_of(figures[-1]).get_yticklabels()}
        assert ({"ms", "s"} if logarithmic else {"s"}) <= units


SAMPLES = tuple((n, 5.0 + 2.0 * n) for n in (10, 30, 40)) * 4
FIT = Fit("a", SAMPLES, Interval(2.0, 1.9, 2.1), 5.0)


def test_a_fit_is_written(tmp_path: Path) -> None:
    draw_fits([FIT], tmp_path / "fit.png", title="")
    assert (tmp_path / "fit.png").stat().st_size > 5_000


def test_a_fit_has_its_samples_and_its_line(tmp_path: Path, figures: list) -> None:
    draw_fits([FIT, Fit("b", ((1, 9.0),) * 3, around(9.0), None)], tmp_path / "fit.png", title="")
    first, second = figures[0].axes
    dots, line = first.get_lines()
    assert list(zip(dots.get_xdata(), dots.get_ydata(), strict=True)) == list(SAMPLES)
    assert list(line.get_xdata()) == [0, 40]
    assert list(first.get_xticks()) == [0, *sorted({n for n, _ in SAMPLES})], "no sample has half a call"
    assert list(line.get_ydata()) == pytest.approx([5.0, 85.0])
    assert "2 µs a call ± 5.0%, intercept 5 µs" in line.get_label()
    assert "no regression" in second.get_lines()[1].get_label()


def test_samples_far_away_do_not_press_the_line_flat(tmp_path: Path, figures: list) -> None:
    samples = (*((n, 5.0 + 2.0 * n) for n in (10, 30, 40) for _ in range(9)), (10, 24_000.0), (40, 25_000.0))
    draw_fits([Fit("a", samples, Interval(2.0, 1.9, 2.1), 5.0)], tmp_path / "fit.png", title="")
    (axes,) = figures[0].axes
    assert axes.get_lines()[0].get_label() == "29 samples, 2 above the axis"
    assert 85.0 < axes.get_ylim()[1] < 130.0


def test_an_overhead_below_nothing_is_no_figure(tmp_path: Path, figures: list) -> None:
    fit = Fit("a", tuple((n, 2.0 * n) for n in (10, 30, 40)), Interval(2.0, 1.9, 2.1), -0.5)
    draw_fits([fit], tmp_path / "fit.png", title="")
    (axes,) = figures[0].axes
    assert axes.get_lines()[1].get_label().endswith("intercept –")


def test_the_samples_of_a_fit_are_those_of_the_timing() -> None:
    calls = {"short": lambda: sum(range(500)), "long": lambda: sum(range(5000))}
    short, long = fits_of(calls, torch.device("cpu"), budget_us=100_000)
    for fit in (short, long):
        lengths = sorted({n for n, _ in fit.samples})
        assert len(lengths) == 3
        assert all(time_us > 0 for _, time_us in fit.samples)
        assert [sum(n == length for n, _ in fit.samples) for length in lengths] == [len(fit.samples) // 3] * 3
        assert fit.overhead_us is not None
    assert short.call_us.value < long.call_us.value


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    for path, sentence in ((tmp_path / "a.gif", "must end in .png"), (tmp_path / "no" / "a.png", "there is no folder")):
        with pytest.raises(BadInput, match=sentence):
            draw_chart(made(), path)
    (tmp_path / "taken.png").mkdir()
    with pytest.raises(BadInput, match="cannot be written to: Is a directory"):
        draw_chart(made(), tmp_path / "taken.png")


def test_that_a_plot_cannot_be_written_is_known_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "taken.png").mkdir()
    with pytest.raises(BadInput, match="cannot be written to: Is a directory"):
        picture_path(tmp_path / "taken.png")
    with tempfile.TemporaryDirectory() as folder:
        new, old = Path(folder) / "new.png", Path(folder) / "old.png"
        old.touch()
        for path in (new, old):
            picture_path(path)
            with read_only(path), pytest.raises(BadInput, match="cannot be written to: Permission denied"):
                picture_path(path)
    assert not new.exists()


@pytest.mark.parametrize("suffix", [".svg", ".pdf", ".png"])
def test_the_same_data_are_drawn_to_the_same_file(suffix: str, tmp_path: Path) -> None:
    drawn = chart(RESULTS, SWEEPS, (), title="title", caption="caption")
    paths = [tmp_path / f"{number}{suffix}" for number in range(2)]
    for path in paths:
        draw_chart(drawn, path)
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    assert len(first) > 5_000
    assert b"<dc:date>" not in first
    assert b"/CreationDate" not in first
