// JSON of records, which anybody may have written.

// JSON.parse recurses, and where WebAssembly's stack ends there is no exception but a trap.
const NESTING_MAX = 100;

/** Parses JSON. Throws a SyntaxError where it is none, or nested more than 100 deep. */
export function parseJson(text) {
  // Few records have so many brackets, and native functions count them.
  if (text.length > NESTING_MAX && count(text, "{") + count(text, "[") > NESTING_MAX && isTooDeep(text)) {
    throw new SyntaxError(`JSON that is nested more than ${NESTING_MAX} deep`);
  }
  return JSON.parse(text);
}

/** How often it has a bracket, as far as that matters. */
function count(text, bracket) {
  return text.split(bracket, NESTING_MAX + 2).length - 1;
}

function isTooDeep(text) {
  // Without escapes, every other part between two quotes is a string.
  const parts = text.replaceAll("\\\\", "").replaceAll('\\"', "").split('"');
  const brackets = /[[\]{}]/g;
  let depth = 0;
  for (let i = 0; i < parts.length; i += 2) {
    const part = parts[i];
    while (brackets.test(part)) {
      const bracket = part[brackets.lastIndex - 1];
      depth += bracket === "{" || bracket === "[" ? 1 : -1;
      if (depth > NESTING_MAX) return true;
    }
  }
  return false;
}
