// Runs an operator in plain `node --test`, as the host would: no WebAssembly, no runtime. What the host would trap on throws here.

import type { Level, Operator, TaskInfo, Timestamp } from "./index.js";

/** A record as tests write and compare it. What is left out, a record does not have. */
export interface Row {
  time?: Timestamp;
  key?: string | Uint8Array;
  value?: string | Uint8Array;
  headers?: [name: string, value: string | Uint8Array][];
}

/** A record with a key, a value and an event time, each of which may be left out. */
export function row(key?: string | Uint8Array | null, value?: string | Uint8Array | null, time?: Timestamp | null): Row;

/** One of several subtasks, with its part of 128 key groups; one that has all of them if nothing is said. */
export function task(subtask?: number, parallelism?: number): TaskInfo;

/** A trap: what ends an instance. */
export class Trap extends Error {}

/** The state of one subtask, as it would be restored. */
export class Checkpoint {
  readonly stateVersion: number;
  /** The bytes of all chunks. */
  readonly byteLength: number;
  /** How many bytes the last snapshot wrote. */
  readonly lastSnapshotBytes: number;
  /** All chunks, in the order in which a restore reads them. */
  chunks(): { source: { scope: { tag: string; val?: number }; kind: "base" | "delta" }; origin: number; data: Uint8Array }[];
}

export interface Options<Config> {
  config?: Config;
  task?: TaskInfo;
}

/** An operator with a host around it. */
export class Harness<O extends Operator<any>> {
  /** Opens an operator. Throws what its constructor throws, and a `Failure` for a configuration that its schema refuses. */
  constructor(Type: new (config: any, task: TaskInfo) => O, options?: Options<O["config"]>);
  /** Opens an operator and lets it take over a checkpoint, or its part of the checkpoints of all subtasks of an earlier run. */
  static restore<O extends Operator<any>>(
    Type: new (config: any, task: TaskInfo) => O,
    checkpoints: Checkpoint | Checkpoint[],
    options?: Options<O["config"]>,
  ): Harness<O>;
  /** The operator itself, for looking into it. */
  readonly operator: O;
  readonly task: TaskInfo;
  /** Hands a batch of rows to an input port, and calls `resume` until the operator has no more to say. */
  process(port: number, rows: Row[]): void;
  /** Event time moves. */
  advance(watermark: Timestamp): void;
  /** Processing time moves; if it comes to what the operator asked for, it is woken. */
  setTime(now: Timestamp): void;
  /** When the operator has asked to be woken; null if it has not. */
  readonly wakeTime: Timestamp | null;
  /** An input port ends. */
  finish(port: number): void;
  /** Takes what was emitted on a port so far. Bytes that are UTF-8 are shown as text. */
  take(port: number): Row[];
  /** Takes the records that were rejected so far, each with the reason. */
  takeRejected(): [row: Row, reason: string][];
  /** Takes what was logged so far. */
  takeLog(): [level: Level, message: string][];
  /** A counter or gauge, or the last observation of a histogram. */
  metric(name: string): number | undefined;
  /** Takes a whole snapshot at once, incremental where that is possible, and returns the checkpoint after it. */
  snapshot(mode?: "full" | "incremental"): Checkpoint;
  /** Begins a snapshot that is taken in steps. One that is open is given up; then, and the first time, this one is full. */
  beginSnapshot(mode?: "full" | "incremental"): void;
  /** One step: after `chunks` chunks the operator is asked to stop. */
  snapshotStep(chunks?: number): "done" | "more";
  /** The last snapshot that was done, as it would be restored. Throws if there is none. */
  readonly checkpoint: Checkpoint;
}
