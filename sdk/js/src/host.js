// The functions that the host offers. In a component they are its imports; in a test they are those of the harness. Everything else
// in the SDK goes through here, so that an operator runs unchanged in both.

let current = null;

/** Makes `host` the one that is called; returns the one before. */
export function install(host) {
  const before = current;
  current = host;
  return before;
}

/** The host, for a call of the function that is named. */
export function host(name) {
  if (current === null) {
    throw new Error(`${name} needs a host: call it from a method of an operator, not while its module is loaded`);
  }
  return current;
}

/** Whether there is one. */
export function hasHost() {
  return current !== null;
}
