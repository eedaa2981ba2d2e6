// Checks a configuration against the JSON Schema of the descriptor, so that a typing error does not go unnoticed.
//
// It knows the keywords that say what a value is: type, const, enum, minimum, maximum, exclusiveMinimum, exclusiveMaximum, minLength, maxLength,
// pattern, items, minItems, maxItems, properties, required, additionalProperties. Others are for people and their tools.

/** What is wrong with a value, a sentence each; none if nothing is. */
export function faults(value, schema, at = "") {
  if (schema === true || schema === undefined) return [];
  if (schema === false) return [`${place(at)} is not known here`];
  const found = [];
  const say = (what) => found.push(`${place(at)} is ${JSON.stringify(value)}: ${what}`);
  const types = schema.type === undefined ? [] : [schema.type].flat();
  if (types.length > 0 && !types.some((type) => isOf(value, type))) {
    say(`it must be of type ${types.join(" or ")}`);
    return found;
  }
  if (schema.const !== undefined && !same(value, schema.const)) say(`it must be ${JSON.stringify(schema.const)}`);
  if (schema.enum !== undefined && !schema.enum.some((one) => same(value, one))) {
    say(`it must be one of ${schema.enum.map((one) => JSON.stringify(one)).join(", ")}`);
  }
  if (typeof value === "number") {
    if (value < schema.minimum) say(`it must be at least ${schema.minimum}`);
    if (value > schema.maximum) say(`it must be at most ${schema.maximum}`);
    if (value <= schema.exclusiveMinimum) say(`it must be more than ${schema.exclusiveMinimum}`);
    if (value >= schema.exclusiveMaximum) say(`it must be less than ${schema.exclusiveMaximum}`);
  } else if (typeof value === "string") {
    if ([...value].length < schema.minLength) say(`it must have at least ${schema.minLength} characters`);
    if ([...value].length > schema.maxLength) say(`it must have at most ${schema.maxLength} characters`);
    if (schema.pattern !== undefined && !new RegExp(schema.pattern, "u").test(value)) say(`it must match ${schema.pattern}`);
  } else if (Array.isArray(value)) {
    if (value.length < schema.minItems) say(`it must have at least ${schema.minItems} items`);
    if (value.length > schema.maxItems) say(`it must have at most ${schema.maxItems} items`);
    value.forEach((item, i) => found.push(...faults(item, schema.items, `${at}/${i}`)));
  } else if (typeof value === "object" && value !== null) {
    const properties = schema.properties ?? {};
    for (const name of schema.required ?? []) {
      if (!Object.hasOwn(value, name)) found.push(`${place(`${at}/${name}`)} is missing`);
    }
    for (const [name, member] of Object.entries(value)) {
      const own = Object.hasOwn(properties, name);
      if (!own && schema.additionalProperties === false) {
        const known = Object.keys(properties).join(", ") || "none";
        found.push(`${place(`${at}/${name}`)} is not known; what may stand there: ${known}`);
      } else {
        found.push(...faults(member, own ? properties[name] : schema.additionalProperties, `${at}/${name}`));
      }
    }
  }
  return found;
}

function place(at) {
  return at === "" ? "the configuration" : at;
}

function isOf(value, type) {
  switch (type) {
    case "null":
      return value === null;
    case "array":
      return Array.isArray(value);
    case "object":
      return typeof value === "object" && value !== null && !Array.isArray(value);
    case "integer":
      return Number.isInteger(value);
    default:
      return typeof value === type;
  }
}

function same(a, b) {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null || Array.isArray(a) !== Array.isArray(b)) return false;
  const [names, others] = [Object.keys(a), Object.keys(b)];
  return names.length === others.length && names.every((name) => Object.hasOwn(b, name) && same(a[name], b[name]));
}
