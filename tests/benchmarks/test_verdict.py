"""A verdict is read strictly: whatever isn't a valid score is an error, never a number."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixharness.benchmarks.verdict import read_parts
from mixharness.errors import GradingError


@pytest.mark.parametrize(
    ("output", "parts"),
    [
        ('{"a": 1, "b": 0.5}', {"a": 1.0, "b": 0.5}),
        ('{"a": true, "b": false}', {"a": 1.0, "b": 0.0}),
        ('noise\n{"a": 0}\nmore\n{\n  "a": 1,\n  "b": 0.25\n}\nbye', {"a": 1.0, "b": 0.25}),
        ('score: {"a": 1}', {"a": 1.0}),
        ('set {x} of {y: \n{"a": 1}', {"a": 1.0}),
        ('[{"a": 1}, {"a": 0}]', {"a": 0.0}),
        ('{"a": 1} {"a": 0.5} {', {"a": 0.5}),
        ('{"a": 1.0000000000000002}', {"a": 1.0}),
        ('{"a": -1e-12}', {"a": 0.0}),
        ('{"odd } {name\\u0000": 1}', {"odd } {name\x00": 1.0}),
    ],
)
def test_the_last_object_is_the_verdict(output: str, parts: dict[str, float]) -> None:
    assert read_parts(output) == parts


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        ("", "no JSON object"),
        ("0.7", "no JSON object"),
        ("[1, 0.5]", "no JSON object"),
        ('{"a": 1', "no JSON object"),
        ('{"parts": {"a": 1}, "b', "no JSON object"),
        ('{"cut": \n{"a": 1}', "no JSON object"),
        ("{'a': 1}", "no JSON object"),
        ("{}", "empty"),
        ('{"a": 1}\n{}', "empty"),
        ('{"a": "1"}', "part 'a' is '1', not a number"),
        ('{"a": null}', "not a number"),
        ('{"a": {"b": 1}}', "not a number"),
        ('{"a": NaN}', "not in 0..1"),
        ('{"a": Infinity}', "not in 0..1"),
        ('{"a": 1.5}', "not in 0..1"),
        ('{"a": -0.5}', "not in 0..1"),
        ('{"a": 1' + "0" * 400 + "}", "not in 0..1"),
    ],
)
def test_anything_else_is_an_error(output: str, complaint: str) -> None:
    with pytest.raises(GradingError, match=complaint.replace("(", r"\(")):
        read_parts(output)


@pytest.mark.parametrize("hostile", ["{" * 1_000_000, '{"' * 500_000, '{"a":' * 200_000, '{"a":[' * 200_000])
@pytest.mark.timeout(10)
def test_a_hostile_output_is_refused_in_no_time(hostile: str) -> None:
    with pytest.raises(GradingError, match=r"no JSON object|nests too deeply"):
        read_parts(hostile)


VALUES = st.dictionaries(st.text(), st.floats(0, 1) | st.booleans() | st.sampled_from([0, 1]), min_size=1)
NO_BRACE = st.text().filter(lambda text: "{" not in text)


@settings(max_examples=50, deadline=None)
@given(parts=VALUES, before=NO_BRACE, after=NO_BRACE, indent=st.sampled_from([None, 2]))
def test_every_printed_verdict_is_read_back(
    parts: dict[str, float], before: str, after: str, indent: int | None
) -> None:
    assert read_parts(before + json.dumps(parts, indent=indent) + after) == {k: float(v) for k, v in parts.items()}


@settings(deadline=None)
@given(st.text(alphabet='{}[]":,0123456789.eNa \n'))
def test_no_text_gives_a_value_outside_the_range(output: str) -> None:
    try:
        parts = read_parts(output)
    except GradingError:
        return
    assert parts and all(0 <= value <= 1 for value in parts.values())
