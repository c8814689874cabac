"""The 24 templated tasks: how each words its job and its note, and the directories it uses.

Held-out tasks have their own wordings and directory mixes, built from words that the train tasks use too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Wording:
    """One templated task: a prompt is one of `jobs`, then one of `records`; `folders` are drawn three at a time."""

    skill: str
    split: Literal["train", "held_out"]
    folders: tuple[str, ...]
    jobs: tuple[str, ...]
    records: tuple[str, ...]


RECORDS_1 = (
    ", then add the line '{note}' to {journal}.",
    " and add '{note}' as a new line to {journal}.",
    ". Then write '{note}' at the end of {journal}.",
)
RECORDS_2 = (
    ". After that, add the line '{note}' at the end of {journal}.",
    ", then put '{note}' on a new line at the end of {journal}.",
    " and then add '{note}' to {journal} as the last line.",
)
RECORDS_3 = (
    ", then add the new line '{note}' to {journal}.",
    ". After that, write the line '{note}' at the end of {journal}.",
)
RECORDS_4 = (
    " and then put the line '{note}' at the end of {journal}.",
    ". Then add '{note}' as the last line to {journal}.",
)


def _train(skill: str, folders: str, records: tuple[str, ...], *jobs: str) -> Wording:
    return Wording(skill, "train", tuple(folders.split()), jobs, records)


def _held_out(skill: str, folders: str, records: tuple[str, ...], *jobs: str) -> Wording:
    return Wording(skill, "held_out", tuple(folders.split()), jobs, records)


TASKS: Mapping[str, Wording] = {
    "rename-report": _train(
        "rename",
        "inbox reports office log archive",
        RECORDS_1,
        "Rename {src} to {dst}",
        "Move the file {src} to {dst}",
        "Change the name of {src} to {dst}",
    ),
    "rename-invoice": _train(
        "rename",
        "bills data drafts notes done",
        RECORDS_2,
        "Give {src} the new name {dst}",
        "Move {src} to {dst}",
        "Rename the file {src} to {dst}",
    ),
    "rename-ticket": _held_out(
        "rename",
        "inbox done notes work office",
        RECORDS_3,
        "Give the file {src} the name {dst}",
        "Change the file name {src} to {dst}",
    ),
    "rename-memo": _held_out(
        "rename",
        "drafts archive log team bills",
        RECORDS_4,
        "Move {src} to the new name {dst}",
        "Give the file {src} the new name {dst}",
    ),
    "collect-errors": _train(
        "collect",
        "logs out system data notes",
        RECORDS_1,
        "Copy the lines with {arg} from {src} to {dst}",
        "Find {arg} in {src} and save the lines in {dst}",
        "Put the lines that hold {arg} from {src} into {dst}",
    ),
    "collect-logins": _train(
        "collect",
        "server found log work archive",
        RECORDS_2,
        "Save all lines with {arg} from {src} in {dst}",
        "Find all lines that hold {arg} in {src} and put them into {dst}",
        "Write the lines with {arg} from {src} to {dst}",
    ),
    "collect-alerts": _held_out(
        "collect",
        "system found logs notes work",
        RECORDS_3,
        "Find the lines with {arg} in {src} and write them to {dst}",
        "Copy all lines that hold {arg} from {src} into {dst}",
    ),
    "collect-mounts": _held_out(
        "collect",
        "server data out log archive",
        RECORDS_4,
        "Put all lines with {arg} from {src} in {dst}",
        "Save the lines that hold {arg} from {src} in {dst}",
    ),
    "count-orders": _train(
        "count",
        "data out shop log results",
        RECORDS_1,
        "Count the lines of {src} and write the number to {dst}",
        "Find how many lines {src} has and save the number in {dst}",
        "Write the number of lines in {src} to {dst}",
    ),
    "count-visits": _train(
        "count",
        "tables stats web notes reports",
        RECORDS_2,
        "Count all lines in {src} and save the number in {dst}",
        "Put the number of lines of {src} into {dst}",
        "Find the number of lines in {src} and put it into {dst}",
    ),
    "count-votes": _held_out(
        "count",
        "data stats team log results",
        RECORDS_3,
        "Save the number of lines in {src} to {dst}",
        "Count the lines in {src} and put the number into {dst}",
    ),
    "count-samples": _held_out(
        "count",
        "tables out reports notes work",
        RECORDS_4,
        "Find how many lines {src} has and write the number to {dst}",
        "Write the number of all lines of {src} into {dst}",
    ),
    "excerpt-article": _train(
        "excerpt",
        "drafts out posts log web",
        RECORDS_1,
        "Copy the first {arg} lines of {src} to {dst}",
        "Take the first {arg} lines from {src} and save them in {dst}",
        "Put the first {arg} lines of {src} into {dst}",
    ),
    "excerpt-story": _train(
        "excerpt",
        "texts pages notes archive done",
        RECORDS_2,
        "Save the first {arg} lines of {src} in {dst}",
        "Write the first {arg} lines from {src} to {dst}",
        "Take the first {arg} lines of {src} and put them into {dst}",
    ),
    "excerpt-letter": _held_out(
        "excerpt",
        "drafts pages inbox log done",
        RECORDS_3,
        "Write the first {arg} lines of {src} into {dst}",
        "Take the first {arg} lines from {src} and copy them to {dst}",
    ),
    "excerpt-speech": _held_out(
        "excerpt",
        "texts posts notes out web",
        RECORDS_4,
        "Copy the first {arg} lines from {src} into {dst}",
        "Save the first {arg} lines from {src} to {dst}",
    ),
    "sort-agenda": _train(
        "sort",
        "plans out team log lists",
        RECORDS_1,
        "Sort {src} into {dst}",
        "Sort the lines of {src} and save them in {dst}",
        "Put the lines of {src} in order and write them to {dst}",
    ),
    "sort-guests": _train(
        "sort",
        "events data notes office work",
        RECORDS_2,
        "Sort all lines in {src} and write them to {dst}",
        "Write the lines of {src} in order to {dst}",
        "Sort the file {src} into {dst}",
    ),
    "sort-errands": _held_out(
        "sort",
        "plans work lists notes done",
        RECORDS_3,
        "Sort the lines of {src} into {dst}",
        "Put all lines of {src} in order and save them in {dst}",
    ),
    "sort-stops": _held_out(
        "sort",
        "events out data log team",
        RECORDS_4,
        "Write all lines of {src} in order to {dst}",
        "Sort the file {src} and write the lines to {dst}",
    ),
    "version-app": _train(
        "version",
        "app build log web notes",
        RECORDS_1,
        "Write the version {arg} to {dst}",
        "Put version {arg} into {dst}",
        "Save the new version {arg} in {dst}",
    ),
    "version-library": _train(
        "version",
        "library tools work archive done",
        RECORDS_2,
        "Put the new version {arg} in the file {dst}",
        "Write version {arg} into {dst}",
        "Save version {arg} to {dst}",
    ),
    "version-plugin": _held_out(
        "version",
        "app tools notes log work",
        RECORDS_3,
        "Put the version {arg} into the file {dst}",
        "Save the version {arg} in {dst}",
    ),
    "version-service": _held_out(
        "version",
        "library build server archive done",
        RECORDS_4,
        "Write the new version {arg} to {dst}",
        "Put version {arg} in {dst}",
    ),
}
