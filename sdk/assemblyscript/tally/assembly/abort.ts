// What AssemblyScript calls for `throw`, and when something that it checks does not hold: the reason has to reach the log before the trap. It allocates
// nothing and uses no variable, since it may be called while the module starts.

import { log } from "./abi";

const MESSAGE_MAX = 250;

/** Appends ASCII to a text of at most MESSAGE_MAX bytes; its new length. */
function append(to: usize, len: i32, text: string): i32 {
  for (let i = 0; i < text.length && len < MESSAGE_MAX; i++) store<u8>(to + len++, <u8>text.charCodeAt(i));
  return len;
}

export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  const text = memory.data(MESSAGE_MAX);
  let len = 0;
  if (message) len = append(text, len, message);
  len = append(text, len, " (");
  if (file) len = append(text, len, file);
  len = append(text, len, ":");
  let place: u32 = 1;
  while (line / place >= 10) place *= 10;
  for (; place && len < MESSAGE_MAX; place /= 10) store<u8>(text + len++, 48 + <u8>((line / place) % 10));
  len = append(text, len, ")");
  log(4, text, len);
  unreachable();
}
