"""glossary-links: the first occurrence of every term becomes a link."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mixharness.benchmarks.starter.grader.checklib import Workspace


def _articles(w: Workspace) -> list[str]:
    return w.given_files("articles/")


def _terms(w: Workspace) -> dict[str, str]:
    """Term → meaning."""
    return {row["term"]: row["meaning"] for row in w.given_rows("glossary.csv")}


def _frozen(line: str) -> bool:
    return line.startswith(("#", "    "))


def _linked(w: Workspace, path: str) -> tuple[list[str], list[str]]:
    """The article's lines with links, and its linked terms in order of appearance."""
    lines, places = w.given_lines(path), []
    for term in _terms(w):
        pattern = re.compile(rf"\b{re.escape(term)}\b", re.I)
        open_lines = ((i, line) for i, line in enumerate(lines) if not _frozen(line))
        hits = ((i, match.span()) for i, line in open_lines for match in pattern.finditer(line))
        places += [(i, span, term) for i, span in [next(hits, (-1, (0, 0)))] if i >= 0]
    for i, (start, end), term in sorted(places, reverse=True):
        line, anchor = lines[i], term.lower().replace(" ", "-")
        lines[i] = f"{line[:start]}[{line[start:end]}](../glossary.md#{anchor}){line[end:]}"
    return lines, [term for _, _, term in sorted(places)]


def _name(path: str) -> str:
    return path.removeprefix("articles/")


def _glossary(w: Workspace) -> list[str]:
    lines = ["# Glossary"]
    for term, meaning in sorted(_terms(w).items()):
        used = [_name(path) for path in _articles(w) if term in _linked(w, path)[1]]
        sentence = f"{meaning[0].upper()}{meaning[1:]}."
        lines += ["", f"## {term}", "", sentence, "", f"Used in: {', '.join(used) or 'nothing yet'}"]
    return lines


def articles_exact(w: Workspace) -> float:
    """Share of the articles that are exactly right."""
    right = [w.lines(path) == _linked(w, path)[0] for path in _articles(w)]
    return sum(right) / len(right)


def link_targets(w: Workspace) -> float:
    """Share of the links that are there, less the share of wrong ones."""
    seen = {(p, link) for p in _articles(w) for link in re.findall(r"\[.+?\]\(.+?\)", w.text(p))}
    wanted = {(p, k) for p in _articles(w) for k in re.findall(r"\[.+?\]\(.+?\)", "\n".join(_linked(w, p)[0]))}
    return max(0.0, len(seen & wanted) - len(seen - wanted)) / len(wanted)


def only_links_added(w: Workspace) -> bool:
    """There are links, and without them every article is as it was."""
    texts = {path: w.text(path) for path in _articles(w)}
    bare = {path: re.sub(r"\[(.+?)\]\(\.\./glossary\.md#.+?\)", r"\1", text) for path, text in texts.items()}
    return bare != texts and all(bare[path].rstrip("\n") == w.given_text(path).rstrip("\n") for path in texts)


def glossary_terms(w: Workspace) -> bool:
    """Headings in order and meanings as sentences."""
    lines = [line for line in w.lines("glossary.md") if line and not line.startswith("Used in:")]
    return lines == [line for line in _glossary(w) if line and not line.startswith("Used in:")]


def glossary_exact(w: Workspace) -> bool:
    """The whole page, with what uses each term."""
    return w.lines("glossary.md") == _glossary(w)


def links_listed(w: Workspace) -> bool:
    """links.json."""
    return bool(w.json("links.json") == {_name(path): _linked(w, path)[1] for path in _articles(w)})


def nothing_else(w: Workspace) -> bool:
    """Exactly the files asked for."""
    linked = {path for path in _articles(w) if _linked(w, path)[1]}
    return w.changed() == {"glossary.md", "links.json"} | linked
