// The canonical ABI by hand: what the host offers, and lists as they lie in memory. Everything is unmanaged: nothing here or in tally.ts is
// left to a garbage collector.

@external("weir:plugin/output@0.1.0", "emit")
export declare function emit(params: usize): void;
@external("weir:plugin/output@0.1.0", "reject")
export declare function reject(row: u32, reason: usize, len: usize): void;
@external("weir:plugin/log@0.1.0", "write")
export declare function log(level: u32, message: usize, len: usize): void;
@external("weir:plugin/snapshots@0.1.0", "write")
export declare function write(scope: u32, group: u32, kind: u32, data: usize, len: usize): bool;
@external("weir:plugin/snapshots@0.1.0", "read")
export declare function read(to: usize): void;

/** What the host writes its lists into. */
export function cabi_realloc(old: usize, oldLen: usize, align: usize, len: usize): usize {
  if (len == 0) return align;
  return old ? heap.realloc(old, len) : heap.alloc(len);
}

/** Frees a list that the host wrote. */
export function release(at: usize, len: usize): void {
  if (len) heap.free(at);
}

/** Bytes that grow. */
@unmanaged
export class Bytes {
  at: usize = 0;
  len: usize = 0;
  capacity: usize = 0;

  room(len: usize): usize {
    if (this.len + len > this.capacity) {
      this.capacity = max(this.capacity * 2, this.len + len + 64);
      this.at = this.at ? heap.realloc(this.at, this.capacity) : heap.alloc(this.capacity);
    }
    const to = this.at + this.len;
    this.len += len;
    return to;
  }

  push(from: usize, len: usize): void {
    memory.copy(this.room(len), from, len);
  }

  u8(n: u8): void {
    store<u8>(this.room(1), n);
  }

  u32(n: u32): void {
    store<u32>(this.room(4), n);
  }

  u64(n: u64): void {
    store<u64>(this.room(8), n);
  }

  /** In decimal digits. */
  decimal(n: i64): void {
    if (n < 0) this.u8(45);
    let rest: u64 = n < 0 ? 0 - <u64>n : <u64>n;
    let digits = 1;
    for (let m = rest / 10; m; m /= 10) digits++;
    let to = this.room(digits) + digits;
    do {
      store<u8>(--to, 48 + <u8>(rest % 10));
      rest /= 10;
    } while (rest);
  }

  /** The bytes of a literal, which must be ASCII. */
  ascii(text: string): void {
    const to = this.room(text.length);
    for (let i = 0; i < text.length; i++) store<u8>(to + i, <u8>text.charCodeAt(i));
  }
}

/** Writes a pointer and a length. */
export function storeList(to: usize, at: usize, len: usize): void {
  store<usize>(to, at);
  store<usize>(to, len, 4);
}

/** A literal that stays: for `describe`. */
export function storeText(to: usize, text: string): void {
  const bytes = new Bytes();
  bytes.ascii(text);
  storeList(to, bytes.at, bytes.len);
}

/** Where results go: tag, then progress or a failure. */
const result = memory.data(16, 4);

export function done(more: bool = false): usize {
  store<u8>(result, 0);
  store<u8>(result, <u8>more, 4);
  return result;
}

const message = new Bytes();

export function invalid(text: string): usize {
  message.len = 0;
  message.ascii(text);
  store<u8>(result, 1);
  store<u8>(result, 1, 4);
  storeList(result + 8, message.at, message.len);
  return result;
}
