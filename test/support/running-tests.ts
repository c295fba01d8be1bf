import { relative, resolve } from 'node:path'
import type { TestsStream } from 'node:test'

type Place = {
  readonly name: string
  readonly nesting: number
  readonly testId: number
  readonly file?: string | undefined
  readonly line?: number | undefined
}
type RunningTest = Place & { readonly startedMs: number }

/**
 * Knows which test of which file is running. It listens to `test:dequeue` and `test:complete`, which are emitted
 * immediately; `test:start` and `test:pass` of a file are held back until all earlier files have ended.
 */
export function trackRunningTests(tests: TestsStream): { describe(): string } {
  const running = new Map<string, RunningTest>()
  const passed = new Map<string, number>()
  tests.on('test:dequeue', (test) => running.set(keyOf(test), { ...test, startedMs: Date.now() }))
  tests.on('test:complete', (test) => {
    running.delete(keyOf(test))
    if (test.file !== undefined && test.details.passed) passed.set(test.file, (passed.get(test.file) ?? 0) + 1)
  })
  return {
    describe() {
      const byFile = Map.groupBy(running.values(), ({ file }) => file ?? '')
      return [...byFile].map(([file, all]) => describeFile(file, all, passed.get(file) ?? 0)).join('\n')
    },
  }
}

function describeFile(file: string, running: readonly RunningTest[], passed: number): string {
  // A file that shares its process is not among them: its tests are.
  const tests = running
    .filter(({ name }) => resolve(name) !== file)
    .map((test) => `  ${'  '.repeat(test.nesting)}"${test.name}" (line ${test.line}), started ${agoOf(test)}`)
  return [
    `${relative(process.cwd(), file)}, started ${agoOf(running[0]!)}, ${passed} tests passed, running:`,
    ...(tests.length > 0 ? tests : ['  no test: a hook is running, or the file is still loading']),
  ].join('\n')
}

function agoOf({ startedMs }: RunningTest): string {
  return `${Math.round((Date.now() - startedMs) / 1000)} s ago`
}

function keyOf({ file, testId, nesting, name }: Place): string {
  return [file, testId, nesting, name].join('\n')
}
