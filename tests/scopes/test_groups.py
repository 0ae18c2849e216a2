"""One error is raised as itself; several stay a group."""

from __future__ import annotations

import pytest
import trio

from trio_mcp.scopes.groups import unwrapped


async def fail(exc: BaseException) -> None:
    raise exc


async def test_one_error_in_nested_nurseries_comes_out_as_itself_with_its_cause() -> None:
    cause = OSError("below")
    with pytest.raises(ValueError, match="x") as caught, unwrapped():
        async with trio.open_nursery(), trio.open_nursery():
            try:
                raise cause
            except OSError as exc:
                raise ValueError("x") from exc
    assert caught.value.__cause__ is cause


async def test_two_errors_stay_a_group() -> None:
    with pytest.raises(ExceptionGroup) as caught, unwrapped():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail, ValueError("a"))
            nursery.start_soon(fail, KeyError("b"))
    assert {type(exc) for exc in caught.value.exceptions} == {ValueError, KeyError}


async def test_a_single_error_keeps_its_context() -> None:
    with pytest.raises(ValueError, match="second") as caught, unwrapped():
        async with trio.open_nursery():
            try:
                raise KeyError("first")
            except KeyError:
                raise ValueError("second")  # noqa: B904 - the implicit context is the point
    assert isinstance(caught.value.__context__, KeyError)


async def test_nothing_happens_without_an_error() -> None:
    with unwrapped():
        await trio.lowlevel.checkpoint()
