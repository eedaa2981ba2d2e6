// Where `snapshot` writes state to and `restore` reads it from: segments, made of chunks.

import { host } from "./host.js";

/** Takes the chunks of a snapshot. */
export class SnapshotWriter {
  /**
   * Adds a chunk to a segment. It comes back as it is: make it something that can be decoded alone, of about 256 KiB and at most 1 MiB. The scope
   * is a number, for a key group, or "subtask", "shared" or "item".
   *
   * The first base chunk in a snapshot replaces the segment, further ones add to it; an empty base clears it; a delta comes on top. False asks to return
   * "more" soon: the stream is waiting.
   */
  write(scope, kind, bytes) {
    return host("snapshot").write({ scope: typeof scope === "number" ? { tag: "key-group", val: scope } : { tag: scope }, kind }, bytes);
  }
}

/** Gives back the chunks of a snapshot: by ascending key group, the other segments after them. All have to be read. */
export class SnapshotReader {
  *[Symbol.iterator]() {
    for (;;) {
      const chunk = host("restore").read();
      if (chunk === null || chunk === undefined) return;
      const { scope, kind } = chunk.source;
      yield { scope: scope.tag === "key-group" ? scope.val : scope.tag, kind, origin: chunk.origin, bytes: chunk.data };
    }
  }
}
