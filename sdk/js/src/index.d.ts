// The types of the SDK. What each thing is for stands here; how it works stands in the module of its name.

/** A time in microseconds since 1970-01-01T00:00:00Z, leap seconds not counted. Exact from the year 1684 to 2255. */
export type Timestamp = number;

/** The event time of a record that has none, as it stands in a column; `record.time` is null then. */
export const NO_TIME: Timestamp;

/** The last watermark of a stream: nothing will come any more. */
export const END_OF_TIME: Timestamp;

/** The time at which the host began this call: it stands still within a call, and is the same when the call is made again. */
export function now(): Timestamp;

/** Asks for a call of `wake` at that time, or at once if it has passed. The host keeps one such time, the earliest asked for. */
export function wakeAt(at: Timestamp): void;

// ---------------------------------------------------------------------------------------------------------------- operators

/** An input or an output. Its number is its place in the list, from 0. */
export interface Port {
  /** 1 to 63 lower-case letters, digits and hyphens, the first not a hyphen. */
  name: string;
  /** One line for people. */
  summary?: string;
  /** Of an input: records come partitioned by key. Of an output: every record has a key. */
  keyed?: boolean;
}

/** What a plugin says about itself. */
export interface Descriptor {
  /** 1 to 63 lower-case letters, digits and hyphens, the first not a hyphen. */
  name: string;
  /** A semantic version. */
  version: string;
  /** One line for people. */
  summary?: string;
  inputs: Port[];
  outputs?: Port[];
  /** What kind of state it has: none, unless something else is said. */
  state?: "stateless" | "whole" | "keyed";
  /** Version of the format of the state: 1, unless something else is said. Raise it when that changes. */
  stateVersion?: number;
  /** The oldest format that `restore` still reads. */
  oldestStateVersion?: number;
  /** A JSON Schema (2020-12). The configuration is checked against it before the operator is made. */
  configSchema?: object;
  /** Anything else. */
  attributes?: { [name: string]: string };
}

/** Which part of which job an instance works on. */
export interface TaskInfo {
  readonly job: string;
  readonly node: string;
  /** Number of this subtask, from 0. */
  readonly subtask: number;
  readonly parallelism: number;
  readonly keyGroups: number;
  /** This subtask's key groups: from this one ... */
  readonly firstKeyGroup: number;
  /** ... up to, not including, this one. */
  readonly endKeyGroup: number;
  /** For whatever needs randomness, to the 53 bits of a number. The same for this subtask in every run of the job. */
  readonly seed: number;
  readonly attributes: readonly { readonly name: string; readonly value: string }[];
}

/** What a call returns: nothing or "done" when it has finished; "more", or a generator that yields, when the host is to pass on what there is first. */
export type Progress = void | "done" | "more" | Iterator<unknown, unknown, unknown>;

/** Which snapshot a call of `snapshot` is part of. */
export interface Cut {
  /** The epoch that ends with this cut. Another one than in the last call begins a new snapshot. */
  readonly epoch: number;
  /** Everything, or what has changed. */
  readonly mode: "full" | "incremental";
}

/**
 * The base of all operators; the module of an operator has it as its default export.
 *
 * A call is a transaction: what it emits takes effect when it returns. The host makes one call at a time. The same calls must lead to the same
 * results: take time from `now()` and chance from `task.seed`. An error that is no `Failure` is logged and ends the instance; the host starts a
 * new one from the last checkpoint.
 */
export abstract class Operator<Config = {}> {
  /** What this plugin is. Every operator has its own. */
  static descriptor: Descriptor;

  /** Prepares for work. The configuration satisfies the schema of the descriptor. Throw `Failure.invalid` where it makes no sense. */
  constructor(config: Config, task: TaskInfo);

  readonly config: Config;
  readonly task: TaskInfo;

  /** The state: collections that are made here are in every checkpoint. */
  readonly segments: Segments;

  /** Takes a batch that came in on an input port. A record that cannot be processed is not a failure: `out.reject` it and go on. */
  abstract process(port: number, batch: Batch, out: Output): Progress;

  /**
   * Event time has moved: all records at or before `watermark` have come, but for late ones. Emit what was waiting for that. After a restore the
   * first watermark may be one that the state has already seen.
   */
  advance(watermark: Timestamp, out: Output): Progress;

  /** Processing time has come to what `wakeAt` asked for, or later; it may also be called when nothing is due. */
  wake(out: Output): Progress;

  /** An input port has ended. Not called when a job is stopped before its end. */
  finish(port: number, out: Output): Progress;

