"""``convwright predict`` of a whole network: what its layers should take on a device."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from convwright.cli.advise import LOADING, MAKING
from convwright.cli.interrupt import stoppable
from convwright.cli.library_models import names_library_model

if TYPE_CHECKING:
    from convwright.store.store import Store

# A file or a module, and a function in it. A problem's text has words such as dt:fp16 after a blank only.
_TARGET = re.compile(r"[^\s:]\S*:[A-Za-z_][\w.]*")


def names_model(text: str) -> bool:
    """Whether a word of the command line is module:function or a path, and no problem.

    >>> names_model("models.py:small"), names_model("mb32ic64ih56oc64kh3 dt:fp16"), names_model("ic64ih56oc64kh3")
    (True, False, False)
    """
    if _TARGET.fullmatch(text) or names_library_model(text) or text.endswith(".py"):
        return True
    return " " not in text and ("/" in text or Path(text).is_dir())


def run_model(
    target: str,
    *,
    shape: str | None,
    device: str | None,
    batch: int | None,
    dtype: str | None,
    precision: str | None,
    store: Store | None,
    layer: str | None,
    top: int | None,
    as_json: bool,
    as_csv: bool,
    as_markdown: bool,
) -> None:
    """Print what each layer of a model and one run of it should take. Nothing runs."""
    from convwright.cli.model_target import model_and_example
    from convwright.cli.steps import print_engine
    from convwright.cli.targets import running
    from convwright.report.words.progress import progress_bar

    quiet = as_json or as_csv or as_markdown
    with stoppable("before the network was planned"), running(target, as_json=quiet), progress_bar(LOADING) as bar:
        from convwright.engine.optimize import optimize
        from convwright.engine.precision.lowering import Precision
        from convwright.engine.predict import with_batch

        bar(0, 0, MAKING)
        model, example = model_and_example(target, dtype, shape=shape)
        planned = optimize(
            model, with_batch(example, batch), plan_only=True, device=device,
            precision=None if precision is None else Precision(precision), progress=bar, store=store,
        )  # fmt: skip
    shown = planned if as_json else planned.prediction
    print_engine(shown, layer=layer, top=top, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown)
