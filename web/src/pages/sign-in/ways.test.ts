import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Session } from '../../api/shapes.ts'
import { waysToConfirm } from './ways.ts'

const signIn = { local: true } as Session['sign_in']

function signedIn(method: string, wallets: number, passkeys: number): Parameters<typeof waysToConfirm>[0] {
  const account = {
    wallets: Array(wallets).fill({}),
    passkeys: Array(passkeys).fill({}),
  } as unknown as Session['account']
  return { sign_in: signIn, session: { method } as Session['session'], account }
}

// The sandbox's local sign-in was offered to a person of another account, and opened the demo account instead.
test('a confirmation offers only ways that lead to the person who is signed in', () => {
  assert.deepEqual(waysToConfirm(signedIn('local', 0, 0)), { local: true, wallet: false, passkey: false })
  assert.deepEqual(waysToConfirm(signedIn('link', 0, 1)), { local: false, wallet: false, passkey: true })
  assert.deepEqual(waysToConfirm(signedIn('wallet', 1, 0)), { local: false, wallet: true, passkey: false })
  assert.deepEqual(waysToConfirm(signedIn('link', 0, 0)), { local: false, wallet: false, passkey: false })
})

test('after the end of a session every way is offered, because the page no longer knows the person', () => {
  assert.deepEqual(waysToConfirm({ sign_in: signIn, session: null, account: null }), {
    local: true,
    wallet: true,
    passkey: true,
  })
})
