"""What a command gives back, and how it reaches the terminal: a JSON document, or a view for people."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import TextIO

import orjson
from rich.console import Console, RenderableType
from rich.table import Table


@dataclass(frozen=True)
class Report:
    """A finished command.

    Attributes:
        document: what `--json` prints.
        view: what people see instead.
    """

    document: Mapping[str, object]
    view: RenderableType = ""
    exit_code: int = 0


def table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Table:
    """A plain table; None shows as nothing, a float with three digits."""
    made = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(_cell(value) for value in row))
    return made


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def show(view: RenderableType) -> None:
    """Prints a view for people on stdout."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 160)
    console.print(view)


def write_json(document: Mapping[str, object], out: TextIO) -> None:
    """Writes one JSON document and a line end."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    out.write(orjson.dumps(document, option=options).decode() + "\n")
    out.flush()


@contextmanager
def reserved_stdout(reserve: bool) -> Iterator[TextIO]:
    """Stdout for the one document; while it is reserved, all other prints, child processes' too, go to stderr."""
    if not reserve:
        yield sys.stdout
        return
    sys.stdout.flush()
    real = os.dup(1)
    try:
        os.dup2(2, 1)
        with os.fdopen(os.dup(real), "w", encoding="utf-8") as out, redirect_stdout(sys.stderr):
            yield out
    finally:
        os.dup2(real, 1)
        os.close(real)
