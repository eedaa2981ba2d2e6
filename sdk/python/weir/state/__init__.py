"""State that is in every checkpoint: collections that know what has changed, and are written and read for the operator (`Stateful.state`).

- `KeyedState`: a value for each key.
- `EventTimers`: times in event time, each with a key.
- `SubtaskValue`, `SharedValue`: one value for the subtask, or the same in all subtasks.

What they hold is made of the values that `weir.state.codec` names. **Incremental.** A snapshot writes the key groups that have changed since the last
one. **Stepwise.** When the host asks to stop, the stream goes on, and later steps still write the state of the cut. **By key group.** So state
follows its keys when the parallelism changes. **In an order of its own.** Iteration and snapshots depend on what a collection holds
alone: one that grew and one that was restored agree, to the byte.
"""

from .keyed import KeyedState
from .part import Keyed, Part
from .segments import Segments
from .timers import EventTimers, Timer
from .values import SharedValue, SubtaskValue

__all__ = ["EventTimers", "Keyed", "KeyedState", "Part", "Segments", "SharedValue", "SubtaskValue", "Timer"]
