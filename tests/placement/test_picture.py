"""Pictures are written, with a bar for each run."""

from __future__ import annotations

from pathlib import Path

import pytest

from convwright.errors import BadInput
from convwright.placement import draw, place
from placement.instances import random_instance


@pytest.mark.parametrize("seed", [1, 4])
def test_a_picture_names_what_runs(seed: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    placement = place(*random_instance(seed, streams=True, once=True, tight=False), "energy", explain=False)
    draw(placement, tmp_path / "plan.svg")
    text = (tmp_path / "plan.svg").read_text()
    assert text.count("<path") > len(placement.assigned)
    for name, _ in placement.utilisation:
        assert f"<!-- {name} -->" in text


def test_a_picture_needs_a_known_ending_and_a_folder(tmp_path: Path) -> None:
    placement = place(*random_instance(1, streams=False, once=True, tight=False), explain=False)
    with pytest.raises(BadInput, match=r"^the name of a picture must end in \.png, \.svg, \.pdf, got '.*plan\.txt'$"):
        draw(placement, tmp_path / "plan.txt")
    with pytest.raises(BadInput, match=r"^there is no folder '.*none' for the picture 'plan\.png': create it first$"):
        draw(placement, tmp_path / "none" / "plan.png")
