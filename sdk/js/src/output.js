// Where results go: handed to `process`, `advance`, `wake`, `finish` and `resume`.

import { Batch } from "./batch.js";
import { BatchBuilder } from "./builder.js";
import { host } from "./host.js";

/** What a call may emit without the host's asking for more, a quarter of the limit that holds unless a node sets its own. */
const CALL_BYTES = 16 << 20;

/** Takes what a call emits and rejects. All of it takes effect when the call returns; if it throws, none of it does. */
export class Output {
  #bytes = 0;

  /**
   * Hands a batch on through an output port. One without records is dropped. Traps if there is no such port, if a column is longer than the
   * contract allows, or if the port is keyed and a record has no key.
   *
   * Emit once for each batch that came in, not once for each record.
   */
  emit(port, records) {
    const batch = records instanceof BatchBuilder ? records.batch() : records;
    if (!(batch instanceof Batch)) throw new TypeError("emit takes a BatchBuilder or a Batch");
    if (batch.length === 0) return;
    this.#bytes += batch.byteLength;
    host("emit").emit(port, batch.toWit());
  }

  /** Hands the batch that came in on as it is, or with some columns replaced. */
  forward(port, batch) {
    this.emit(port, batch);
  }

  /** Puts a record of the batch that is being processed aside, with the reason, for people to look at. Only within `process`. */
  reject(record, reason) {
    host("reject").reject(typeof record === "number" ? record : record.index, String(reason));
  }

  /** Puts records aside that came in an earlier call. */
  rejectBatch(records, reason) {
    const batch = records instanceof BatchBuilder ? records.batch() : records;
    if (batch.length > 0) host("rejectBatch").rejectBatch(batch.toWit(), String(reason));
  }

  /**
   * Whether this call has emitted so much that it is time to let it go: `yield` in a generator, or return "more". What a call may emit is
   * limited, to 64 MiB unless the node sets another limit.
   */
  get isFull() {
    return this.#bytes >= CALL_BYTES;
  }

  /** A new call begins. */
  begin() {
    this.#bytes = 0;
  }
}
