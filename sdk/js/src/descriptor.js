// What a plugin says about itself: written as an object, checked here, so that a mistake is found in a test and not by the host.

const NAME = /^[a-z0-9][a-z0-9-]{0,62}$/;
const SEMVER = /^(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$/;
const PORTS_MAX = 64;
const STATES = ["stateless", "whole", "keyed"];
const MEMBERS = [
  "name", "version", "summary", "inputs", "outputs", "state", "stateVersion", "oldestStateVersion", "configSchema", "attributes",
];

/** The descriptor as the bindings take it. Throws where it breaks a rule of `wit/types.wit`. */
export function toWit(descriptor) {
  if (typeof descriptor !== "object" || descriptor === null) {
    throw new TypeError("an operator has a descriptor: write `static descriptor = { name, version, inputs, outputs, … }` in its class");
  }
  for (const member of Object.keys(descriptor)) {
    if (!MEMBERS.includes(member)) fail(`${member} is not known; what may stand there: ${MEMBERS.join(", ")}`);
  }
  const { name, version, summary = "", inputs = [], outputs = [], configSchema, attributes = {} } = descriptor;
  if (typeof name !== "string" || !NAME.test(name)) {
    fail(`name is ${JSON.stringify(name)}: give 1 to 63 lower-case letters, digits and hyphens, the first not a hyphen`);
  }
  if (typeof version !== "string" || !SEMVER.test(version)) fail(`version is ${JSON.stringify(version)}: give a semantic version such as "1.0.0"`);
  const state = descriptor.state ?? "stateless";
  if (!STATES.includes(state)) fail(`state is ${JSON.stringify(state)}: it is one of ${STATES.join(", ")}`);
  const stateVersion = descriptor.stateVersion ?? (state === "stateless" ? 0 : 1);
  const oldestStateVersion = descriptor.oldestStateVersion ?? stateVersion;
  if (!isVersion(stateVersion) || !isVersion(oldestStateVersion) || oldestStateVersion > stateVersion) {
    fail(`stateVersion is ${stateVersion} and oldestStateVersion ${oldestStateVersion}: both are whole numbers, the oldest not above the other`);
  }
  if (inputs.length === 0) fail("inputs is empty: an operator has at least one");
  if (configSchema !== undefined && (typeof configSchema !== "object" || configSchema === null)) fail("configSchema must be an object: a JSON Schema");
  return {
    name,
    version,
    summary: line(summary, "summary"),
    inputs: ports(inputs, "inputs"),
    outputs: ports(outputs, "outputs"),
    state,
    stateVersion,
    oldestStateVersion,
    configSchema: configSchema === undefined ? null : JSON.stringify(configSchema),
    attributes: Object.entries(attributes).map(([name, value]) => ({ name, value: String(value) })),
  };
}

function ports(given, which) {
  if (given.length > PORTS_MAX) fail(`${which} has ${given.length} ports, more than ${PORTS_MAX}`);
  const names = new Set();
  return given.map(({ name, summary = "", keyed = false }) => {
    if (typeof name !== "string" || !NAME.test(name)) {
      fail(`${which} has a port named ${JSON.stringify(name)}: give 1 to 63 lower-case letters, digits and hyphens, the first not a hyphen`);
    }
    if (names.has(name)) fail(`${which} has two ports named ${JSON.stringify(name)}: give each its own name`);
    names.add(name);
    return { name, summary: line(summary, `the summary of port ${name}`), keyed };
  });
}

function line(summary, what) {
  if (typeof summary !== "string" || summary.includes("\n")) fail(`${what} must be one line of text`);
  return summary;
}

function isVersion(version) {
  return version >>> 0 === version;
}

function fail(what) {
  throw new TypeError(`descriptor: ${what}`);
}
