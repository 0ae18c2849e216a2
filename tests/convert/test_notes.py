"""Notes in `Annotated`: each is applied, or handed to pydantic, or refused when it is registered."""

import datetime as dt
import decimal
import re
import uuid
from typing import Annotated, Any

import annotated_types
import msgspec
import pydantic
import pytest
from typing_extensions import Doc

from trio_mcp.convert.codec import Mismatch, Unsupported
from trio_mcp.convert.compiler import Compiler

UTC = dt.UTC


def load(annotation: Any, value: Any) -> Any:
    return Compiler().compile(annotation).load(value)


def dump(annotation: Any, value: Any) -> Any:
    return Compiler(output=True).compile(annotation).dump(value)


def schema_of(annotation: Any, output: bool = False) -> Any:
    compiler = Compiler(output=output)
    return compiler.root_schema(compiler.compile(annotation))


def inside(path: str) -> str:
    if path.startswith("/etc"):
        raise ValueError("outside of the folder")
    return path.upper()


def even(value: int) -> bool:
    return value % 2 == 0


Amount = Annotated[decimal.Decimal, pydantic.Field(max_digits=4, decimal_places=2)]
Word = Annotated[str, pydantic.StringConstraints(strip_whitespace=True, to_lower=True, min_length=1)]


@pytest.mark.parametrize(
    ("annotation", "good", "value", "bad", "why"),
    [
        (
            Annotated[str, pydantic.AfterValidator(inside)],
            "a",
            "A",
            "/etc/passwd",
            "value error, outside of the folder, got",
        ),
        (Annotated[str, "Where.", pydantic.AfterValidator(inside)], "a", "A", "/etc", "outside of the folder"),
        (
            Annotated[int, pydantic.BeforeValidator(lambda value: value)],
            5,
            5,
            "5",
            "input should be a valid integer, got",
        ),
        (Amount, "12.34", decimal.Decimal("12.34"), "1.23456789", "decimal input should have no more than 4 digits"),
        (Word, " A ", "a", "   ", "string should have at least 1 character"),
        (list[Word], ["B"], ["b"], [""], "[0]: string should have at least 1 character"),
        (Annotated[int, annotated_types.Predicate(even)], 2, 2, 3, "expected integer that fits even, got integer 3"),
        (
            Annotated[dt.datetime, msgspec.Meta(tz=True)],
            "2026-07-28T12:00:00Z",
            dt.datetime(2026, 7, 28, 12, tzinfo=UTC),
            "2026-07-28T12:00:00",
            "expected date and time (2026-07-28T12:00:00Z) with an offset, got",
        ),
        (
            Annotated[dt.datetime, annotated_types.Timezone(None)],
            "2026-07-28T12:00:00",
            dt.datetime(2026, 7, 28, 12),
            "2026-07-28T12:00:00Z",
            "without an offset",
        ),
        (Annotated[int, pydantic.Field(strict=True)], 5, 5, "5", "input should be a valid integer"),
        (
            Annotated[str, pydantic.Field(pattern=re.compile("^ab$", re.IGNORECASE))],
            "AB",
            "AB",
            "x",
            "text matching ^ab$",
        ),
        # Bytes are counted as bytes, as pydantic and msgspec do.
        (Annotated[bytes, annotated_types.MaxLen(3)], "AAAA", b"\0\0\0", "AAAAAA==", "expected at most 3 bytes, got"),
        (
            Annotated[dt.datetime, annotated_types.Gt(dt.datetime(2026, 1, 1, tzinfo=UTC))],
            "2026-07-28T12:00:00Z",
            dt.datetime(2026, 7, 28, 12, tzinfo=UTC),
            "2026-07-28T12:00:00",
            "more than 2026-01-01 00:00:00+00:00 (can't compare offset-naive and offset-aware datetimes), got",
        ),
    ],
)
def test_a_note_is_applied(annotation: Any, good: Any, value: Any, bad: Any, why: str) -> None:
    assert load(annotation, good) == value
    with pytest.raises(Mismatch) as caught:
        load(annotation, bad)
    assert why in str(caught.value)


def test_a_note_is_applied_on_the_way_out() -> None:
    assert dump(Amount, decimal.Decimal("1.5")) == "1.5"
    with pytest.raises(Mismatch, match="no more than 4 digits"):
        dump(Amount, decimal.Decimal("1.23456"))
    with pytest.raises(Mismatch, match="fits even"):
        dump(Annotated[int, annotated_types.Predicate(even)], 3)
    money = Annotated[int, pydantic.PlainSerializer(lambda value: f"{value} EUR", return_type=str)]
    assert (dump(money, 5), schema_of(money, output=True)) == ("5 EUR", {"type": "string"})
    with pytest.raises(Mismatch, match="expected integer, got"):
        dump(money, "5")


def test_what_is_said_in_the_schema() -> None:
    assert schema_of(Annotated[int, Doc("How many.")]) == {"type": "integer", "description": "How many."}
    assert schema_of(Annotated[int, pydantic.Field(deprecated=True)]) == {"type": "integer", "deprecated": True}
    # Only where it means the same to everybody who reads it.
    assert schema_of(Annotated[str, pydantic.Field(pattern="(?i)ab")]) == {"type": "string"}
    assert schema_of(Annotated[str, pydantic.Field(pattern=r"a\Z")]) == {"type": "string"}
    assert schema_of(Annotated[str, pydantic.Field(pattern=re.compile("a", re.IGNORECASE))]) == {"type": "string"}
    assert schema_of(Annotated[bytes, annotated_types.MaxLen(7)])["maxLength"] == 12
    assert schema_of(Annotated[str, pydantic.WithJsonSchema({"type": "string", "x": 1})]) == {"type": "string", "x": 1}


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        (Annotated[int, object()], "beside the type is not understood; a description is text"),
        (Annotated[int, pydantic.Field(alias="n")], "Field(alias=…) has no meaning for an argument"),
        (Annotated[int, pydantic.Field(validation_alias="n")], "Field(validation_alias=…)"),
        (Annotated[int, pydantic.Field(default=1, validate_default=True)], "validate_default=True"),
        (
            Annotated[int, pydantic.Field(default_factory=lambda data: 1)],
            "a default_factory that takes the other values",
        ),
        (Annotated[dt.datetime, annotated_types.Timezone("Europe/Rome")], "Timezone('Europe/Rome') is not supported"),
        (Annotated[uuid.UUID, pydantic.Field(ge=1)], "the bound ge=1 does not apply to UUID"),
        (Annotated[int, annotated_types.MultipleOf(dt.timedelta(1))], "does not apply to integer"),
        (Annotated[int, annotated_types.MinLen(1)], "the bound min_length=1 does not apply to integer"),
        (Annotated[int, pydantic.Field(pattern="a")], "the bound pattern='a' does not apply to integer"),
        (Annotated[str, pydantic.Field(pattern="(")], "pattern '(': "),
        (Annotated[str, msgspec.Meta(tz=True)], "the bound tz=True does not apply to string"),
        (list[Annotated[int, object()]], "is not understood"),
    ],
)
def test_a_note_is_refused(annotation: Any, why: str) -> None:
    with pytest.raises(Unsupported) as caught:
        Compiler().compile(annotation)
    assert why in caught.value.message
