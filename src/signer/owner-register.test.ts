import assert from 'node:assert/strict'
import { appendFileSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
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

test('the first owner counts at once, a changed one after the wait, and until then the old one stays', (t) => {
  const owners = open(t, temporaryFolder(t))
  assert.equal(owners.usable(account, 0), undefined)
  assert.deepEqual(owners.register(account, wallet, 1_000), { address: wallet, usableFromMs: 1_000 })
  assert.deepEqual(owners.register(account, thief, 2_000), { address: thief, usableFromMs: 2_000 + waitMs })
  assert.equal(owners.usable(account, 2_000)?.address, wallet)
  assert.equal(owners.usable(account, 1_999 + waitMs)?.address, wallet)
  assert.equal(owners.usable(account, 2_000 + waitMs)?.address, thief)
})

test('asking for the same change again does not begin the wait anew', (t) => {
  const owners = open(t, temporaryFolder(t))
  owners.register(account, wallet, 0)
  const first = owners.register(account, thief, 1_000)
  assert.deepEqual(owners.register(account, thief, 500_000), first)
})

test('a change is taken back at once, and a second change waits as long as the first', (t) => {
  const owners = open(t, temporaryFolder(t))
  owners.register(account, wallet, 0)
  owners.register(account, thief, 1_000)
  assert.equal(owners.register(account, wallet, 2_000).usableFromMs, 2_000)
  assert.equal(owners.usable(account, 1_000 + waitMs)?.address, wallet)
  owners.register(account, thief, 3_000)
  assert.equal(owners.register(account, third, 4_000).usableFromMs, 4_000 + waitMs)
  assert.equal(owners.usable(account, 3_500 + waitMs)?.address, wallet)
  assert.equal(owners.usable(account, 4_000 + waitMs)?.address, third)
})

test('a signer that starts anew knows what it was told, also after it was killed in the middle of a line', (t) => {
  const folder = temporaryFolder(t)
  const first = open(t, folder)
  first.register(account, wallet, 0)
  first.register(account, thief, 1_000)
  appendFileSync(journal(folder), '{"account":"0190')
  const second = open(t, folder)
  assert.equal(second.usable(account, 1_000)?.address, wallet)
  second.register(account, third, 2_000)
  const third_ = open(t, folder)
  assert.equal(third_.usable(account, 2_000)?.address, wallet)
  assert.equal(third_.usable(account, 2_000 + waitMs)?.address, third)
  assert.equal(statSync(journal(folder)).mode & 0o777, 0o600)
})

test('a register that another hand has changed is refused', (t) => {
  const folder = temporaryFolder(t)
  const owners = open(t, folder)
  owners.register(account, wallet, 0)
  owners.register(account, thief, 1_000)
  owners.register(account, third, 2_000)
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
    assert.throws(() => open(t, folder), /changed by another hand/)
  }
  writeFileSync(journal(folder), honest)
  assert.throws(() => open(t, folder, Buffer.alloc(32, 9)), /changed by another hand/)
})

function journal(folder: string): string {
  return join(folder, 'owners.journal')
}

function open(t: Ending, folder: string, sealingKey = Buffer.alloc(32, 7)): OwnerRegister {
  const owners = new OwnerRegister({ file: journal(folder), sealingKey, waitMs })
  atEnd(t, () => owners.close())
  return owners
}
