"""What a call has asked, was answered and did once: everything that another run of its handler must find again.

A handler is run again after a question (basic/patterns/mrtr), and a task after its process. What it did before stands in one
list of entries. Sealed it is the `requestState` of a request, stored it is a part of the row of a task.

An answer counts for the question that was asked: an entry is found by the digest of its question, and by its name where the
handler gave it one. An answer that is recorded wins over one that is sent again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import trio

from ..peer.questions import Question

__all__ = ["MISSING", "Entry", "Journal"]

MISSING: Final[Any] = object()


class Entry:
    """One question.

    Attributes:
        key: What the client knows it by. No other question of the call ever had it.
        base: What its keys are made of.
        name: How the handler names it, or None.
        digest: Of the question.
        answer: An answer that fits, or `MISSING`.
        came: An answer that came while nobody could check it, or `MISSING`.
        question: The question, once this run has asked it.
        answered: Set when a task has its answer.
        waiting: Whether this run waits for its answer, or has ended with it.
    """

    __slots__ = ("answer", "answered", "base", "came", "digest", "key", "name", "question", "waiting")

    def __init__(self, key: str, base: str, name: str | None, digest: str, answer: Any = MISSING) -> None:
        self.key: str = key
        self.base: str = base
        self.name: str | None = name
        self.digest: str = digest
        self.answer: Any = answer
        self.came: Any = MISSING
        self.question: Question | None = None
        self.answered: trio.Event = trio.Event()
        self.waiting: bool = False

    def to_json(self) -> dict[str, Any]:
        """The entry as JSON."""
        out = {"key": self.key, "base": self.base, "digest": self.digest}
        if self.name is not None:
            out["name"] = self.name
        answer = self.came if self.answer is MISSING else self.answer
        return out if answer is MISSING else {**out, "answer": answer}


class Journal:
    """The entries of one call, as one run of its handler finds and makes them.

    Args:
        payload: What `to_json` gave to an earlier run.
        responses: Answers that came with the request, by key. Where nothing was asked before, those to named questions count: the
            client knows their keys from elsewhere.

    Attributes:
        entries: Questions, in the order in which they were first asked.
        state: Of the low-level round that this run belongs to: what the handler wanted to find again.
        open_round: The requests of a low-level round without an answer, by key; None when there is no such round.
        responses: The answers of the low-level round that this run belongs to, by key.
    """

    __slots__ = ("_counts", "_kept", "_unasked", "_used", "entries", "open_round", "responses", "state")

    def __init__(self, payload: Mapping[str, Any], responses: Mapping[str, Any]) -> None:
        self.entries: list[Entry] = []
        self.state: Any = payload.get("state")
        self.open_round: dict[str, Any] | None = payload.get("round")
        self.responses: dict[str, Any] = {**payload.get("responses", {}), **responses}
        self._unasked: Mapping[str, Any] = responses if not payload else {}
        self._counts: dict[str, int] = {}
        self._kept: dict[str, Any] = dict(payload.get("once", {}))
        self._used: set[str] = set(payload.get("keys", ()))
        for item in payload.get("asked", ()):
            entry = Entry(item["key"], item["base"], item.get("name"), item["digest"])
            # What was recorded, and only then what was sent again.
            entry.came = item["answer"] if "answer" in item else responses.get(entry.key, MISSING)
            self.entries.append(entry)
            self._used.add(entry.key)

    # -- questions

    def ask(self, name: str | None, kind: str, question: Question) -> Entry:
        """The entry of a question, with its answer where there is one.

        Args:
            name: How the handler names it; None finds it by what it asks.
            kind: What its key is made of when it has no name.
            question: What is asked.
        """
        if name is None:
            # The same for the same question in each run, unless other questions come before it.
            self._counts[kind] = self._counts.get(kind, 0) + 1
        entry = self._find(name, question)
        if entry is None:
            base = name if name is not None else f"{kind}-{self._counts[kind]}"
            entry = Entry(self.new_key(base), base, name, question.digest)
            self.entries.append(entry)
            if name is not None and entry.key in self._unasked:
                entry.came = self._unasked[entry.key]
        entry.question = question
        if entry.answer is MISSING and entry.came is not MISSING:
            came, entry.came = entry.came, MISSING
            if question.accepts(came):
                entry.answer = came
        return entry

    def _find(self, name: str | None, question: Question) -> Entry | None:
        for entry in self.entries:
            if entry.digest == question.digest and entry.name == name and (name is not None or entry.question is None):
                return entry
        return None

    def new_key(self, base: str) -> str:
        """A key that was never used in this call (tasks, section Task Update Requests)."""
        key, count = base, 1
        while key in self._used:
            count += 1
            key = f"{base}~{count}"
        self._used.add(key)
        return key

    def waiting(self) -> dict[str, Any]:
        """The questions that wait for an answer, as they are sent, by key."""
        return {entry.key: entry.question.to_wire() for entry in self.entries if entry.waiting and entry.question}

    def answer(self, key: str, response: Any) -> bool:
        """Take an answer while the handler runs, or before it has come to the question.

        Returns:
            Whether this run waits for it.
        """
        entry = next((entry for entry in self.entries if entry.key == key and entry.answer is MISSING), None)
        if entry is None:
            return False
        if entry.question is None:
            # To an earlier run. It is checked when this one has come so far.
            entry.came = response
            return False
        if not entry.waiting:
            return False
        if entry.question.accepts(response):
            entry.answer, entry.waiting = response, False
            entry.answered.set()
        else:
            entry.key = self.new_key(entry.base)
        return True

    def forget(self, entry: Entry) -> None:
        """The handler has given the question up."""
        if entry in self.entries:
            self.entries.remove(entry)

    # -- values

    def once(self, key: str) -> tuple[bool, Any]:
        """Whether a value is kept under this key, and the value."""
        return key in self._kept, self._kept.get(key)

    def keep(self, key: str, value: Any) -> None:
        """Keep a value."""
        self._kept[key] = value

    # -- both

    def to_json(self, *, stored: bool) -> dict[str, Any]:
        """What another run finds again.

        Args:
            stored: For the row of a task, whose low-level round goes on where it was; otherwise for the next round of a request.
        """
        parts: dict[str, Any] = {
            "asked": [entry.to_json() for entry in self.entries],
            "once": self._kept,
            "keys": sorted(self._used - {entry.key for entry in self.entries}),
        }
        if stored:
            parts |= {"round": self.open_round, "responses": self.responses}
        out = {key: value for key, value in parts.items() if value}
        return out if self.state is None else {**out, "state": self.state}