  /** Goes on with a call that returned "more". Not called for a generator, which goes on by itself. */
  resume(out: Output): Progress;

  /** Writes the state as it is at the first call with this epoch: the collections of `segments`, unless an operator has its own. */
  snapshot(cut: Cut, writer: SnapshotWriter): void | "done" | "more";

  /** Takes over state, on a fresh operator. `stateVersion` is that of the plugin which wrote it. */
  restore(stateVersion: number, reader: SnapshotReader): void;
}

/** Why a call failed, and what the host is to do about it. Throw it from any method of an operator. */
export class Failure extends Error {
  constructor(kind: "retry" | "invalid" | "fatal", message: string);
  readonly kind: "retry" | "invalid" | "fatal";
  /** The same call may be made again later: nothing has changed in the operator. */
  static retry(message: string): Failure;
  /** The configuration or the state is not acceptable: a person has to change something. */
  static invalid(message: string): Failure;
  /** Start over from the last checkpoint. */
  static fatal(message: string): Failure;
}

// ------------------------------------------------------------------------------------------------------------------ batches

/** A batch of records in columns. Only for the call that it was handed to: it must not be kept. */
export class Batch implements Iterable<Record> {
  constructor(timestamps: readonly Timestamp[], keys?: Column, values?: Column, headers?: Column, hashes?: readonly number[]);
  /** The number of records; at least one in a batch that was handed in. */
  readonly length: number;
  /** The bytes of keys, values and headers. */
  readonly byteLength: number;
  /** The event time of each record, `NO_TIME` where it has none. */
  readonly timestamps: readonly Timestamp[];
  /** The hash of each key on a keyed input, otherwise empty, as the bindings round it: for nothing but key groups. */
  readonly hashes: readonly number[];
  readonly keys: Column;
  readonly values: Column;
  readonly headers: Column;
  /** One record. */
  record(index: number): Record;
  /** All records, in order. */
  [Symbol.iterator](): Iterator<Record>;
  /** The same records with other values: an operator that gives one record for each hands all else on for free. */
  withValues(values: Column | readonly Bytes[]): Batch;
  /** The same records with other keys. */
  withKeys(keys: Column | readonly Bytes[]): Batch;
  /** The same records with other event times. */
  withTimestamps(timestamps: readonly Timestamp[]): Batch;
}

/** One record of a batch. */
export class Record {
  constructor(batch: Batch, index: number);
  readonly batch: Batch;
  /** Its number in the batch. */
  readonly index: number;
  /** Its event time, null if it has none. */
  readonly time: Timestamp | null;
  /** Its key in bytes, a view that must not be changed; null if it has none. An empty key is a key. */
  readonly key: Uint8Array | null;
  /** Its key as text. */
  readonly keyText: string | null;
  /** Its key as a binary string, with a character for each byte: the cheapest form, and what state goes by. */
  readonly keyBinary: string | null;
  /** Its value in bytes, a view that must not be changed; null for a tombstone: what was known under its key is gone. */
  readonly value: Uint8Array | null;
  /** Its value as text. */
  readonly valueText: string | null;
  /** Its value as a binary string. */
  readonly valueBinary: string | null;
  /** How many bytes its value has; 0 for a tombstone. */
  readonly valueLength: number;
  /** Its value, parsed as JSON; null for a tombstone. Throws a SyntaxError where it is none, or nested more than 100 deep. */
  json(): unknown;
  /** Its headers in order; a name may come more than once. */
  readonly headers: [name: string, value: Uint8Array][];
  /** The first header of that name. */
  header(name: string): Uint8Array | null;
  /** All headers as they are encoded, as a binary string. */
  readonly headersBinary: string;
  /** The 16 bits of the hash of its key that choose its key group. */
  readonly groupBits: number;
}

/** A row of a column that is written: a text, which becomes UTF-8, bytes, or none. */
export type Bytes = string | Uint8Array | null;

/** A column of optional byte strings. Its parts hold to the rules of `wit/types.wit` and are not to be changed. */
export class Column {
  constructor(offsets?: ArrayLike<number>, bytes?: Uint8Array, nulls?: Uint8Array);
  static from(rows: Iterable<Bytes>): Column;
  readonly offsets: ArrayLike<number>;
  readonly bytes: Uint8Array;
  readonly nulls: Uint8Array;
  /** Whether no row has a value. */
  readonly isAbsent: boolean;
  /** Whether every row has a value. */
  readonly isFull: boolean;
  isNull(row: number): boolean;
  /** The bytes of a row, a view. */
  get(row: number): Uint8Array | null;
  /** How many bytes a row has; 0 where it has none. */
  byteLength(row: number): number;
  /** A row as a binary string. */
  binary(row: number): string | null;
  /** All rows as binary strings. */
  binaries(): (string | null)[];
  /** A row as text, decoded from UTF-8. */
  text(row: number): string | null;
  /** Why it cannot have that many rows; null if it can. */
  fault(rows: number): string | null;
}

