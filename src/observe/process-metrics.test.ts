import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { parseMetrics, sampleValue } from '../../test/support/prometheus.ts'
import { renderMetrics } from './metric.ts'
import { watchProcess } from './process-metrics.ts'

// An alert asks whether a process is overloaded now; earlier idle time must not hide the answer.
test('the utilization of a process covers only the last ten seconds', async (context) => {
  context.mock.timers.enable({ apis: ['setInterval'] })
  const watch = watchProcess('1.0.0')
  const busyAfterTenSeconds = () => {
    context.mock.timers.tick(10_000)
    return sampleValue(parseMetrics(renderMetrics(watch.metrics)), 'penny_event_loop_utilization_ratio')!
  }
  await pause(1)
  // Long beside the tenth of a second for which a busy machine may keep this process waiting.
  const end = performance.now() + 1_000
  while (performance.now() < end);
  // The event loop updates its counters once per turn.
  await pause(1)
  const busy = busyAfterTenSeconds()
  await pause(1_000)
  const idle = busyAfterTenSeconds()
  watch.stop()
  assert.ok(busy > 0.5, `busy: ${busy}`)
  assert.ok(idle < 0.5, `idle: ${idle}`)
})
