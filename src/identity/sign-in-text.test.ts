import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { type SignInFields, signInText } from './sign-in-text.ts'

type Vector = {
  readonly message: string
  readonly fields: SignInFields & { readonly scheme?: string; resources?: unknown }
}

// test/parsing_positive.json of github.com/spruceid/siwe.
const file = new URL('__fixtures__/siwe-parsing-positive.json', import.meta.url)
const vectors = Object.entries(JSON.parse(readFileSync(file, 'utf8')) as Record<string, Vector>)

test('a wallet is shown the text of EIP-4361, with any host', () => {
  const ours = vectors.filter(
    ([, { fields }]) => fields.statement !== undefined && fields.scheme === undefined && fields.resources === undefined,
  )
  assert.equal(ours.length, 9)
  for (const [name, { message, fields }] of ours) assert.equal(signInText(fields), message, name)
  const { fields, message } = ours[0]![1]
  const text = signInText({ ...fields, domain: '[::1]:8402' })
  assert.equal(text, message.replace(fields.domain, '[::1]:8402'))
})
