/** A test, as far as it matters to what ends with it. */
export type Ending = { after(undo: () => unknown): void }

const stacks = new WeakMap<Ending, AsyncDisposableStack>()

/**
 * What is opened last is undone first, and everything is undone although one part of it fails. The hooks of `node:test` go
 * from first to last and stop at the first failure: a folder is removed from under the server that is still writing to it.
 */
export function atEnd(t: Ending, undo: () => unknown): void {
  let stack = stacks.get(t)
  if (stack === undefined) {
    stack = new AsyncDisposableStack()
    stacks.set(t, stack)
    const whole = stack
    t.after(() => whole.disposeAsync())
  }
  stack.defer(async () => void (await undo()))
}
