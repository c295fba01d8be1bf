import { relative } from 'node:path'
import type { TestEvent } from 'node:test/reporters'
import { stripVTControlCharacters } from 'node:util'

// A reporter for `node --test` beside its own: what failed and nothing else, so that `npm test` can end with it. Whoever
// reads only the last lines of a run, as most keepers of logs do, must find there why it failed.

/** Stacks and comparisons of assertions can be long. They are cut here; the output of the test has them in full. */
const linesMax = 24

export default async function* failures(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  for await (const event of events) {
    // `test:fail` says the same, but only once all earlier files have ended: a run that is stopped would not report it.
    if (event.type !== 'test:complete' || event.data.details.passed) continue
    const { name, file, line, details, todo, skip } = event.data
    const error = details.error ?? new Error('no reason is known')
    const isSumOfOthers = 'failureType' in error && error.failureType === 'subtestsFailed'
    if (isSumOfOthers || todo !== undefined || skip !== undefined) continue
    const place = file === undefined ? '' : ` (${relative(process.cwd(), file)}:${line ?? 1})`
    yield `✖ ${name}${place}\n${reasonOf(error)}\n`
  }
}

/** A property of fast-check has the reason as its cause, below an example that can be long: reports both. */
function reasonOf(error: Error): string {
  const { stack, message, cause } = error.cause instanceof Error ? error.cause : error
  const told = textOf(stack ?? message)
  return cause instanceof Error ? `${told}\n    caused by:\n${textOf(cause.stack ?? cause.message)}` : told
}

function textOf(reason: string): string {
  const lines = stripVTControlCharacters(reason).split('\n')
  const shown =
    lines.length > linesMax ? [...lines.slice(0, linesMax), `… and ${lines.length - linesMax} lines`] : lines
  return shown.map((text) => `    ${text}`).join('\n')
}
