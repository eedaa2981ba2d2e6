"""Hands on the ASCII letters of each value as capitals, all else as it was; values that are too long are put aside."""

import weir

VALUE_BYTES_MAX = 80


@weir.export
class Upper(weir.Operator):
    @classmethod
    def descriptor(cls) -> weir.Descriptor:
        return weir.Descriptor(
            name="upper",
            version="0.1.0",
            summary="The ASCII letters of each value as capitals.",
            inputs=[weir.Port("in", "records with values of at most 80 bytes")],
            outputs=[weir.Port("out", "the same records, in capitals")],
        )

    def process(self, port: int, batch: weir.Batch, out: weir.Output) -> None:
        values = []
        kept = []
        for row, value in enumerate(batch.values):
            if value is not None and len(value) > VALUE_BYTES_MAX:
                out.reject(row, f"the value has {len(value)} bytes, more than {VALUE_BYTES_MAX}")
            else:
                kept.append(row)
            values.append(value and value.upper())
        # Keys, times and headers go on as they came.
        out.forward(0, batch.with_values(values).select(kept))
