// Keeps segments as the host does: a base replaces, a delta comes on top, an incremental snapshot leaves what it does not write.

const ORDER = ["subtask", "shared", "item"];

/** The state of one subtask, as it would be restored. */
export class Checkpoint {
  constructor(stateVersion = 0, segments = new Map()) {
    this.stateVersion = stateVersion;
    this.segments = segments;
    /** How many bytes the last snapshot wrote. */
    this.lastSnapshotBytes = 0;
  }

  /** All chunks, in the order in which a restore reads them: key groups first, then the others. */
  chunks() {
    const rank = (place) => (typeof place === "number" ? place : 2 ** 20 + ORDER.indexOf(place));
    return [...this.segments.keys()].sort((a, b) => rank(a) - rank(b)).flatMap((place) => this.segments.get(place));
  }

  /** The bytes of all chunks. */
  get byteLength() {
    return this.chunks().reduce((sum, chunk) => sum + chunk.data.length, 0);
  }

  /** This checkpoint with what a snapshot wrote. */
  with(mode, written, stateVersion) {
    const next = new Checkpoint(stateVersion, mode === "full" ? new Map() : new Map(this.segments));
    const replaced = new Set();
    for (const chunk of written) {
      const { scope, kind } = chunk.source;
      const place = scope.tag === "key-group" ? scope.val : scope.tag;
      const first = kind === "base" && !replaced.has(place);
      const before = first ? [] : (next.segments.get(place) ?? []);
      if (kind === "base") replaced.add(place);
      next.segments.set(place, kind === "base" && chunk.data.length === 0 ? before : [...before, chunk]);
      next.lastSnapshotBytes += chunk.data.length;
    }
    for (const [place, chunks] of next.segments) {
      if (chunks.length === 0) next.segments.delete(place);
    }
    return next;
  }

  /** What a subtask gets of the checkpoints of all subtasks. */
  static merge(checkpoints, task) {
    const merged = new Checkpoint(checkpoints[0].stateVersion);
    checkpoints.forEach((checkpoint, number) => {
      for (const [place, chunks] of checkpoint.segments) {
        if (goesTo(task, place, number, checkpoints.length, merged.segments.has(place))) {
          merged.segments.set(place, [...(merged.segments.get(place) ?? []), ...chunks]);
        }
      }
    });
    return merged;
  }
}

function goesTo(task, place, number, count, there) {
  if (typeof place === "number") return place >= task.firstKeyGroup && place < task.endKeyGroup;
  if (place === "shared") return !there;
  if (place === "item") return number % task.parallelism === task.subtask;
  if (count !== task.parallelism) throw new Error(`state of scope "subtask" refuses to go from ${count} subtasks to ${task.parallelism}`);
  return number === task.subtask;
}
