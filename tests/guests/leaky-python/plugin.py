"""Numbers the records of each key, and hands more to the host than it has to: the toolchain leaks what a call hands over."""

from collections.abc import Mapping
from typing import Any

import weir
from weir.state import KeyedState

PADDING = bytes(300)


@weir.export
class Leaky(weir.Stateful):
    @classmethod
    def descriptor(cls) -> weir.Descriptor:
        return weir.Descriptor(
            name="leaky-python",
            version="0.1.0",
            summary="Numbers the records of each key.",
            inputs=[weir.Port("in", "what is numbered", keyed=True)],
            outputs=[weir.Port("out", "KEY NUMBER, with a header that is padding", keyed=True)],
            state=weir.StateKind.KEYED,
            state_version=1,
        )

    def __init__(self, config: Mapping[str, Any], task: weir.TaskInfo) -> None:
        self.numbers = KeyedState("numbers", task)

    def state(self) -> list[weir.state.Part]:
        return [self.numbers]

    def process(self, port: int, batch: weir.Batch, out: weir.Output) -> None:
        numbered = weir.BatchBuilder()
        for row, (time, key, group) in enumerate(zip(batch.timestamps, batch.keys, batch.groups)):
            if key is None:
                out.reject(row, "no key")
                continue
            number = (self.numbers.get_at(group, key) or 0) + 1
            self.numbers.put_at(group, key, number)
            numbered.push(time, key, b"%b %d" % (key, number))
            numbered.header("padding", PADDING)
        out.emit(0, numbered)
