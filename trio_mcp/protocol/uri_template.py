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
_CLIMB: Final = re.compile(r"(^|[/\\])\.{1,2}([/\\]|\Z)")


class BadTemplate(ValueError):
    """The template is malformed, too large, or of a form that is not supported."""


class Climbs(ValueError):
    """A value leaves the path segment that it was expected in, or cannot be decoded."""


class _Expression:
    __slots__ = ("explode", "names", "operator")

    def __init__(self, operator: str, names: tuple[str, ...], explode: bool) -> None:
        self.operator: str = operator
        self.names: tuple[str, ...] = names
        self.explode: bool = explode

    @property
    def named(self) -> bool:
        return self.operator in ("?", "&", ";")

    @property
    def may_lack(self) -> bool:
        """Whether the whole expression may be absent from a URI."""
        return self.named or self.explode

    def ends_at(self, char: str) -> bool:
        """Whether a character cannot be part of this expression's text, past its prefix."""
        if self.operator in ("?", "&"):
            # In a query every character but this may stand for itself (RFC 3986, section 3.4).
            return char == "#"
        if char not in _STOPS or (self.named and char == "="):
            return False
        many = self.named or self.explode or len(self.names) > 1
        return not (many and char == _SEPARATOR[self.operator])

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
        self.text: str = text
        self._parts: list[str | _Expression] = []
        at = 0
        for found in _EXPRESSION.finditer(text):
            self._literal(text[at : found.start()])
            self._parts.append(_parse(found[1]))
            at = found.end()
        self._literal(text[at:])
        expressions = [part for part in self._parts if isinstance(part, _Expression)]
        self.names: tuple[str, ...] = tuple(name for part in expressions for name in part.names)
        self.optional: frozenset[str] = frozenset(name for part in expressions if part.named for name in part.names)
        self.exploded: frozenset[str] = frozenset(name for part in expressions if part.explode for name in part.names)
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
        if re.search(r"[\s\x00-\x1f\x7f\"<>\\^`|]", text):
            raise BadTemplate(f"{text!r} holds a character that a URI cannot hold")
        self._parts.append(text)

    def _check_matchable(self) -> None:
        """Each value must end where the template can tell, without trying."""
        for index, part in enumerate(self._parts):
            if isinstance(part, _Expression):
                why = _ambiguous(part, self._parts[index + 1 :])
                if why:
                    raise BadTemplate(f"{{{part.operator}{','.join(part.names)}}} {why}")

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
        if len(uri) > limits.uri_bytes:
            return None
        try:
            if len(uri.encode()) > limits.uri_bytes:
                return None
        except UnicodeEncodeError:
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
        """Where the text of an expression ends: one look-up, no trying. -1 when it cannot end."""
        later = self._parts[index + 1 :]
        prefix = _PREFIX[part.operator]
        start = at + len(prefix) if prefix and uri.startswith(prefix, at) else at
        stop = len(uri) if part.spans else next((n for n in range(start, len(uri)) if part.ends_at(uri[n])), len(uri))
        after = later[0] if later else ""
        if len(later) < 2 and isinstance(after, str):
            # Only fixed text is left, so the end is counted from the end of the URI.
            end = len(uri) - len(after)
            return end if end <= max(stop, at) else -1
        if part.may_lack and start == at:
            return at
        return stop - _first_stop(part, after) if isinstance(after, str) else stop


def _first_stop(part: _Expression, text: str) -> int:
    return next((n for n, char in enumerate(text) if part.ends_at(char)), -1)


def _ambiguous(part: _Expression, later: list[str | _Expression]) -> str | None:
    """Why the end of an expression could not be told from what follows it, or None."""
    if len(part.names) > 1 and (part.spans or part.operator == "."):
        return "holds several names whose values may hold their separator"
    if part.spans:
        return "must be the end, or be followed by fixed text only" if later[1:] or _has_expression(later) else None
    for number, piece in enumerate(later):
        if isinstance(piece, str):
            if number == 0 and len(later) == 1:
                return None
            place = _first_stop(part, piece)
            if place < 0 or (number and place) or (part.may_lack and piece.startswith(_PREFIX[part.operator])):
                return f"is not separated from what follows by {piece!r}"
            return None
        mark = _PREFIX[piece.operator]
        if not mark or not part.ends_at(mark) or (part.may_lack and piece.operator == part.operator):
            return f"is not separated from {{{piece.operator}{piece.names[0]}}}"
        if not piece.may_lack:
            return None
    return None


def _has_expression(parts: list[str | _Expression]) -> bool:
    return any(isinstance(part, _Expression) for part in parts)


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
    body = text[len(prefix) :]
    pieces = body.split(separator) if part.may_lack or len(part.names) > 1 else [body]
    if part.named:
        for piece in pieces:
            name, _, raw = piece.partition("=")
            if name not in part.names or name in values:
                return False
            values[name] = _decode(raw, spans=True)
        return True
    if part.explode:
        values[next(iter(part.names))] = [_decode(piece, spans=False) for piece in pieces]
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
