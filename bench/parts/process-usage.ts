import { readdirSync, readFileSync } from 'node:fs'

/**
 * What processes have used, as Linux counts it in /proc. CPU time is far less disturbed by whatever else the machine does than
 * the time on the clock, so it is what comparisons are made of.
 */

// A hundredth of a second on every Linux that Node runs on.
const tickMs = 10

type Stat = { readonly parent: number; readonly ownMs: number; readonly reapedMs: number }

function readStat(pid: number): Stat | undefined {
  try {
    // The name in parentheses may contain anything: what follows the last one is plain.
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const fields = text.slice(text.lastIndexOf(') ') + 2).split(' ')
    const at = (index: number) => Number(fields[index])
    return { parent: at(1), ownMs: (at(11) + at(12)) * tickMs, reapedMs: (at(13) + at(14)) * tickMs }
  } catch {
    return undefined
  }
}

/** CPU time of one process, all its threads together. */
export function cpuMs(pid: number): number {
  return readStat(pid)?.ownMs ?? 0
}

/** CPU time of a process and of all that it has ever started: PostgreSQL's helpers come and go. */
export function familyCpuMs(pid: number): number {
  const { ownMs = 0, reapedMs = 0 } = readStat(pid) ?? {}
  return childrenOf(pid).reduce((sum, child) => sum + familyCpuMs(child), ownMs + reapedMs)
}

/** A process and all that it has started, as far as they run now. */
export function familyOf(pid: number): readonly number[] {
  return readStat(pid) === undefined ? [] : [pid, ...childrenOf(pid).flatMap(familyOf)]
}

/** Memory that is really there, in KiB. */
export function memoryKiB(pid: number): number {
  try {
    return Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0)
  } catch {
    return 0
  }
}

/** The children with that title, as processes name themselves. */
export function childrenNamed(parent: number, title: string): readonly number[] {
  return childrenOf(parent).filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').startsWith(title)
    } catch {
      return false
    }
  })
}

function childrenOf(parent: number): readonly number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => readStat(pid)?.parent === parent)
}
