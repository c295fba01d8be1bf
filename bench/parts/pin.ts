import { execFileSync } from 'node:child_process'
import { availableParallelism } from 'node:os'
import { familyOf } from './process-usage.ts'

/** Keeps processes, their threads and their children on one core. What they start later inherits it. */
export function pinFamilies(pids: readonly number[], core: number): void {
  for (const pid of pids.flatMap(familyOf)) {
    try {
      execFileSync('taskset', ['--all-tasks', '--cpu-list', '--pid', String(core), String(pid)], { stdio: 'ignore' })
    } catch (error) {
      // It may have ended since it was listed. Anything else is a bench that measures something else than it says.
      if (familyOf(pid).length > 0) throw error
    }
  }
}

/** @throws unless there are two cores to tell apart, and `taskset`. */
export function requireTwoCores(): void {
  if (availableParallelism() < 2) throw new Error('this bench pins processes: it needs two cores')
  execFileSync('taskset', ['--version'], { stdio: 'ignore' })
}
