import { setTimeout as pause } from 'node:timers/promises'

const unitMs = { hour: 3_600_000, day: 86_400_000 }
/** Longer than such a test takes on a busy machine. */
const roomMs = 60_000

/**
 * Waits for the next hour or day of UTC when this one is about to end. For tests that write something now and then read what happened in
 * this hour, or today.
 */
export async function farFromEndOf(unit: keyof typeof unitMs): Promise<void> {
  const leftMs = unitMs[unit] - (Date.now() % unitMs[unit])
  if (leftMs < roomMs) await pause(leftMs + 1)
}
