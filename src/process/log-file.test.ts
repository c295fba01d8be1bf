import assert from 'node:assert/strict'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, utimesSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { setImmediate as turnOfEvents } from 'node:timers/promises'
import { atEnd } from '../../test/support/at-end.ts'
import { until } from '../../test/support/until.ts'
import { type LogFile, openLogFile } from './log-file.ts'

function temporaryLog(t: TestContext): { readonly folder: string; readonly path: string } {
  const folder = mkdtempSync(join(tmpdir(), 'penny-log-'))
  atEnd(t, () => rmSync(folder, { recursive: true, force: true }))
  return { folder, path: join(folder, 'penny.log') }
}

function linesIn(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isFile())
    .flatMap(({ name }) => readFileSync(join(folder, name), 'utf8').split('\n').filter(Boolean))
}

/** In rounds, until enough is written. */
async function writeLines(writers: readonly LogFile[], folder: string, isEnough: () => boolean): Promise<string[]> {
  const before = linesIn(folder).length
  const written: string[] = []
  while (!isEnough()) {
    for (const [index, writer] of writers.entries()) {
      for (let count = 0; count < 20; count += 1) {
        const line = `line ${before + written.length} of writer ${index} ${'.'.repeat(count)}`
        writer.write(`${line}\n`)
        written.push(line)
      }
    }
    await turnOfEvents()
  }
  return written
}

test('a log that several processes write to is rotated again and again, and has every line once', async (t) => {
  const { folder, path } = temporaryLog(t)
  const writers = Array.from({ length: 3 }, () => openLogFile(path, { bytesMax: 8_000, filesMax: 1_000 }))
  const written = await writeLines(writers, folder, () => existsSync(`${path}.12`))
  await until(() => linesIn(folder).length >= written.length)
  assert.deepEqual(linesIn(folder).sort(), written.sort())
})

test('a limited number of rotated files is kept, readable by their owner only', async (t) => {
  const { folder, path } = temporaryLog(t)
  const writers = [openLogFile(path, { bytesMax: 2_000, filesMax: 2 })]
  const first = await writeLines(writers, folder, () => existsSync(`${path}.1`))
  await writeLines(writers, folder, () => !linesIn(folder).includes(first[0]!))
  await until(() => existsSync(path))
  assert.deepEqual(readdirSync(folder).sort(), ['penny.log', 'penny.log.1', 'penny.log.2'])
  for (const name of readdirSync(folder)) assert.equal(statSync(join(folder, name)).mode & 0o777, 0o600)
})

test('a process that died while it rotated the log does not block the others', async (t) => {
  const { folder, path } = temporaryLog(t)
  const rotating = `${path}.rotating`
  mkdirSync(rotating)
  const writers = [openLogFile(path, { bytesMax: 2_000, filesMax: 1_000 })]
  const before = await writeLines(writers, folder, () => linesIn(folder).length > 200)
  await until(() => linesIn(folder).length >= before.length)
  assert.deepEqual(readdirSync(folder).sort(), ['penny.log', 'penny.log.rotating'])
  utimesSync(rotating, 0, 0)
  const after = await writeLines(writers, folder, () => existsSync(`${path}.1`))
  await until(() => linesIn(folder).length >= before.length + after.length)
  assert.equal(linesIn(folder).length, before.length + after.length)
})
