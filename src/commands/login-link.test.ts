import assert from 'node:assert/strict'
import { test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { testDatabase } from '../../test/support/postgres.ts'
import { temporaryFolder } from '../../test/support/signing.ts'
import { readConfig } from '../config/config.ts'
import { createAccount } from '../ledger/accounts.ts'
import { publishControl } from '../run/control.ts'
import { loginLinkCommand } from './login-link.ts'

test('a sign-in link leads to the service that runs on the data folder, also where PUBLIC_URL is not set', async (t) => {
  const { database, url, drop } = await testDatabase()
  atEnd(t, drop)
  await createAccount(database, 'acme', 1)
  const config = readConfig({ DATABASE_URL: url, DATA_DIR: temporaryFolder(t) })
  await using stack = new AsyncDisposableStack()
  publishControl({ config, stack }, { url: 'http://127.0.0.1:1', token: 'a', publicUrl: 'https://router.example.com' })
  let written = ''
  const output = { json: true, color: false, width: undefined, write: (text: string) => void (written += text) }
  assert.equal(await loginLinkCommand.run({ words: ['acme'], options: {}, config, output }), 0)
  assert.match(JSON.parse(written).url, /^https:\/\/router\.example\.com\/login#token=/)
})
