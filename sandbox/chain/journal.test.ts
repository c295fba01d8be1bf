import assert from 'node:assert/strict'
import { readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import fc from 'fast-check'
import { atEnd } from '../../test/support/at-end.ts'
import { temporaryFolder } from '../../test/support/sandbox-chain.ts'
import { type Change, DamagedJournalError, Journal, JournalBrokenError, type JournalEntry } from './journal.ts'

const parent = `0x${'ab'.repeat(32)}` as const
const change: fc.Arbitrary<Change> = fc.oneof(
  fc.record({ kind: fc.constant('transaction' as const), time: fc.nat(), raw: fc.uint8Array().map(hex) }),
  fc.record({ kind: fc.constant('mining' as const), time: fc.nat(), blocks: fc.nat() }),
  fc.record({ kind: fc.constant('clock' as const), aheadSeconds: fc.nat() }),
)
const entries = fc.array(
  change.map((made) => ({ ...made, parent })),
  { minLength: 1, maxLength: 6 },
)

test('what was written is read again, in order', async (t) => {
  const path = join(await temporaryFolder(t), 'folder', 'chain.journal')
  await fc.assert(
    fc.asyncProperty(entries, async (written) => {
      await write(path, written)
      assert.deepEqual(await readAll(path), written)
    }),
    { numRuns: 30 },
  )
})

test('only its owner can read the journal', async (t) => {
  const path = join(await temporaryFolder(t), 'chain.journal')
  await write(path, [{ kind: 'clock', aheadSeconds: 1, parent }])
  assert.equal((await stat(path)).mode & 0o777, 0o600)
})

// A crash leaves any part of the last line. In each case all earlier entries are intact and the next entry follows cleanly.
test('a torn last line is dropped, wherever it was torn', async (t) => {
  const path = join(await temporaryFolder(t), 'chain.journal')
  const next: JournalEntry = { kind: 'clock', aheadSeconds: 7, parent }
  await fc.assert(
    fc.asyncProperty(entries, fc.double({ min: 0, max: 1, noNaN: true }), async (written, share) => {
      await write(path, written)
      const bytes = await readFile(path)
      const lastLine = bytes.lastIndexOf('\n', bytes.length - 2) + 1
      const cut = lastLine + Math.floor(share * (bytes.length - 1 - lastLine))
      await writeFile(path, bytes.subarray(0, cut))
      await append(path, next)
      assert.deepEqual(await readAll(path), [...written.slice(0, -1), next])
    }),
    { numRuns: 50 },
  )
})

test('a last line that the disk filled with nothing is dropped', async (t) => {
  const path = join(await temporaryFolder(t), 'chain.journal')
  const first: JournalEntry = { kind: 'clock', aheadSeconds: 1, parent }
  await write(path, [first])
  await writeFile(path, Buffer.concat([await readFile(path), Buffer.alloc(5_000)]))
  assert.deepEqual(await readAll(path), [first])
})

// Continuing without an entry from the middle would give a different history.
test('a journal that is damaged before its end is refused', async (t) => {
  const path = join(await temporaryFolder(t), 'chain.journal')
  await fc.assert(
    fc.asyncProperty(entries, fc.nat(), async (written, position) => {
      await write(path, [...written, { kind: 'clock', aheadSeconds: 1, parent }])
      const bytes = await readFile(path)
      const lastLine = bytes.lastIndexOf('\n', bytes.length - 2)
      const at = position % lastLine
      bytes[at] = bytes[at]! ^ 1
      await writeFile(path, bytes)
      await assert.rejects(readAll(path), DamagedJournalError)
    }),
    { numRuns: 50 },
  )
})

test('a journal refuses a second writer', async (t) => {
  const path = join(await temporaryFolder(t), 'chain.journal')
  const [first, second] = [await Journal.open(path), await Journal.open(path)]
  atEnd(t, () => Promise.all([first.close(), second.close()]))
  await first.append({ kind: 'clock', aheadSeconds: 1, parent })
  await assert.rejects(second.append({ kind: 'clock', aheadSeconds: 2, parent }), JournalBrokenError)
  await assert.rejects(second.append({ kind: 'clock', aheadSeconds: 2, parent }), JournalBrokenError)
  await first.append({ kind: 'clock', aheadSeconds: 3, parent })
  assert.equal((await readAll(path)).length, 2)
})

async function write(path: string, written: readonly JournalEntry[]): Promise<void> {
  const journal = await Journal.open(path)
  await writeFile(path, '')
  for (const entry of written) await journal.append(entry)
  await journal.close()
}

async function append(path: string, entry: JournalEntry): Promise<void> {
  const journal = await Journal.open(path)
  await Array.fromAsync(journal.entries())
  await journal.append(entry)
  await journal.close()
}

async function readAll(path: string): Promise<JournalEntry[]> {
  const journal = await Journal.open(path)
  try {
    return await Array.fromAsync(journal.entries())
  } finally {
    await journal.close()
  }
}

function hex(bytes: Uint8Array): `0x${string}` {
  return `0x${Buffer.from(bytes).toString('hex')}`
}
