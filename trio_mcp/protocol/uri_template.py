"""URI templates (RFC 6570): matching a URI against one, and expanding one.

Accepted: `{name}`, `{+name}`, `{#name}`, `{.name}`, `{/name}`, `{;name}`, `{?name}`, `{&name}` with lists of names
(levels 1 to 3) and the explode modifier on `{/name*}`. Anything else is refused when the template is made, so a
registered template is never one that cannot match.

Matching walks the template once from left to right and never goes back: a value ends at the next literal character of
the template that cannot be part of a value. So it is linear in the URI, and what `expand` wrote, `match` reads back.
Values are percent-decoded once. A value of a single-segment expression that climbs out (a `.` or `..` segment, a leading
separator, NUL, encoded once or twice) is refused before user code sees it; `{+name}` says that it may span segments and
leaves the check to the handler.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from ..limits import DEFAULT, Limits

__all__ = ["BadTemplate", "Climbs", "UriTemplate"]

_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNRESERVED: Final = "-._~"
_RESERVED: Final = ":/?#[]@!$&'()*+,;="
_PREFIX: Final = {"": "", "+": "", "#": "#", ".": ".", "/": "/", ";": ";", "?": "?", "&": "&"}
_SEPARATOR: Final = {"": ",", "+": ",", "#": ",", ".": ".", "/": "/", ";": ";", "?": "&", "&": "&"}
# Characters that no encoded value holds, by operator: where one comes, the value has ended.
_STOPS: Final = "/?#[]@!$&'()*+,;=:"
_CLIMB: Final = re.compile(r"(^|[/\\])\.{1,2}([/\\]|$)")


class BadTemplate(ValueError):
    """The template is malformed, too large, or of a form that is not supported."""


class Climbs(ValueError):
    """A value leaves the path segment that it was expected in, or cannot be decoded."""


class _Expression:
    __slots__ = ("explode", "names", "operator")

    def __init__(self, operator: str, names: tuple[str, ...], explode: bool) -> None:
        self.operator = operator
        self.names = names
        self.explode = explode

    @property
    def named(self) -> bool:
        return self.operator in ("?", "&", ";")

    @property
    def spans(self) -> bool:
        return self.operator in ("+", "#")


class UriTemplate:
    """A parsed template.

    Args:
        text: The template.
        limits: Its size and number of variables are bounded.

    Attributes:
        names: The variables in order.
        optional: The variables that a URI may leave out (those of `{?…}`, `{&…}` and `{;…}`).

    Raises:
        BadTemplate: with the place and the reason.
    """

    __slots__ = ("_parts", "exploded", "names", "optional", "text")

    def __init__(self, text: str, limits: Limits = DEFAULT) -> None:
        if len(text.encode()) > limits.template_bytes:
            raise BadTemplate(f"the template is longer than {limits.template_bytes} bytes")
        self.text = text
        self._parts: list[str | _Expression] = []
        at = 0
        for found in _EXPRESSION.finditer(text):
            self._literal(text[at : found.start()])
            self._parts.append(_parse(found[1]))
            at = found.end()
        self._literal(text[at:])
        expressions = [part for part in self._parts if isinstance(part, _Expression)]
        self.names = tuple(name for part in expressions for name in part.names)
        self.optional = frozenset(name for part in expressions if part.named for name in part.names)
        self.exploded = frozenset(name for part in expressions if part.explode for name in part.names)
        if len(self.names) > limits.template_variables:
            raise BadTemplate(f"the template has more than {limits.template_variables} variables")
        if len(set(self.names)) < len(self.names):
            raise BadTemplate("a variable appears twice")
        self._check_matchable()

    def __repr__(self) -> str:
        return f"UriTemplate({self.text!r})"

    def _literal(self, text: str) -> None:
        if not text:
            return
        for mark in "{}":
            if mark in text:
                raise BadTemplate(f"unbalanced {mark!r} in {self.text!r}")
        if re.search(r"[\s\x00-\x1f\"<>\\^`|]", text):
            raise BadTemplate(f"{text!r} holds a character that a URI cannot hold")
        self._parts.append(text)

    def _check_matchable(self) -> None:
        """Each value must end where the template can tell, without trying."""
        for index, part in enumerate(self._parts):
            if not isinstance(part, _Expression):
                continue
            after = self._parts[index + 1] if index + 1 < len(self._parts) else None
            if after is None:
                continue
            if part.spans:
                if isinstance(after, _Expression):
                    raise BadTemplate(f"{{{part.operator}{part.names[-1]}}} must be followed by text or be the end")
                if any(isinstance(later, _Expression) and later.spans for later in self._parts[index + 1 :]):
                    raise BadTemplate("only one {+name} or {#name} can be matched in one template")
            elif isinstance(after, _Expression) and after.operator in ("", "+"):
                raise BadTemplate(f"nothing separates {{{part.names[-1]}}} from {{{after.names[0]}}}")

    # -- expanding

    def expand(self, values: Mapping[str, str | list[str]]) -> str:
        """The URI for these values.

        Raises:
            KeyError: a variable that is not optional has no value.
        """
        out: list[str] = []
        for part in self._parts:
            if isinstance(part, str):
                out.append(part)
                continue
            safe = _RESERVED + _UNRESERVED if part.spans else _UNRESERVED
            pieces: list[str] = []
            for name in part.names:
                if part.named and name not in values:
                    continue
                value = values[name]
                items = value if isinstance(value, list) else [value]
                for text in [quote(item, safe=safe) for item in items]:
                    if not part.named:
                        pieces.append(text)
                    elif text or part.operator != ";":
                        pieces.append(f"{name}={text}")
                    else:
                        pieces.append(name)
            if pieces:
                out.append(_PREFIX[part.operator] + _SEPARATOR[part.operator].join(pieces))
        return "".join(out)

    # -- matching

    def match(self, uri: str, limits: Limits = DEFAULT) -> dict[str, str | list[str]] | None:
        """The values in a URI, decoded, or None when the URI is not one of this template.

        Raises:
            Climbs: it would match, but a value leaves its segment.
        """
        if len(uri.encode(errors="replace")) > limits.uri_bytes:
            return None
        values: dict[str, str | list[str]] = {}
        at = 0
        for index, part in enumerate(self._parts):
            if isinstance(part, str):
                if not uri.startswith(part, at):
                    return None
                at += len(part)
                continue
            end = self._end_of(index, part, uri, at)
            if end < at or not _read(part, uri[at:end], values):
                return None
            at = end
        if at != len(uri):
            return None
        return values

    def _end_of(self, index: int, part: _Expression, uri: str, at: int) -> int:
        """Where the text of an expression ends: one look-up, no trying."""
        later = self._parts[index + 1 :]
        if part.spans:
            # What follows a spanning value has a fixed shape, so its end is found from the end of the URI.
            tail = sum(len(text) for text in later if isinstance(text, str))
            if not any(isinstance(piece, _Expression) for piece in later):
                return len(uri) - tail
            assert isinstance(later[0], str)
            found = uri.rfind(later[0], at)
            return found
        stop = len(uri)
        own = _PREFIX[part.operator] + _SEPARATOR[part.operator] + ("=" if part.named else "")
        for place in range(at, len(uri)):
            if uri[place] in _STOPS and uri[place] not in own:
                stop = place
                break
        if later:
            after = later[0]
            mark = after if isinstance(after, str) else _PREFIX[after.operator]
            found = uri.find(mark, at + len(_PREFIX[part.operator]), stop + len(mark))
            if found >= 0:
                stop = min(stop, found)
        return stop


def _parse(body: str) -> _Expression:
    operator = body[0] if body and body[0] in "+#./;?&" else ""
    if body and body[0] in "=,!@|":
        raise BadTemplate(f"{{{body}}}: the operator {body[0]!r} is reserved")
    names: list[str] = []
    explode = False
    specs = body[len(operator) :].split(",")
    for spec in specs:
        name = spec.removesuffix("*")
        if name != spec:
            if operator != "/" or len(specs) > 1:
                raise BadTemplate(f"{{{body}}}: explode (*) is supported in {{/name*}} only")
            explode = True
        if ":" in name:
            raise BadTemplate(f"{{{body}}}: a prefix length (:n) cannot be matched back")
        if not _NAME.fullmatch(name):
            raise BadTemplate(f"{{{body}}}: {name!r} is not a variable name")
        names.append(name)
    return _Expression(operator, tuple(names), explode)


def _read(part: _Expression, text: str, values: dict[str, str | list[str]]) -> bool:
    prefix, separator = _PREFIX[part.operator], _SEPARATOR[part.operator]
    if not text and (part.named or part.explode):
        if part.explode:
            values[part.names[0]] = []
        return True
    if not text.startswith(prefix):
        return False
    pieces = (
        text[len(prefix) :].split(separator) if not (part.spans and len(part.names) == 1) else [text[len(prefix) :]]
    )
    if part.named:
        for piece in pieces:
            name, _, raw = piece.partition("=")
            if name not in part.names or name in values:
                return False
            values[name] = _decode(raw, spans=True)
        return True
    if part.explode:
        values[part.names[0]] = [_decode(piece, spans=False) for piece in pieces]
        return True
    if len(pieces) != len(part.names):
        return False
    for name, piece in zip(part.names, pieces, strict=True):
        if not piece:
            return False
        values[name] = _decode(piece, spans=part.spans)
    return True


def _decode(raw: str, *, spans: bool) -> str:
    try:
        value = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise Climbs(f"{raw!r} is not percent-encoded UTF-8") from None
    if "\0" in value:
        raise Climbs(f"{raw!r} holds a NUL")
    if not spans:
        # Once more: a value that needs two decodings to show its `..` is meant for code that decodes twice.
        for text in (value, unquote_to_bytes(value).decode(errors="replace")):
            if "\0" in text or text.startswith(("/", "\\")) or _CLIMB.search(text):
                raise Climbs(f"{raw!r} leaves its path segment")
    return value
