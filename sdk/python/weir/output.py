"""Where results go: valid within `process`, `advance`, `wake`, `finish` and `resume`, and handed to each of them."""

from __future__ import annotations

from . import _host
from .batch import Batch, BatchBuilder
from ._host import Columns

_BYTES_A_ROW = 16


class Output:
    """Takes what a call emits and rejects. All of it takes effect when the call returns; if the call fails, none of it does."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0
        """About how many bytes this call has emitted so far."""

    def emit(self, port: int, batch: Batch | BatchBuilder) -> None:
        """Hands a batch on through an output port. An empty one is dropped.

        Emit once for each batch that came in, not once for each record. What a call may emit is limited (64 MiB unless the node's limits say
        otherwise): with more to say, write the method as a generator, see `Operator`.
        """
        if len(batch):
            columns = _columns(batch)
            self.bytes += len(columns.keys) + len(columns.values) + len(columns.headers)
            self.bytes += _BYTES_A_ROW * len(columns.timestamps)
            _host.current.emit(port, columns)

    def forward(self, port: int, batch: Batch) -> None:
        """Hands the batch that came in on as it is, or with some columns replaced."""
        self.emit(port, batch)

    def reject(self, index: int, reason: str) -> None:
        """Puts a record of the batch that is being processed aside, with the reason, for people to look at: what happens to it is up to the
        pipeline. Only within `process`. Reasons are cut at 1,024 bytes."""
        _host.current.reject(index, reason)

    def reject_batch(self, batch: Batch | BatchBuilder, reason: str) -> None:
        """Puts records aside that came in an earlier call."""
        if len(batch):
            _host.current.reject_batch(_columns(batch), reason)


def _columns(batch: Batch | BatchBuilder) -> Columns:
    return (batch.build() if isinstance(batch, BatchBuilder) else batch).to_columns()
