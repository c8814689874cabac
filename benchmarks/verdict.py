"""Reads a grader's verdict, strictly: what isn't a valid score is a failure of the grader, never a 0."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping

from mixharness.errors import GradingError

TAIL = 1 << 16
"""The verdict stands in this many last characters: bounds what reading a hostile output can cost."""
_OPENS = re.compile(r'\{\s*["}]')
SLACK = 1e-9
"""A sum of weights may miss 1 by rounding; such a value is clipped."""


def read_parts(output: str) -> dict[str, float]:
    """The parts in the last JSON object that a grader printed, on one line or many.

    Raises:
        GradingError: no object, an empty one, or a value that is no finite number in 0..1 (booleans are 0 and 1).
    """
    verdict = last_object(output[-TAIL:])
    if not verdict:
        raise GradingError(f"the grader printed {'no JSON object' if verdict is None else 'an empty JSON object'}")
    return {name: _value(name, value) for name, value in verdict.items()}


def last_object(text: str) -> Mapping[str, object] | None:
    """The last JSON object of a text, not inside another one nor inside one that is cut short; None if there is none.

    Raises:
        GradingError: something in it nests too deeply to be read.
    """
    decoder, found, at = json.JSONDecoder(), None, 0
    while match := _OPENS.search(text, at):
        try:
            found, at = decoder.raw_decode(text, match.start())
        except json.JSONDecodeError as error:
            at = max(error.pos, match.start() + 1)
        except RecursionError as error:
            raise GradingError("the grader printed JSON that nests too deeply") from error
    return found


def _value(name: str, value: object) -> float:
    if not isinstance(value, bool | int | float):
        raise GradingError(f"part {name!r} is {value!r}, not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not -SLACK <= number <= 1 + SLACK:  # false for NaN too
        raise GradingError(f"part {name!r} is {number!r}, not in 0..1")
    return min(max(number, 0.0), 1.0)
