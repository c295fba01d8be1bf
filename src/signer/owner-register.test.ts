import assert from 'node:assert/strict'
import { createHmac } from 'node:crypto'
import { appendFileSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { SmallDisk } from '../../test/faults/small-disk.ts'
import { atEnd, type Ending } from '../../test/support/at-end.ts'
import { address, temporaryFolder } from '../../test/support/signing.ts'
import { OwnerRegister } from './owner-register.ts'

const account = '0190a1b2-c3d4-7000-8000-000000000001'
const [wallet, thief, third] = ['1', '2', '3'].map((digit) => address(`0x${digit.repeat(40)}`)) as [
  ReturnType<typeof address>,
  ReturnType<typeof address>,
  ReturnType<typeof address>,
]
const waitMs = 24 * 3_600_000

test('the first owner takes effect immediately, a changed one after the delay; until then the old one stays', (t) => {
  const owners = open(t, temporaryFolder(t))
  assert.equal(owners.usable(account, 0), undefined)
  assert.deepEqual(owners.register(account, wallet, 1_000, true), { address: wallet, usableFromMs: 1_000 })
  assert.deepEqual(owners.register(account, thief, 2_000, true), { address: thief, usableFromMs: 2_000 + waitMs })
  assert.equal(owners.usable(account, 2_000)?.address, wallet)
  assert.equal(owners.usable(account, 1_999 + waitMs)?.address, wallet)
  assert.equal(owners.usable(account, 2_000 + waitMs)?.address, thief)
})

test('requesting the same change again does not restart the delay', (t) => {
  const owners = open(t, temporaryFolder(t))
  owners.register(account, wallet, 0, true)
  const first = owners.register(account, thief, 1_000, true)
  assert.deepEqual(owners.register(account, thief, 500_000, true), first)
})

test('a change is cancelled immediately, and a second change is refused while the first is pending', (t) => {
  const owners = open(t, temporaryFolder(t))
  owners.register(account, wallet, 0, true)
  owners.register(account, thief, 1_000, true)
  assert.equal(owners.register(account, wallet, 2_000, true).usableFromMs, 2_000)
  assert.equal(owners.usable(account, 1_000 + waitMs)?.address, wallet)
  owners.register(account, thief, 3_000, true)
  assert.throws(() => owners.register(account, third, 4_000, true), { reason: 'owner_pending' })
  assert.equal(owners.usable(account, 2_999 + waitMs)?.address, wallet)
  assert.equal(owners.usable(account, 3_000 + waitMs)?.address, thief)
})

// A21: a stolen session registered its own address as the first one and withdrew immediately.
test('an unconfirmed first owner takes effect after the delay, and a confirmed one replaces it', (t) => {
  const owners = open(t, temporaryFolder(t))
  assert.equal(owners.register(account, thief, 1_000, false).usableFromMs, 1_000 + waitMs)
  assert.equal(owners.usable(account, 999 + waitMs), undefined)
  assert.throws(() => owners.register(account, third, 2_000, false), { reason: 'owner_pending' })
  assert.equal(owners.register(account, wallet, 3_000, true).usableFromMs, 3_000)
  assert.equal(owners.usable(account, 2 * waitMs)?.address, wallet)
  // Confirmed later, the same address takes effect from then on.
  const other = account.replace(/1$/, '2')
  owners.register(other, wallet, 1_000, false)
  assert.equal(owners.register(other, wallet, 5_000, true).usableFromMs, 5_000)
  assert.equal(owners.usable(other, 5_000)?.address, wallet)
})

// A8: 320 changes in 12 seconds by one session, and a journal that no start could read any more.
test('an address is changed five times a day at most, also after a restart, and can always be taken back', (t) => {
  const folder = temporaryFolder(t)
  let owners = open(t, folder)
  const change = (nowMs: number) => owners.register(account, nowMs % 2 === 0 ? thief : third, nowMs, true)
  owners.register(account, wallet, 0, true)
  for (let count = 1; count <= 4; count += 1) {
    change(count * 10)
    owners.register(account, wallet, count * 10 + 5, true)
  }
  assert.throws(() => change(100), { reason: 'owner_too_often' })
  owners = open(t, folder, undefined, 1)
  assert.throws(() => change(200), { reason: 'owner_too_often' })
  owners = open(t, folder)
  assert.throws(() => change(200), { reason: 'owner_too_often' })
  assert.equal(owners.usable(account, 200)?.address, wallet)
  change(24 * 3_600_000 + 10)
  owners.register(account, wallet, 24 * 3_600_000 + 20, true)
  assert.equal(owners.usable(account, 24 * 3_600_000 + 20)?.address, wallet)
})

test('a start compacts a long journal without changing its content', (t) => {
  const folder = temporaryFolder(t)
  const sealingKey = Buffer.alloc(32, 7)
  writeFileSync(journal(folder), longJournal(sealingKey, 100_000))
  const before = statSync(journal(folder)).size
  const owners = open(t, folder)
  const after = statSync(journal(folder))
  assert.ok(after.size < before / 400, `${before} bytes became ${after.size}`)
  assert.equal(after.mode & 0o777, 0o600)
  const latest = 100_000 * 1_000
  const [usable, pending] = [owners.usable(account, latest)!, owners.usable(account, latest + waitMs)!]
  // Lines after the snapshot are chained to it.
  const other = account.replace(/1$/, '2')
  owners.register(other, wallet, latest, true)
  const again = open(t, folder)
  assert.deepEqual([again.usable(account, latest), again.usable(account, latest + waitMs)], [usable, pending])
  assert.equal(again.usable(other, latest)?.address, wallet)
  const honest = readFileSync(journal(folder), 'utf8')
  const lines = honest.trimEnd().split('\n')
  assert.ok(lines.length > 4, 'a header, accounts, their seal, one line more')
  for (const changed of [
    honest.replace(pending.address, thief.replace('2', '9')),
    honest.replace(/"entries":\d+/, '"entries":1'),
    honest.replace(/"entries":\d+/, '"entries":999999'),
    lines.toSpliced(1, 1).join('\n').concat('\n'),
    lines.slice(1).join('\n').concat('\n'),
    lines.slice(0, 2).join('\n').concat('\n'),
    lines.slice(0, -2).join('\n').concat('\n'),
    lines.slice(-1).join('\n').concat('\n'),
  ]) {
    assert.notEqual(changed, honest)
    writeFileSync(journal(folder), changed)
    assert.throws(() => open(t, folder), /changed by another program/)
  }
  writeFileSync(journal(folder), honest)
  open(t, folder)
})

test('a signer that is killed while it compacts its journal loses nothing', (t) => {
  const folder = temporaryFolder(t)
  const sealingKey = Buffer.alloc(32, 7)
  const long = longJournal(sealingKey, 2_000)
  writeFileSync(journal(folder), long)
  const expected = open(t, folder).usable(account, 2_000_000)
  const small = readFileSync(journal(folder), 'utf8')
  // Killed before the rename, with all or part of the new file; and after it.
  for (const [old, started] of [
    [long, small],
    [long, small.slice(0, 100)],
    [long, ''],
    [small, ''],
  ] as const) {
    writeFileSync(journal(folder), old)
    writeFileSync(`${journal(folder)}.new`, started)
    assert.deepEqual(open(t, folder).usable(account, 2_000_000), expected)
    assert.equal(readFileSync(journal(folder), 'utf8'), small)
  }
})

/** As versions without a limit wrote it: one account alternates between two addresses, and a hundred others. */
function longJournal(sealingKey: Buffer, count: number): string {
  let seal = ''
  const lines = Array.from({ length: count }, (_, index) => {
    const entry = {
      account: index < 100 ? account.replace(/.{3}$/, String(index + 100)) : account,
      address: index % 2 === 0 ? wallet : third,
      usableFromMs: (index + 1) * 1_000 + (index < 101 ? 0 : waitMs),
      registeredMs: (index + 1) * 1_000,
    }
    seal = createHmac('sha256', sealingKey)
      .update([seal, entry.account, entry.address, entry.usableFromMs, entry.registeredMs].join('\n'))
      .digest('hex')
    return `${JSON.stringify({ ...entry, seal })}\n`
  })
  return lines.join('')
}

test('a restarted signer has all registered owners, even after it was killed in the middle of a line', (t) => {
  const folder = temporaryFolder(t)
  const first = open(t, folder)
  first.register(account, wallet, 0, true)
  first.register(account, thief, 1_000, true)
  appendFileSync(journal(folder), '{"account":"0190')
  const second = open(t, folder)
  assert.equal(second.usable(account, 1_000)?.address, wallet)
  second.register(account, third, 2_000 + waitMs, true)
  const third_ = open(t, folder)
  assert.equal(third_.usable(account, 2_000 + waitMs)?.address, thief)
  assert.equal(third_.usable(account, 2_000 + 2 * waitMs)?.address, third)
  assert.equal(statSync(journal(folder)).mode & 0o777, 0o600)
})

test('on a full disk a change is refused whole, and the journal stays readable', async (t) => {
  const disk = await SmallDisk.mount(1)
  if ('refusal' in disk) return t.skip(disk.refusal)
  atEnd(t, () => disk.unmount())
  const owners = open(t, disk.folder)
  const registered: string[] = []
  const register = (journal: OwnerRegister) => {
    const next = `${account.slice(0, -3)}${String(100 + registered.length)}`
    journal.register(next, wallet, 0, true)
    registered.push(next)
  }
  register(owners)
  disk.fill()
  // The last block of the journal has room for a few more lines.
  assert.throws(
    () => {
      for (let line = 0; line < 100; line += 1) register(owners)
    },
    { code: 'ENOSPC' },
  )
  assert.throws(() => register(owners), { code: 'ENOSPC' })
  disk.free()
  register(owners)
  const restarted = open(t, disk.folder)
  for (const known of registered) assert.equal(restarted.usable(known, 0)?.address, wallet)
})

test('a register that was tampered with is refused', (t) => {
  const folder = temporaryFolder(t)
  const owners = open(t, folder)
  owners.register(account, wallet, 0, true)
  owners.register(account, thief, 1_000, true)
  owners.register(account, third, 2_000 + waitMs, true)
  const honest = readFileSync(journal(folder), 'utf8')
  const lines = honest.trimEnd().split('\n')
  const changes = [
    honest.replace(wallet, thief),
    honest.replace('"usableFromMs":0', '"usableFromMs":5'),
    [lines[0], lines[2], ''].join('\n'),
    [lines[1], lines[0], lines[2], ''].join('\n'),
    `${honest}{}\n`,
    `${honest}\n`,
  ]
  for (const changed of changes) {
    writeFileSync(journal(folder), changed)
    assert.throws(() => open(t, folder), /changed by another program/)
  }
  writeFileSync(journal(folder), honest)
  assert.throws(() => open(t, folder, Buffer.alloc(32, 9)), /changed by another program/)
})

function journal(folder: string): string {
  return join(folder, 'owners.journal')
}

function open(
  t: Ending,
  folder: string,
  sealingKey = Buffer.alloc(32, 7),
  compactLines: number | undefined = undefined,
): OwnerRegister {
  const options = { file: journal(folder), sealingKey, waitMs }
  const owners = new OwnerRegister(compactLines === undefined ? options : { ...options, compactLines })
  atEnd(t, () => owners.close())
  return owners
}
