"""Reads a grader's verdict, strictly: what isn't a valid score is a failure of the grader, never a 0."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from mixharness.errors import GradingError

SLACK = 1e-9
"""A sum of weights may miss 1 by rounding; such a value is clipped."""


def read_parts(output: str) -> dict[str, float]:
    """The parts in the last JSON object that a grader printed, on one line or many.

    Raises:
        GradingError: no object, an empty one, or a value that is no finite number in 0..1 (booleans are 0 and 1).
    """
    verdict = last_object(output)
    if not verdict:
        raise GradingError(f"the grader printed {'no JSON object' if verdict is None else 'an empty JSON object'}")
    return {name: _value(name, value) for name, value in verdict.items()}


def last_object(text: str) -> Mapping[str, object] | None:
    """The last JSON object of a text, not inside another one; None if there is none."""
    decoder, found, at = json.JSONDecoder(), None, text.find("{")
    while at >= 0:
        try:
            found, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        at = text.find("{", end)
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
