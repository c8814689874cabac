"""Runs a Starter task's check.py: `python3 -I /grader/main.py WORKSPACE` prints {part: 0..1}.

Every public function of check.py is a part: it takes a `Workspace` and returns a bool or a number in 0..1. One that
raises scores 0 (the workspace holds something other than what was asked for); why goes to stderr.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent


def parts_of(module: ModuleType) -> dict[str, Callable[[object], float]]:
    """Its public functions, in the order they are written."""
    functions = vars(module).items()
    own = {n: f for n, f in functions if inspect.isfunction(f) and f.__module__ == module.__name__}
    return {name: function for name, function in own.items() if not name.startswith("_")}


def score(part: Callable[[object], float], workspace: object) -> float:
    """One part's value."""
    try:
        return float(part(workspace))
    except Exception as error:  # whatever an agent wrote may raise anything; it is not what was asked for
        print(f"{part.__name__}: {type(error).__name__}: {error}", file=sys.stderr)
        return 0.0


def main(root: str) -> None:
    """Prints every part's value as one JSON object."""
    sys.path.insert(0, str(HERE))
    checklib, check = importlib.import_module("checklib"), importlib.import_module("check")
    payload = json.loads(Path(os.environ["MIXHARNESS_PAYLOAD"]).read_text())
    spec = json.loads((HERE / "spec.json").read_text())
    workspace = checklib.Workspace(Path(root), HERE / "given", spec, frozenset(payload["metadata"]["left_out"]))
    print(json.dumps({name: score(part, workspace) for name, part in parts_of(check).items()}))


if __name__ == "__main__":
    main(sys.argv[1])
