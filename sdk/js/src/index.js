// Write weir operators in JavaScript and TypeScript. `index.d.ts` says what each thing is; `../README.md` begins with a whole operator.

export { Batch, Record } from "./batch.js";
export { BatchBuilder } from "./builder.js";
export { bytesOf, fromBinary, textOf, toBinary } from "./bytes.js";
export { Column, ColumnBuilder } from "./column.js";
export { Failure } from "./failure.js";
export { keyGroup, keyHash } from "./hash.js";
export { log } from "./log.js";
export { metrics } from "./metrics.js";
export { Operator } from "./operator.js";
export { Output } from "./output.js";
export { SnapshotReader, SnapshotWriter } from "./snapshot.js";
export { Cell } from "./state/cell.js";
export { ChunkReader } from "./state/chunk.js";
export * as codecs from "./state/codecs.js";
export { Key } from "./state/key.js";
export { KeyedState } from "./state/keyed.js";
export { Segments } from "./state/segments.js";
export { EventTimers } from "./state/timers.js";
export { END_OF_TIME, NO_TIME, now, wakeAt } from "./time.js";