/** Makes a column, row by row. */
export class ColumnBuilder {
  readonly length: number;
  push(value: Bytes | undefined): void;
  /** Adds a row of which a binary string is given. */
  pushBinary(binary: string): void;
  pushNull(): void;
  column(): Column;
  clear(): void;
}

/** Makes a batch to emit, record by record. */
export class BatchBuilder {
  /** The number of records. */
  readonly length: number;
  /** About how many bytes its keys, values and headers have. */
  readonly byteLength: number;
  /** Adds a record. */
  push(time: Timestamp | null | undefined, key: KeyLike | null | undefined, value: Bytes | undefined): void;
  /** Adds a record whose value is JSON. */
  pushJson(time: Timestamp | null | undefined, key: KeyLike | null | undefined, value: unknown): void;
  /** Adds a record whose value is given as a binary string. */
  pushBinary(time: Timestamp | null | undefined, key: KeyLike | null | undefined, value: string): void;
  /** Adds a record that came in, as it is, headers included. */
  pushRecord(record: Record): void;
  /** Adds a header to the record that was added last. */
  header(name: string, value: string | Uint8Array): void;
  /** The batch so far. */
  batch(): Batch;
  /** Empties it. */
  clear(): void;
}

/** Takes what a call emits and rejects. All of it takes effect when the call returns; if it throws, none of it does. */
export class Output {
  /** Hands a batch on through an output port; an empty one is dropped. Emit once for each batch that came in, not once for each record. */
  emit(port: number, records: BatchBuilder | Batch): void;
  /** Hands the batch that came in on as it is, or with some columns replaced. */
  forward(port: number, batch: Batch): void;
  /** Puts a record of the batch that is being processed aside, with the reason, for people to look at. Only within `process`. */
  reject(record: Record | number, reason: string): void;
  /** Puts records aside that came in an earlier call. */
  rejectBatch(records: BatchBuilder | Batch, reason: string): void;
  /** Whether this call has emitted so much, 16 MiB, that it is time to let it go: `yield`, or return "more". */
  readonly isFull: boolean;
}

/** The UTF-8 of a text. */
export function bytesOf(text: string): Uint8Array;
/** The text whose UTF-8 these bytes are; what is no UTF-8 becomes U+FFFD. */
export function textOf(bytes: Uint8Array): string;
/** Bytes as a binary string, with a character for each byte. */
export function toBinary(bytes: Uint8Array): string;
/** The bytes of a binary string. */
export function fromBinary(binary: string): Uint8Array;

// -------------------------------------------------------------------------------------------------------------------- state

/** What a key may be given as: a record (its key), a key that the state gave, a text or bytes. */
export type KeyLike = Record | Key | string | Uint8Array;

/** A key that the state has given back. */
export class Key {
  constructor(keyBinary: string);
  /** Its bytes as a binary string. */
  readonly keyBinary: string;
  readonly bytes: Uint8Array;
  readonly text: string;
  readonly groupBits: number;
  toString(): string;
}

/** How a value becomes JSON and comes back. */
export interface Codec<V> {
  encode(value: V): any;
  decode(encoded: any): V;
}

/** The codecs that come with the SDK. Without one, a value is what JSON can hold. */
export namespace codecs {
  const json: Codec<any>;
  const bytes: Codec<Uint8Array>;
  const bigint: Codec<bigint>;
  const map: Codec<Map<any, any>>;
  const set: Codec<Set<any>>;
}

/** The collections of an operator: `this.segments`. Make them when the operator is made, each under a name that never changes. */
export class Segments {
  constructor(task: TaskInfo);
  /** A value for each key. */
  keyed<V>(name: string, options?: { initial?: () => V; codec?: Codec<V> }): KeyedState<V>;
  /** Timers in event time. */
  timers(name: string): EventTimers;
  /** A value of this subtask alone: a job that has one refuses another parallelism. */
  subtask<V>(name: string, initial: V, options?: { codec?: Codec<V> }): Cell<V>;
  /** A value that is the same in all subtasks. */
  shared<V>(name: string, initial: V, options?: { codec?: Codec<V> }): Cell<V>;
  /** Makes the next snapshot write everything: after `restore` has read an older state version. */
  rewrite(): void;
  /** One step of a snapshot. */
  snapshot(cut: Cut, writer: SnapshotWriter): "done" | "more";
  /** Reads all that is left to read. */
  restore(reader: SnapshotReader): void;
  /** Reads one chunk, for operators that also write segments of their own. */
  restoreChunk(chunk: Chunk, chunks: ChunkReader): void;
  /** All collections. */
  readonly parts: (KeyedState<unknown> | EventTimers | Cell<unknown>)[];
}

