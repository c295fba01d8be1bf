import { leaveRefused, StartRefusal } from '../../src/errors.ts'

// A child process that says what it was given, or refuses to start.

export type ChildSettings = { readonly refuseWith?: string }
export type ChildReady = { readonly environment: Readonly<Record<string, string | undefined>> }

class TestRefusal extends StartRefusal {}

process.on('disconnect', () => process.exit(0))
process.once('message', ({ refuseWith }: ChildSettings) => {
  if (refuseWith === undefined) process.send?.({ environment: process.env } satisfies ChildReady)
  else leaveRefused(new TestRefusal(refuseWith))
})
