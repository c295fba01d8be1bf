import { runAsChild } from '../../src/child.ts'
import { OperatorError } from '../../src/errors.ts'

// A child process that says what it was given, refuses to start, or never becomes ready.

export type ChildSettings = { readonly refuseWith?: string; readonly hang?: boolean }
export type ChildReady = { readonly environment: Readonly<Record<string, string | undefined>> }

class TestRefusal extends OperatorError {}

runAsChild({
  title: 'penny-test-child',
  isInBackground: false,
  async start({ refuseWith, hang }: ChildSettings): Promise<ChildReady> {
    if (refuseWith !== undefined) throw new TestRefusal(refuseWith)
    if (hang) await new Promise(() => {})
    return { environment: process.env }
  },
})
