"""The progress bar of commands."""

from __future__ import annotations

import pytest
from rich.progress import Progress

from convwright.report.words import progress
from convwright.report.words.output import console


def test_it_is_one_line_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = console(width=80)
    monkeypatch.setattr(progress, "console", lambda **_: screen)
    bars: list[Progress] = []
    start = Progress.start
    monkeypatch.setattr(Progress, "start", lambda self: (bars.append(self), start(self)))
    with progress.progress_bar() as tell, screen.capture():
        tell(1, 15, "stages.0.conv1, stages.0.conv2: mb2ic16oc16ih8kh3ph1 ep:bias+relu")
        bars[0].tasks[0].start_time -= 2.0  # type: ignore[operator]
        lines = screen.render_lines(bars[0].get_renderable())
    texts = ["".join(segment.text for segment in line) for line in lines]
    assert len(texts) == 1
    assert " 1/15 0:00:02 about 28 s left stages.0.conv1" in texts[0]
    assert texts[0].endswith("…")
