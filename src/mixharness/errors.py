"""Every exception mixharness raises on purpose.

MixharnessError
├── ConfigError          the user's input is wrong: says what, where, valid choices, the fix
│   ├── UnknownName      a name that isn't registered; carries the nearest ones
│   ├── TaskFormatError  a task file is missing or malformed: which file, which field
│   └── MissingDependency  an optional part isn't installed; carries the command that fixes it
├── InfraError           our side failed: a rollout that meets one is invalid, never scored
│   ├── SandboxError     a sandbox could not be made, used or removed
│   ├── EngineError      the engine gave no usable answer
│   └── GradingError     the grader could not run or printed no valid score
└── HarnessError         the harness program itself failed: crashed, printed rubbish, never called
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class MixharnessError(Exception):
    """Root of all errors raised on purpose."""


class ConfigError(MixharnessError):
    """The user's input is wrong."""


class UnknownName(ConfigError):
    """A name that is not registered.

    Args:
        kind: what was looked up, for example "harness".
        name: the name seen.
        known: every valid name; the nearest are suggested.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name = kind, name
        valid = sorted(known)
        near = difflib.get_close_matches(name, valid, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(valid[:20]) or 'none'}"
        super().__init__(f"unknown {kind} {name!r}; {hint}")


class TaskFormatError(ConfigError):
    """A task file is missing or malformed.

    Args:
        path: the file.
        field: the field inside it, or None for the whole file.
        problem: what is wrong with it, with the value seen.
    """

    def __init__(self, path: object, field: str | None, problem: str) -> None:
        self.path, self.field = str(path), field
        where = f"{path}: {field}" if field else str(path)
        super().__init__(f"{where}: {problem}")


class MissingDependency(ConfigError):
    """Something optional isn't installed.

    Args:
        what: the missing thing.
        fix: the command that installs it.
    """

    def __init__(self, what: str, fix: str) -> None:
        self.fix = fix
        super().__init__(f"{what} is missing. Fix: {fix}")


class InfraError(MixharnessError):
    """Our side failed; a rollout that meets one is invalid and is never scored."""


class SandboxError(InfraError):
    """A sandbox could not be made, used or removed."""


class EngineError(InfraError):
    """The engine gave no usable answer."""


class GradingError(InfraError):
    """The grader could not run or printed no valid score."""


class HarnessError(MixharnessError):
    """The harness program itself failed."""
