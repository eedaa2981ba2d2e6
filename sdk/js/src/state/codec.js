// What is done with encoded values: they are JSON.

/** In what JSON would change an encoded value, as a sentence; null if it comes back as it is. */
export function loss(encoded, at = "the value") {
  switch (typeof encoded) {
    case "string":
    case "boolean":
      return null;
    case "number":
      if (!Number.isFinite(encoded)) return `${at} is ${encoded}`;
      return Object.is(encoded, -0) ? `${at} is -0` : null;
    case "object":
      break;
    default:
      return `${at} is a ${typeof encoded}`;
  }
  if (encoded === null) return null;
  if (Array.isArray(encoded)) return first(Array.from(encoded, (item, i) => loss(item, `${at}[${i}]`)));
  const prototype = Object.getPrototypeOf(encoded);
  if (prototype !== Object.prototype && prototype !== null) return `${at} is an object of class ${encoded.constructor?.name}`;
  return first(Object.entries(encoded).map(([name, member]) => loss(member, `${at}.${name}`)));
}

function first(found) {
  return found.find((one) => one !== null) ?? null;
}
