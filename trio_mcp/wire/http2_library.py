"""The `h2` library as it is used here: its state machine, with our rules for fields and our bounds instead of its own."""

from __future__ import annotations

from typing import Any, Final

import h2.config
import h2.connection
import h2.errors
import h2.exceptions
import h2.settings
import hpack

from ..limits import Limits
from .http2_fields import Fields

__all__ = ["CONTINUE", "PREFACE", "CompressionError", "Connection"]

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CONTINUE: Final = b"\x08\x03100"
"""The block of a status that only invites."""


class CompressionError(h2.exceptions.ProtocolError):
    """The table of fields is out of step."""

    error_code = h2.errors.ErrorCodes.COMPRESSION_ERROR


class _Decoder(hpack.Decoder):
    """Keeps the fields of a request, and tells `h2` of none: what it finds wrong would end the connection."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.max_header_list_size: int = most
        self.fields: Fields = []

    def decode(self, data: bytes, raw: bool = False) -> list[Any]:
        self.fields = []
        try:
            self.fields = self._decode(data)
        except hpack.OversizedHeaderListError:
            raise
        except (hpack.HPACKError, IndexError, TypeError, ValueError) as exc:
            raise CompressionError(str(exc)) from exc
        return []

    def _decode(self, data: bytes) -> Fields:
        # Most of what a client says again is one byte a field; to look it up here takes a third of the time.
        fields: Fields = []
        get, size, at = self.header_table.get_by_index, 0, 0
        for byte in data:
            if byte < 0x80 or byte == 0xFF:
                break
            field = get(byte & 0x7F)
            size += len(field[0]) + len(field[1]) + 32
            fields.append(field)
            at += 1
        most = self.max_header_list_size
        if size >= most or (at < len(data) and 0x20 <= data[at] < 0x40):
            return list(super().decode(data, raw=True))  # to be judged there: no table has changed yet
        if at < len(data):
            self.max_header_list_size = most - size
            try:
                fields += super().decode(data[at:], raw=True)
            finally:
                self.max_header_list_size = most
        return fields


class _Encoder:
    """Is given blocks that are encoded already."""

    def __init__(self) -> None:
        self.header_table_size = 0
        # The first block says that no table is used, so a client that wants a smaller one has nothing to wait for.
        self._first = b"\x20"
        self.block = b""

    def encode(self, headers: object, huffman: bool = True) -> bytes:
        block, self._first = self._first + self.block, b""
        return block


class Connection(h2.connection.H2Connection):
    """The server's half, with the preface of the client read.

    Args:
        limits: Bounds.
    """

    # How streams ended that are long over. A frame on one that is not remembered is a connection error, and right so.
    MAX_CLOSED_STREAMS = 1_024

    def __init__(self, limits: Limits) -> None:
        super().__init__(
            h2.config.H2Configuration(
                client_side=False,
                header_encoding=None,
                validate_inbound_headers=False,
                normalize_inbound_headers=False,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        # The number of streams is bounded by us: too many would end the connection.
        self.local_settings: h2.settings.Settings = h2.settings.Settings(
            client=False, initial_values={h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 2**31 - 1}
        )
        # Up to this a head is refused alone; beyond it the table is out of step, and with it the connection.
        self._fields = _Decoder(2 * limits.head_bytes)
        self._blocks = _Encoder()
        self.decoder: hpack.Decoder = self._fields
        self.encoder: hpack.Encoder = self._blocks  # type: ignore[assignment]
        self.receive_data(PREFACE)

    @property
    def fields(self) -> Fields:
        """Of the head, or the trailers, that came last."""
        return self._fields.fields

    def send_block(self, stream: int, block: bytes, end: bool) -> None:
        """Send an encoded head."""
        self._blocks.block = block
        # `h2` looks at the status only, to tell an answer from what comes before it.
        self.send_headers(stream, [(b":status", b"100")] if block == CONTINUE else [], end_stream=end)
