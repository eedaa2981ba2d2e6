"""The bytes of state in a snapshot: chunks, each of which can be decoded alone.

```text
chunk    = format (u8, 1)  section*  check (u32: CRC-32 of all before it)
section  = operation (u8), length of name (u8), length of body (u32), name, body
body     = (length of key (u32), length of value (u32), key, value)*     ENTRIES: adds to the collection of that name
         | names of classes and fields                                   CLASSES: of the entries that follow in this chunk
         | bytes                                                         FRAGMENT, LAST: parts of ENTRIES that are too long for a chunk
```
"""

from __future__ import annotations

from binascii import crc32
from struct import Struct
from typing import Iterator

from .codec import corrupt

CHUNK_BYTES = 256 << 10
"""No chunk is longer."""

FORMAT = 1

ENTRIES = 0
CLASSES = 1
FRAGMENT = 2
LAST = 3

_SECTION = Struct("<BBI")
_ENTRY = Struct("<II")
_CHECK = Struct("<I")
_FRAME = 1 + _CHECK.size


class ChunkBuilder:
    """Collects the entries of one segment and cuts them into chunks. An entry goes to the section of the collection that was named last."""

    def __init__(self) -> None:
        self._sections: list[bytes] = []
        self._entries: list[bytes] = []
        self._bytes = _FRAME
        self._name = b""
        self._classes = b""

    def section(self, name: bytes, classes: bytes) -> None:
        """What comes next belongs to this collection."""
        self._close()
        self._name = name
        self._classes = _section(CLASSES, name, classes) if classes else b""

    def add(self, key: bytes, value: bytes) -> Iterator[bytes]:
        """Adds an entry. Gives the chunks that are complete now."""
        entry = b"%b%b%b" % (_ENTRY.pack(len(key), len(value)), key, value)
        head = _SECTION.size + len(self._name) + len(self._classes)
        if self._bytes + len(entry) + (0 if self._entries else head) > CHUNK_BYTES:
            yield from self.finish()
            if _FRAME + head + len(entry) > CHUNK_BYTES:
                yield from self._fragments(entry, CHUNK_BYTES - _FRAME - head)
                return
        if not self._entries:
            self._bytes += head
        self._entries.append(entry)
        self._bytes += len(entry)

    def finish(self) -> Iterator[bytes]:
        """Gives what is left."""
        self._close()
        if self._sections:
            yield _chunk(self._sections)
        self._sections = []
        self._bytes = _FRAME

    def _close(self) -> None:
        if self._entries:
            self._sections.append(self._classes)
            self._sections.append(_section(ENTRIES, self._name, b"".join(self._entries)))
            self._entries = []

    def _fragments(self, entry: bytes, most: int) -> Iterator[bytes]:
        for at in range(0, len(entry), most):
            operation = FRAGMENT if at + most < len(entry) else LAST
            yield _chunk([self._classes, _section(operation, self._name, entry[at : at + most])])


def _section(operation: int, name: bytes, body: bytes) -> bytes:
    return _SECTION.pack(operation, len(name), len(body)) + name + body


def _chunk(sections: list[bytes]) -> bytes:
    body = bytes((FORMAT,)) + b"".join(sections)
    return body + _CHECK.pack(crc32(body))


def read_sections(chunk: bytes) -> Iterator[tuple[int, str, bytes]]:
    """The sections of a chunk: operation, name and body."""
    if len(chunk) < _FRAME:
        raise corrupt(f"a chunk of {len(chunk)} bytes is cut short")
    if chunk[0] != FORMAT:
        raise corrupt(f"a chunk is in format {chunk[0]}, this plugin's SDK reads {FORMAT}: was it written by another SDK, or a newer one?")
    end = len(chunk) - _CHECK.size
    if crc32(chunk[:end]) != _CHECK.unpack_from(chunk, end)[0]:
        raise corrupt(f"the check of a chunk of {len(chunk)} bytes does not match: it was damaged or cut short")
    at = 1
    while at < end:
        if at + _SECTION.size > end:
            raise corrupt("a section is cut short")
        operation, name_length, length = _SECTION.unpack_from(chunk, at)
        at += _SECTION.size
        body = at + name_length
        if body + length > end:
            raise corrupt("a section is cut short")
        yield operation, chunk[at:body].decode("utf-8", "replace"), chunk[body : body + length]
        at = body + length


def read_entries(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The entries of a section: keys and values."""
    at, end = 0, len(body)
    while at < end:
        if at + _ENTRY.size > end:
            raise corrupt("an entry is cut short")
        key_length, value_length = _ENTRY.unpack_from(body, at)
        key = at + _ENTRY.size
        value = key + key_length
        at = value + value_length
        if at > end:
            raise corrupt("an entry is cut short")
        yield body[key:value], body[value:at]
