import { type Child, startChild } from './child.ts'
import type { LoadOrder, LoadReport } from './load.ts'
import type { MockReady } from './mock-upstream.ts'

export type Load = Child<object, LoadOrder, LoadReport>

/** Both ends of what is measured, each in a process of its own: where the mock upstream listens, and who sends the load. */
export async function openLine(stack: AsyncDisposableStack): Promise<{ readonly origin: string; readonly load: Load }> {
  const upstream = await startChild<object, MockReady>(new URL('./mock-upstream.ts', import.meta.url), {})
  stack.defer(() => upstream.stop())
  const load: Load = await startChild(new URL('./load.ts', import.meta.url), {})
  stack.defer(() => load.stop())
  return { origin: upstream.ready.origin, load }
}
