import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { privateKeyToAccount } from 'viem/accounts'
import { terms } from '../../test/support/signing.ts'
import { encodeHeader } from './header.ts'
import { readSignIn, SignInRefusedError, signInExtension } from './sign-in.ts'
import type { X402Terms } from './terms.ts'

type Fields = Readonly<Record<string, unknown>>

const now = Date.parse('2026-11-19T12:00:00Z')
const wallet = privateKeyToAccount(`0x${'11'.repeat(32)}`)
const site = { publicUrl: 'https://router.example.com', network: `eip155:${terms.chainId}` } as X402Terms

/** As a client answers the challenge of a 402, with these fields changed. */
async function signed(changes: Fields = {}): Promise<string> {
  const { info } = signInExtension(site, `${site.publicUrl}/x402/v1/models`, now) as { readonly info: Fields }
  const proof: Fields = { ...info, address: wallet.address, chainId: site.network, type: 'eip191', ...changes }
  const optional = ([label, name]: readonly [string, string]) =>
    proof[name] === undefined ? [] : [`${label}: ${proof[name]}`]
  const labels = [
    ['URI', 'uri'],
    ['Version', 'version'],
    ['Chain ID', 'chain'],
    ['Nonce', 'nonce'],
    ['Issued At', 'issuedAt'],
    ['Expiration Time', 'expirationTime'],
    ['Not Before', 'notBefore'],
    ['Request ID', 'requestId'],
  ] as const
  const chain = String(proof.chainId).split(':').at(-1)
  const head = `${proof.domain} wants you to sign in with your Ethereum account:`
  const lines = labels.flatMap(([label, name]) => (name === 'chain' ? [`${label}: ${chain}`] : optional([label, name])))
  const message = [head, proof.address, '', proof.statement, '', ...lines].join('\n')
  return encodeHeader({ ...proof, signature: await wallet.signMessage({ message }) })
}

test('a wallet that signs the challenge proves its address', async () => {
  assert.equal(readSignIn(await signed(), site, now).address, wallet.address.toLowerCase())
})

// test/parsing_negative_objects.json of github.com/spruceid/siwe: each has one fault.
test('a sign-in with a field that EIP-4361 does not allow is refused', async () => {
  const file = new URL('__fixtures__/siwe-parsing-negative-objects.json', import.meta.url)
  const vectors = Object.entries(JSON.parse(readFileSync(file, 'utf8')) as Record<string, Fields>)
  const names = [...new Set(vectors.flatMap(([, fields]) => Object.keys(fields)))]
  const most = (name: string) => {
    const values = vectors.map(([, fields]) => JSON.stringify(fields[name]))
    return values.toSorted((a, b) => count(values, b) - count(values, a))[0]
  }
  const usual = new Map(names.map((name) => [name, most(name)]))
  assert.ok(vectors.length >= 18)
  for (const [fault, fields] of vectors) {
    const wrong = names.filter((name) => JSON.stringify(fields[name]) !== usual.get(name))
    assert.ok(wrong.length > 0, fault)
    // Our text always has the checksum; how a client writes the address beside it does not matter.
    if (fault === 'address not EIP-55') continue
    const header = await signed(Object.fromEntries(wrong.map((name) => [name, fields[name]])))
    assert.throws(() => readSignIn(header, site, now), SignInRefusedError, fault)
  }
})

test('a sign-in whose URI would add lines to the signed text is refused', async () => {
  const header = await signed({ uri: `${site.publicUrl}/\nVersion: 1\nChain ID: 1` })
  assert.throws(() => readSignIn(header, site, now), /its format/)
})

function count(values: readonly (string | undefined)[], value: string | undefined): number {
  return values.filter((each) => each === value).length
}
