"""``--store``: the store that a command works on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convwright.errors import BadInput, StoreError

if TYPE_CHECKING:
    from convwright.store.store import Store

StorePath = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH",
        help="The store's file, or postgresql://USER@HOST/DATABASE. "
        "By default CONVWRIGHT_STORE, or findings.sqlite in the cache.",
    ),
]


def asked_for(given: str | None, *, new: bool = False, reads: bool = False) -> AbstractContextManager[Store | None]:
    """The store at ``given``, opened by ``opened``. Without one it is None, and the process's own store is used."""
    return nullcontext(None) if given is None else opened(given, new=new, reads=reads)


@contextmanager
def opened(given: str | None, *, new: bool = False, reads: bool = False) -> Iterator[Store]:
    """The store at the path or URL that is ``given``, or the one of the settings; a file must be there unless it may be
    ``new``; who only ``reads`` need not be able to write to it. Where it fails meanwhile, that is an error at the end.
    """
    from convwright.settings import settings, store_place
    from convwright.store.database import NOT_KEPT
    from convwright.store.store import Store

    place = settings().store_path if given is None else store_place("--store", given)
    if place is None:
        name = "CONVWRIGHT_STORE" if given is None else "--store"
        raise BadInput(f"findings are kept in memory only ({name} is none): name a store with --store PATH")
    if isinstance(place, Path):
        if not (new or os.path.exists(place)):  # a question makes no file
            raise BadInput(f"there is no store at {place}")
        if given is not None:
            _check(place)
    try:
        store = Store.open(place)
    except StoreError as error:
        if given is None:
            raise
        raise BadInput(str(error)) from error
    with store:
        if not store.reads_file:
            raise StoreError(store.note)
        if not (reads or store.in_file):
            raise StoreError(f"nothing was done, since {(store.note or '').partition(NOT_KEPT)[2]}")
        known = store.note
        if known:
            print(f"convwright: {known}", file=sys.stderr)
        yield store
        # Damage further on in a file shows when that is read: what was done then, was done to a new one.
        if store.note not in (None, known):
            raise StoreError(store.note)


def _check(path: Path) -> None:
    from convwright.store.sqlite_file import IRREGULAR, folder_sentence, is_irregular, is_of_another_kind

    if not path.exists():
        return
    if path.is_dir():
        raise BadInput(folder_sentence(path))
    if is_irregular(path):
        raise BadInput(f"{path} is no store of findings: it is {IRREGULAR}")
    try:
        is_none = is_of_another_kind(path)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from error
    if is_none:
        raise BadInput(f"{path} is no store of findings, but a file of another kind")
