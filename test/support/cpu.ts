import { readFileSync } from 'node:fs'

const msPerTick = 10

/** CPU time of this process and of the children that have ended, in milliseconds. Children are counted on Linux only. */
export function cpuMs(): number {
  try {
    // The name of the program is in parentheses and may have spaces; utime, stime, cutime and cstime are the fields 14 to 17.
    const fields = readFileSync('/proc/self/stat', 'utf8')
      .replace(/^.*\) /s, '')
      .split(' ')
      .slice(11, 15)
    return fields.reduce((sum, ticks) => sum + Number(ticks) * msPerTick, 0)
  } catch {
    const { user, system } = process.cpuUsage()
    return Math.round((user + system) / 1000)
  }
}
