import { OperatorError } from '../../src/errors.ts'
import { runAsChild } from '../../src/process/child.ts'

// A child process that says what it was given, refuses to start, or never becomes ready.

export type ChildSettings = { readonly refuseWith?: string; readonly hang?: boolean }
export type ChildReady = {
  readonly pid: number
  readonly environment: Readonly<Record<string, string | undefined>>
}

class TestRefusal extends OperatorError {}

runAsChild({
  title: 'penny-test-child',
  isInBackground: false,
  async start({ refuseWith, hang }: ChildSettings): Promise<ChildReady> {
    if (refuseWith !== undefined) throw new TestRefusal(refuseWith)
    if (hang) await new Promise(() => {})
    return { pid: process.pid, environment: process.env }
  },
})
