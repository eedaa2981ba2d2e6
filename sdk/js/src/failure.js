// Why a call failed, and what the host is to do about it. Not for a record that cannot be processed: reject that and go on.

/** Throw it from any method of an operator. Any other error is a bug: it is logged, and the instance starts over from the last checkpoint. */
export class Failure extends Error {
  constructor(kind, message) {
    super(message);
    this.name = "Failure";
    this.kind = kind;
    // What the component hands to the host.
    this.payload = { kind, message: String(message) };
  }

  /** The same call may be made again later: nothing has changed in the operator. */
  static retry(message) {
    return new Failure("retry", message);
  }

  /** The configuration or the state is not acceptable: a person has to change something. */
  static invalid(message) {
    return new Failure("invalid", message);
  }

  /** Start over from the last checkpoint. */
  static fatal(message) {
    return new Failure("fatal", message);
  }
}