/**
 * A value for each key of this subtask's key groups. `value`, `set` and `delete` count as a change, `get` does not: what that gives must not be
 * changed, and what `value` gives only until the call of the operator ends.
 */
export class KeyedState<V> implements Iterable<[Key, V]> {
  private constructor();
  readonly name: string;
  /** The number of keys. */
  readonly size: number;
  has(key: KeyLike): boolean;
  /** The value of a key, not to be changed; undefined if it has none. */
  get(key: KeyLike): V | undefined;
  /** The value of a key, to be changed; one that has none gets what `initial` makes. */
  value(key: KeyLike): V;
  /** Gives a key a value. */
  set(key: KeyLike, value: V): void;
  /** Removes a key; true if it was there. */
  delete(key: KeyLike): boolean;
  /** All keys with their values, not to be changed: by key group, then by the bytes of the key. */
  entries(): IterableIterator<[Key, V]>;
  [Symbol.iterator](): Iterator<[Key, V]>;
}

/** A timer that is due. */
export interface Timer {
  readonly time: Timestamp;
  readonly key: Key;
}

/** A set of pairs of time and key, sorted by time, then by the bytes of the key; fired from `advance`. */
export class EventTimers {
  private constructor();
  readonly name: string;
  /** The number of timers. */
  readonly size: number;
  /** The earliest time; undefined if no timer is set. */
  readonly next: Timestamp | undefined;
  /** Sets a timer; false if it is set already. */
  set(time: Timestamp, key: KeyLike): boolean;
  has(time: Timestamp, key: KeyLike): boolean;
  /** Takes a timer back; false if it was not set. */
  delete(time: Timestamp, key: KeyLike): boolean;
  /** Takes the timers up to `watermark` one by one. Whoever leaves the loop early finds the rest the next time. */
  due(watermark: Timestamp): IterableIterator<Timer>;
}

/** One value that belongs to no key. */
export class Cell<V> {
  private constructor();
  readonly name: string;
  readonly scope: "subtask" | "shared";
  /** The value, not to be changed. */
  get(): V;
  set(value: V): void;
}

/** Where a segment belongs: a key group by its number, or another scope. */
export type Scope = number | "subtask" | "shared" | "item";

/** A piece of a segment. */
export interface Chunk {
  readonly scope: Scope;
  readonly kind: "base" | "delta";
  /** The number of the subtask that wrote it. */
  readonly origin: number;
  readonly bytes: Uint8Array;
}

/** Takes the chunks of a snapshot. */
export class SnapshotWriter {
  /** Adds a chunk to a segment. False asks to return "more" soon: the stream is waiting. */
  write(scope: Scope, kind: "base" | "delta", bytes: Uint8Array): boolean;
}

/** Gives back the chunks of a snapshot. All have to be read. */
export class SnapshotReader implements Iterable<Chunk> {
  [Symbol.iterator](): Iterator<Chunk>;
}

/** Joins the chunks that `Segments` has written in parts: one for a whole restore. */
export class ChunkReader {
  read(bytes: Uint8Array): unknown[][];
  end(): void;
}

/** The hash of a key: XXH3-64. Slow with QuickJS; on a keyed input the host has done it. */
export function keyHash(bytes: Uint8Array): bigint;
/** The key group of a hash. */
export function keyGroup(hash: bigint, keyGroups: number): number;

// ------------------------------------------------------------------------------------------------------- messages and numbers

export type Level = "trace" | "debug" | "info" | "warn" | "error";

/** Messages for people. What is printed with `console` goes to the same log. */
export const log: {
  trace(...what: unknown[]): void;
  debug(...what: unknown[]): void;
  info(...what: unknown[]): void;
  warn(...what: unknown[]): void;
  error(...what: unknown[]): void;
  /** Whether a message of this level would be kept. */
  enabled(level: Level): boolean;
};

/** Numbers for people. Names are 1 to 64 lower-case letters, digits and underscores. Call once a batch, not once a record. */
export const metrics: {
  /** Adds to a counter, 1 unless something else is said. */
  count(name: string, delta?: number): void;
  gauge(name: string, value: number): void;
  observe(name: string, value: number): void;
};
