"""Transcripts: what graders get to read."""

from __future__ import annotations

from tests.trees.sessions import Compaction, Simulation, asks, make_call, result, says, system, user

from mixharness.transcript import main_line, transcript_rows
from mixharness.trees.tree import CallTree

HISTORY = [system("you are the main agent here"), user("please do the whole task at hand")]


def roles(tree: CallTree) -> list[str]:
    return [row["message"]["role"] for row in transcript_rows(tree)]


def test_a_plain_session_row_by_row() -> None:
    first, output = asks("a first thought", "a first command"), result("the first output there was")
    tree = CallTree([make_call(0, HISTORY, first), make_call(1, [*HISTORY, first, output], says("all done"))])
    asked, answered, gave, ended = transcript_rows(tree, {"bash": "exec"})
    assert asked == {
        "type": "message",
        "message": {"role": "user", "content": [{"type": "text", "text": "please do the whole task at hand"}]},
    }
    arguments = {"command": "a first command"}
    assert answered["message"]["content"] == [
        {"type": "text", "text": "a first thought"},
        {"type": "toolCall", "id": "x", "name": "exec", "arguments": arguments, "params": arguments},
    ]
    prompt, sampled = len(tree.calls[0].prompt_ids), tree.calls[0].sampled
    assert answered["message"]["usage"] == {"input": prompt, "output": sampled, "totalTokens": prompt + sampled}
    assert gave["message"] == {
        "role": "toolResult",
        "content": [{"type": "text", "text": "the first output there was"}],
        "toolCallId": "x",
        "toolName": "exec",
    }
    assert ended["message"]["content"] == [{"type": "text", "text": "all done"}]


def test_retries_subagents_titles_and_summaries_are_not_in_it() -> None:
    sim = Simulation()
    sim.play(
        [
            ("title", None),
            ("cut_answer", None),
            ("step", None),
            ("spawn", [("step", None)]),
            ("compact", Compaction(True, False, True)),
            ("step", None),
        ]
    )
    tree = sim.tree()
    assert len(main_line(tree)) == 4
    assert roles(tree) == [
        "user",
        *["assistant", "toolResult"] * 2,
        "user",  # the summary that opens the new history
        *["assistant", "toolResult"],
        "assistant",
    ]


def test_a_repeated_output_is_there_as_often_as_it_came() -> None:
    same = asks("the same thought again", "the same command again")
    output = result("the very same output")
    history = list(HISTORY)
    calls = []
    for n in range(3):
        calls.append(make_call(n, history, same))
        history = [*history, same, output]
    assert roles(CallTree(calls)) == ["user", "assistant", *["toolResult", "assistant"] * 2]


def test_a_note_that_moves_to_the_end_is_told_once() -> None:
    sim = Simulation(rewriting=True)
    sim.play([("step", None), ("step", None)])
    assert roles(sim.tree()) == ["user", "user", *["assistant", "toolResult"] * 2, "assistant"]


def test_a_session_without_answers_has_no_rows() -> None:
    assert transcript_rows(CallTree([make_call(0, HISTORY, None, status="failed")])) == []
    assert transcript_rows(CallTree()) == []
