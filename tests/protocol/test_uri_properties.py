"""URI templates against an expander of their own, and what matching costs, counted and not timed."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trio_mcp.limits import Limits
from trio_mcp.protocol.uri_template import BadTemplate, Climbs, UriTemplate

from ..scaled import scaled

Values = dict[str, str | list[str]]
ROOMY = Limits(uri_bytes=1_000_000)

# -- an expander (RFC 6570, section 3.2 and appendix A), levels 1 to 3 and the explode modifier

UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
RESERVED = frozenset(":/?#[]@!$&'()*+,;=")
# Operator: first, separator, named, what stands after the name of an empty value, whether reserved characters stay.
TABLE: dict[str, tuple[str, str, bool, str, bool]] = {
    "": ("", ",", False, "", False),
    "+": ("", ",", False, "", True),
    "#": ("#", ",", False, "", True),
    ".": (".", ".", False, "", False),
    "/": ("/", "/", False, "", False),
    ";": (";", ";", True, "", False),
    "?": ("?", "&", True, "=", False),
    "&": ("&", "&", True, "=", False),
}


def encoded(text: str, reserved: bool) -> str:
    out: list[str] = []
    for at, char in enumerate(text):
        triplet = reserved and re.match(r"%[0-9A-Fa-f]{2}", text[at:])
        if char in UNRESERVED or (reserved and char in RESERVED) or triplet:
            out.append(char)
        else:
            out += [f"%{byte:02X}" for byte in char.encode()]
    return "".join(out)


def rfc_expand(template: str, values: Mapping[str, str | list[str]]) -> str:
    def one(found: re.Match[str]) -> str:
        first, separator, named, if_empty, reserved = TABLE[found[1]]
        out: list[str] = []
        for spec in found[2].split(","):
            name = spec.removesuffix("*")
            value = values.get(name, [])
            if value == []:
                continue
            items = [encoded(item, reserved) for item in ([value] if isinstance(value, str) else value)]
            for text in items if spec.endswith("*") else [",".join(items)]:
                shown = f"{name}={text}" if text else name + if_empty
                out += [shown if named else text]
        return first + separator.join(out) if out else ""

    return re.sub(r"\{([+#./;?&]?)([^}]*)\}", one, template)


RFC: Values = {
    "var": "value",
    "hello": "Hello World!",
    "path": "/foo/bar",
    "empty": "",
    "x": "1024",
    "y": "768",
    "half": "50%",
    "base": "http://example.com/home/",
    "list": ["red", "green", "blue"],
    "v": "6",
    "who": "fred",
}


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("{var}", "value"),
        ("{hello}", "Hello%20World%21"),
        ("{half}", "50%25"),
        ("O{empty}X", "OX"),
        ("O{undef}X", "OX"),
        ("map?{x,y}", "map?1024,768"),
        ("{x,hello,y}", "1024,Hello%20World%21,768"),
        ("?{x,undef}", "?1024"),
        ("{+hello}", "Hello%20World!"),
        ("{+half}", "50%25"),
        ("{base}index", "http%3A%2F%2Fexample.com%2Fhome%2Findex"),
        ("{+base}index", "http://example.com/home/index"),
        ("{+x,hello,y}", "1024,Hello%20World!,768"),
        ("{+path,x}/here", "/foo/bar,1024/here"),
        ("{#path,x}/here", "#/foo/bar,1024/here"),
        ("{#half}", "#50%25"),
        ("foo{#empty}", "foo#"),
        ("foo{#undef}", "foo"),
        ("X{.x,y}", "X.1024.768"),
        ("{.half,who}", ".50%25.fred"),
        ("X{.empty}", "X."),
        ("{/var,x}/here", "/value/1024/here"),
        ("{/var,empty}", "/value/"),
        ("{/var,undef}", "/value"),
        ("{/list}", "/red,green,blue"),
        ("{/list*}", "/red/green/blue"),
        ("{;x,y,empty}", ";x=1024;y=768;empty"),
        ("{;v,undef,who}", ";v=6;who=fred"),
        ("{?x,y,empty}", "?x=1024&y=768&empty="),
        ("{?x,y,undef}", "?x=1024&y=768"),
        ("?fixed=yes{&x}", "?fixed=yes&x=1024"),
        ("{&x,y,empty}", "&x=1024&y=768&empty="),
    ],
)
def test_the_expander_of_this_file_expands_as_the_rfc_shows(template: str, uri: str) -> None:
    assert rfc_expand(template, RFC) == uri


# -- expanding then matching


def climbs(value: str) -> bool:
    """Independent of the code under test: decode once more, split at both separators."""
    for text in (value, unquote(value)):
        if "\0" in text or text.startswith(("/", "\\")) or {".", ".."} & set(re.split(r"[/\\]", text)):
            return True
    return False


TEXT = st.text(
    st.sampled_from("ab.x1-~_%25/\\?#&=,;:+!*'()[]@$ é😀{}\t\u0301\u202e\ufeff") | st.characters(codec="utf-8"),
    max_size=12,
)
FORMS = [
    *("{x}", "{x,y}", "{x,y,z}", "{+x}", "{#x}", "{.x}", "{/x}", "{/x,y}", "{/x,y,z}", "{/x*}", "{;x}", "{;x,y}"),
    *("{?x}", "{?x,y,z}", "{&x}", "{&x,y,z}", "/{x}/{y,z}{?w}", "{/x*}{;y}{?z}{#w}", "/{x}{/y*}{?z}"),
]


LITERALS = [
    *("file:///", "db://", "/", "/x", "-", ".", ".txt", "x", "ab", "a", "aa", "?", "?a=", "#", "%20", "~", ",", ";"),
    "&b=1",
]
LITERALS += ["//", "=", "a/b"]
# Several things in one template, each with what may follow.
GROWN = [
    ("note://a?b=1" if "{&" in form and "{?" not in form else "note://a") + form + end
    for form in FORMS
    for end in ("", "/end", "?end=1", "#end", ".txt")
    if end == "" or form[0] == "{"
]


@st.composite
def built(draw: st.DrawFn) -> UriTemplate:
    """Any template that is accepted, of up to eight parts."""
    names = ["u", "v", "w", "x2", "long_name", "_y", "z", "v0"]
    out = ""
    for _ in range(draw(st.integers(1, 8))):
        if draw(st.booleans()) or not names:
            out += draw(st.sampled_from(LITERALS))
            continue
        operator = draw(st.sampled_from(["", "", "", *TABLE]))
        count = draw(st.integers(1, min(2, len(names))))
        body = ",".join(names.pop() for _ in range(count))
        explode = "*" if operator == "/" and count == 1 and draw(st.booleans()) else ""
        out += "{" + operator + body + explode + "}"
    try:
        return UriTemplate(out)
    except BadTemplate:
        assume(False)
        raise


templates = built() | st.sampled_from(GROWN).map(UriTemplate)


def values_of(template: UriTemplate, segment: st.SearchStrategy[str]) -> st.SearchStrategy[Values]:
    """Values that a template can carry; those of single segments from `segment`."""
    spanning = TEXT.filter(lambda text: "\0" not in text)
    required: dict[str, st.SearchStrategy[Any]] = {}
    for operator, names in re.findall(r"\{([+#./;?&]?)([^}]*)\}", template.text):
        for name in names.split(","):
            if name.endswith("*"):
                required[name[:-1]] = st.lists(segment, max_size=4)
            elif operator in ("", ".", "/"):
                # An empty value in a path is a missing one.
                required[name] = segment.filter(bool)
            elif operator in ("+", "#"):
                required[name] = spanning.filter(bool)
    optional: dict[str, st.SearchStrategy[Any]] = dict.fromkeys(template.optional, spanning)
    return st.fixed_dictionaries(required, optional=optional)


# A line break at the end of a value that looks like a climb is refused as well.
SAFE = TEXT.filter(lambda value: not climbs(value) and not climbs(unquote(value)))
cases = templates.flatmap(lambda template: st.tuples(st.just(template), values_of(template, SAFE)))


@settings(max_examples=scaled(1_500))
@given(cases)
def test_what_anybody_expands_is_read_back(case: tuple[UriTemplate, Values]) -> None:
    template, values = case
    uri = template.expand(values)
    assert re.fullmatch(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]*", uri)
    assert template.match(uri, ROOMY) == values, (template, uri)
    # Others leave a triplet as it is in a reserved expansion (section 3.2.3): that is read back as what it stands for.
    reserved = re.findall(r"\{[+#]([^}]*)\}", template.text)
    if not any(re.search("%[0-9A-Fa-f]{2}", str(values[name])) for names in reserved for name in names.split(",")):
        assert uri == rfc_expand(template.text, values)


@given(templates, st.text(st.sampled_from("ab./?#&=;,%2e:x-") | st.characters(exclude_categories=["Cs"]), max_size=30))
def test_any_uri_matches_or_does_not(template: UriTemplate, uri: str) -> None:
    try:
        values: Any = template.match(uri)
    except Climbs:
        return
    if values is not None:
        assert set(template.names) >= set(values) >= set(template.names) - template.optional


@settings(max_examples=scaled(300))
@given(st.text(st.sampled_from("./\\%25eEfFcC0a"), min_size=1, max_size=12))
def test_no_value_that_reaches_a_handler_climbs(raw: str) -> None:
    template = UriTemplate("file:///notes/{x}")
    try:
        values = template.match(f"file:///notes/{raw}")
    except Climbs:
        return
    assert values is None or not climbs(str(values["x"]))


@pytest.mark.parametrize("form", [form for form in FORMS if not re.search(r"\{[+#?&;]", form) and form[0] == "{"])
def test_whatever_climbs_is_refused_however_it_was_expanded(form: str) -> None:
    template = UriTemplate("note://a" + form)
    pieces = st.sampled_from(["..", ".", "/", "\\", "%2e", "%2F", "%5c", "%00", "%25", "\0", "a", "é"])
    hostile = st.lists(pieces, max_size=6).map("".join)

    @settings(max_examples=scaled(50))
    @given(values_of(template, hostile))
    def check(values: Values) -> None:
        flat = [item for value in values.values() for item in (value if isinstance(value, list) else [value])]
        if any(map(climbs, flat)):
            with pytest.raises(Climbs):
                template.match(rfc_expand(template.text, values), ROOMY)
        else:
            assert template.match(rfc_expand(template.text, values), ROOMY) == values

    check()


# -- what matching costs


class Counted(str):
    """Text that counts the characters that its methods go over, in itself and in every piece of it."""

    __slots__ = ()
    touched = 0

    def _take(self, pieces: Any) -> Any:
        Counted.touched += len(self) + 1
        return type(pieces)(map(Counted, pieces))

    def __getitem__(self, key: Any) -> Any:
        part = Counted(str.__getitem__(self, key))
        Counted.touched += len(part)
        return part

    def startswith(self, *args: Any, **more: Any) -> Any:
        Counted.touched += len(args[0]) if isinstance(args[0], str) else len(self)
        return str.startswith(self, *args, **more)

    def split(self, *args: Any, **more: Any) -> Any:
        return self._take(str.split(self, *args, **more))

    def partition(self, *args: Any, **more: Any) -> Any:
        return self._take(str.partition(self, *args, **more))

    def find(self, *args: Any, **more: Any) -> Any:
        Counted.touched += len(self)
        return str.find(self, *args, **more)

    def encode(self, *args: Any, **more: Any) -> Any:
        Counted.touched += len(self)
        return str.encode(self, *args, **more)


def work(template: UriTemplate, uri: str) -> int:
    """Lines that Python executes to match a URI, and characters that are gone over in C."""
    lines = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal lines
        lines += 1
        return trace

    Counted.touched, before = 0, sys.gettrace()
    sys.settrace(trace)
    try:
        template.match(Counted(uri), ROOMY)
    except Climbs:
        pass
    finally:
        sys.settrace(before)
    return lines + Counted.touched


NASTY = [
    "{x}",
    "{+x}",
    "{+x}a",
    "{x}/a",
    "{x}/{y}/{z}",
    "/".join(f"{{v{n}}}" for n in range(32)),
    "{" + ",".join(f"v{n}" for n in range(32)) + "}",
    "{?" + ",".join(f"v{n}" for n in range(32)) + "}",
    "{;" + ",".join(f"v{n}" for n in range(32)) + "}",
    "".join(f"{{/v{n}}}" for n in range(32)),
    "{/x*}",
    "{/x*}{?y}{#z}",
    "{/x*}{;y}{?z}",
    "a{;x}{?y}{#z}",
    "{+x}" + "a" * 900,
    "{+x}" + "/a" * 400,
]
PIECES = ["a", "/", ".", "%", "%61", "a/", "a,", ";", "&", "?", "=a&", "../", "v1=a;", "&v2=%61", "é"]


def repeated(piece: str, size: int) -> str:
    return piece * (size // len(piece))


@pytest.mark.parametrize("text", NASTY, ids=lambda text: text[:20])
def test_twice_the_uri_is_at_most_twice_the_work(text: str) -> None:
    template = UriTemplate(text)
    size = 360 + 3 * len(text)
    for head in ["", "/", "?v1=", ";v1="]:
        for piece in PIECES:
            once, twice = (work(template, head + repeated(piece, times * size)) for times in (1, 2))
            # Fixed text of the template is compared in one go, so it costs less than what a value holds.
            assert twice <= 2 * once + 100 + 12 * len(text), (head, piece, once, twice)


@pytest.mark.parametrize("text", NASTY, ids=lambda text: text[:20])
def test_twice_the_values_is_at_most_twice_the_work(text: str) -> None:
    """The same for URIs that do match: all of it is read and decoded."""
    template = UriTemplate(text)
    for piece in ["a", "é", "%25", "a-"]:
        found: list[int] = []
        size = 720 // len(piece) // len(template.names)
        for times in (1, 2):
            one, many = piece * (times * size), [piece] * (times * size)
            values: Values = {name: many if name in template.exploded else one for name in template.names}
            uri = rfc_expand(text, values)
            assert template.match(uri, ROOMY) is not None
            found.append(work(template, uri))
        once, twice = found
        assert 600 <= once < twice <= 2 * once + 100, (piece, once, twice)


@given(
    built(),
    st.text(st.sampled_from("ab./?#&=;,%2-é"), max_size=8),
    st.text(st.sampled_from("ab./?#&=;,%2e-"), min_size=1, max_size=6),
)
def test_no_template_reads_a_uri_more_often_than_it_has_parts(template: UriTemplate, head: str, piece: str) -> None:
    uri = head + piece * (400 // len(piece))
    most = template.text.count("{") + 1
    # A character costs a handful of lines where an end is looked for, and a few when it is decoded.
    assert work(template, uri) <= 100 * most + 24 * most * len(uri)
