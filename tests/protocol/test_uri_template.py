"""URI templates: what is accepted can be read back, and what climbs is refused. What holds of all is in `test_uri_properties`."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from trio_mcp.limits import Limits
from trio_mcp.protocol.uri_template import BadTemplate, Climbs, UriTemplate

Values = dict[str, str | list[str]]


@pytest.mark.parametrize(
    ("text", "values", "uri"),
    [
        ("plain", {}, "plain"),
        ("a://{x}", {"x": "b c"}, "a://b%20c"),
        ("a://{x}", {"x": "é"}, "a://%C3%A9"),
        ("a://{x}", {"x": "50%"}, "a://50%25"),
        ("a://{x}/{y}", {"x": "1", "y": "2"}, "a://1/2"),
        ("a://{x,y}", {"x": "1", "y": "2"}, "a://1,2"),
        ("a://{x}", {"x": "a?b#c"}, "a://a%3Fb%23c"),
        ("a://{+x}", {"x": "b/c/d.txt"}, "a://b/c/d.txt"),
        ("a://{+x}/end", {"x": "b/end/end"}, "a://b/end/end/end"),
        ("a{#x}", {"x": "b/c"}, "a#b/c"),
        ("a{.x}", {"x": "txt"}, "a.txt"),
        ("a{/x}", {"x": "b"}, "a/b"),
        ("a{/x*}", {"x": ["b", "c d", "e"]}, "a/b/c%20d/e"),
        ("a{/x*}", {"x": []}, "a"),
        ("a{;x}", {"x": "1"}, "a;x=1"),
        ("a{;x}", {"x": ""}, "a;x"),
        ("a{?x,y}", {"x": "1", "y": "2"}, "a?x=1&y=2"),
        ("a{?x,y}", {"y": "2"}, "a?y=2"),
        ("a{?x,y}", {}, "a"),
        ("a{?x}", {"x": ""}, "a?x="),
        ("a?p=1{&x}", {"x": "2"}, "a?p=1&x=2"),
        ("a{?x}", {"x": "../b"}, "a?x=..%2Fb"),
        # Common in the wild: a fixed extension, and a name that has dots too.
        ("file:///{name}.txt", {"name": "a"}, "file:///a.txt"),
        ("file:///{name}.txt", {"name": "a.txt"}, "file:///a.txt.txt"),
        ("file:///{name}.txt", {"name": "v1.2"}, "file:///v1.2.txt"),
        ("a/{x}-b", {"x": "c-d"}, "a/c-d-b"),
        ("a{.x}", {"x": "tar.gz"}, "a.tar.gz"),
    ],
)
def test_both_ways(text: str, values: Values, uri: str) -> None:
    template = UriTemplate(text)
    assert template.expand(values) == uri
    assert template.match(uri) == values


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("plain", "plain2"),
        ("plain", "plai"),
        ("plain", ""),
        ("a://{x}", "b://1"),
        ("a://{x}", "a://"),
        ("a://{x}", "a://1/2"),
        ("a://{x}", "a://1?y=2"),
        ("a://{x}/z", "a://1/y"),
        ("a://{x}/z", "a://1/z/z"),
        ("a://{x,y}", "a://1"),
        ("a://{x,y}", "a://1,2,3"),
        ("a://{+x}/z", "a://b/c"),
        ("a{?x}", "a?y=1"),
        ("a{?x}", "a?x=1&x=2"),
        ("a{?x}", "a?x=1&y=2"),
        ("a{/x*}", "ab"),
        ("a://{x}", "A://1"),
    ],
)
def test_other_uris_do_not_match(text: str, uri: str) -> None:
    assert UriTemplate(text).match(uri) is None


def test_the_order_of_a_query_does_not_matter() -> None:
    assert UriTemplate("a{?x,y}").match("a?y=2&x=1") == {"x": "1", "y": "2"}


def test_values_are_decoded_once() -> None:
    assert UriTemplate("a:{x}").match("a:%2541") == {"x": "%41"}
    assert UriTemplate("a:{x}").match("a:1+2") is None
    assert UriTemplate("a{?x}").match("a?x=1%2B2") == {"x": "1+2"}


def test_what_a_template_says_about_itself() -> None:
    template = UriTemplate("a://{x}{/y*}{?z,w}")
    assert template.names == ("x", "y", "z", "w")
    assert template.optional == {"z", "w"}
    assert template.exploded == {"y"}
    assert repr(template) == "UriTemplate('a://{x}{/y*}{?z,w}')"


def test_a_value_that_is_missing() -> None:
    with pytest.raises(KeyError):
        UriTemplate("a:{x}").expand({})


# -- climbing

CLIMBING = [
    *("..", ".", "%2e%2e", "%2E%2E", "%2e", ".%2e", "..%2F..%2Fsecret", "..%2fsecret", "%2e%2e%2f", "%2e%2e%2fsecret"),
    *("..%5C", "..%5Csecret", "a%2F..%2Fsecret", "a%2F..", "a%5C..%5Csecret", "%252e%252e", "%252e%252e%252fsecret"),
    *("..%252fsecret", "%2Fetc", "%2fetc%2fpasswd", "%252Fetc", "%5C%5Chost", "%5Cwindows", "%00", "a%00", "a%2500b"),
    *("\0", "%ff", "%C0%AE%C0%AE%2F"),
]


@pytest.mark.parametrize("raw", CLIMBING)
@pytest.mark.parametrize(
    "text", ["file:///notes/{x}", "file:///notes/{x}/end", "file:///notes{/x}", "file:///notes{/x*}"]
)
def test_a_value_that_leaves_its_segment_is_refused(text: str, raw: str) -> None:
    template = UriTemplate(text)
    uri = f"file:///notes/{raw}" + ("/end" if text.endswith("end") else "")
    with pytest.raises(Climbs):
        template.match(uri)


@pytest.mark.parametrize("raw", ["..", "%2e%2e", "..%2Fsecret", "%252e%252e"])
def test_a_later_segment_that_climbs_is_refused(raw: str) -> None:
    with pytest.raises(Climbs):
        UriTemplate("file://{/x*}").match(f"file:///a/{raw}/b")
    with pytest.raises(Climbs):
        UriTemplate("file:///{x}/{y}").match(f"file:///a/{raw}")
    with pytest.raises(Climbs):
        UriTemplate("file:///{x,y}").match(f"file:///a,{raw}")


@pytest.mark.parametrize("raw", ["..a", "a..", "...", "a..b", ".hidden", "a%2Fb", "%25", "100%25", "a%20.."])
def test_dots_that_do_not_climb_are_values(raw: str) -> None:
    assert UriTemplate("file:///{x}").match(f"file:///{raw}") == {"x": unquote(raw)}


def test_a_value_that_may_span_is_the_handlers_to_check() -> None:
    assert UriTemplate("file:///{+x}").match("file:///a/../b") == {"x": "a/../b"}
    for raw in ("a%00", "%ff"):
        with pytest.raises(Climbs):
            UriTemplate("file:///{+x}").match(f"file:///{raw}")
        with pytest.raises(Climbs):
            UriTemplate("file:///{?x}").match(f"file:///?x={raw}")


# -- construction


@pytest.mark.parametrize(
    "text",
    [
        *("a{", "a}", "a{x", "ax}", "a{{x}}", "{}", "{+}", "{ }", "{x y}", "{ x}", "{x,}", "{,x}", "{1x}", "{a-b}"),
        *("{é}", "{=x}", "{!x}", "{@x}", "{|x}", "{x:3}", "{/x:3}", "{x*}", "{+x*}", "{.x*}", "{;x*}", "{?x*}"),
        *("{&x*}", "{/x,y*}", "{/x*,y}", "{/x**}", "a/{x}/{x}", "{x,x}", "{x}{?x}", "{x}{y}", "{x}{+y}", "{+x}{y}"),
        *("{+x}{/y}", "{+x}/{+y}", "a b", "a\n"),
        'a"',
        "a<b>",
        "a\\b",
        "a^",
        "a`",
        "a|b",
        "a\x00",
        "a\x7f",
    ],
)
def test_other_forms_are_refused_when_the_template_is_made(text: str) -> None:
    with pytest.raises(BadTemplate):
        UriTemplate(text)


def test_a_template_has_a_size() -> None:
    limits = Limits(template_bytes=10, template_variables=2)
    assert UriTemplate("a" * 10, limits).match("a" * 10) == {}
    assert UriTemplate("{x}/{y}", limits).names == ("x", "y")
    for text, why in [
        ("a" * 11, "the template is longer than 10 bytes"),
        ("é" * 6, "the template is longer than 10 bytes"),
        ("{x,y,z}", "the template has more than 2 variables"),
    ]:
        with pytest.raises(BadTemplate) as caught:
            UriTemplate(text, limits)
        assert str(caught.value) == why


def test_a_uri_has_a_size_in_bytes() -> None:
    template, limits = UriTemplate("a:{x}"), Limits(uri_bytes=10)
    assert template.match("a:" + "b" * 8, limits) == {"x": "b" * 8}
    assert template.match("a:" + "b" * 9, limits) is None
    assert template.match("a:" + "é" * 4, limits) == {"x": "é" * 4}
    assert template.match("a:" + "é" * 5, limits) is None
