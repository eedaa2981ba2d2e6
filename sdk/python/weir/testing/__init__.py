"""Runs an operator in a plain test, as the host would: no WebAssembly, no runtime.

>>> import weir
>>> from weir.testing import Harness, Row
>>> class Upper(weir.Operator):
...     @classmethod
...     def descriptor(cls):
...         return weir.Descriptor("upper", "1.0.0", inputs=[weir.Port("in")], outputs=[weir.Port("out")])
...     def process(self, port, batch, out):
...         out.forward(0, batch.with_values(value.upper() for value in batch.values))
>>> harness = Harness(Upper)
>>> harness.process(0, [Row("k", "some text", 5)])
>>> harness.take(0)
[Row(b'k', b'SOME TEXT', 5)]

What the host refuses raises `HostTrap` here: an emit outside of a call, a port that does not exist, a record without key on a keyed port, a
chunk that is too large. And a value of state that was changed without the collection being told is found at the next snapshot.
"""

from .checkpoint import Checkpoint
from .fake import HostTrap
from .harness import Harness, subtask, task
from .row import Row

__all__ = ["Checkpoint", "Harness", "HostTrap", "Row", "subtask", "task"]
