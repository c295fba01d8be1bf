/**
 * The service cannot start on this database or folder, and the operator can do something about it: the message is one
 * clear line that says what. To be shown alone, without a stack.
 */
export abstract class StartRefusal extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.name = new.target.name
  }
}
