import { runAsChild } from '../../src/child.ts'
import { OperatorError } from '../../src/errors.ts'

// A child process that says what it was given, or refuses to start.

export type ChildSettings = { readonly refuseWith?: string }
export type ChildReady = { readonly environment: Readonly<Record<string, string | undefined>> }

class TestRefusal extends OperatorError {}

runAsChild({
  title: 'penny-test-child',
  isInBackground: false,
  async start({ refuseWith }: ChildSettings): Promise<ChildReady> {
    if (refuseWith !== undefined) throw new TestRefusal(refuseWith)
    return { environment: process.env }
  },
})
