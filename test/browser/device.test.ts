import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { childEnvironment, pennyProgram } from '../support/child-environment.ts'
import { dashboardSuite } from './dashboard.ts'

// A person with a terminal and a browser: `penny login URL`, the printed link, the answer.

const dashboard = dashboardSuite({ SANDBOX_TOKENS_PER_SECOND: '0' })
const home = mkdtempSync(join(tmpdir(), 'penny-customer-'))
after(() => rmSync(home, { recursive: true, force: true }))

async function startLogin() {
  const env = { ...childEnvironment, HOME: home }
  const child = spawn(process.execPath, [...pennyProgram(), 'login', dashboard.origin], {
    cwd: home,
    env,
    stdio: 'pipe',
  })
  let said = ''
  const ended = once(child, 'close')
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (text) => {
      said += text
    })
  while (!/\/device\?code=\S+\n/.test(said)) {
    assert.equal(child.exitCode, null, said)
    await once(child.stderr, 'data')
  }
  const [link, code] = said.match(/http\S+\/device\?code=(\S+)/) as unknown as [string, string]
  return { link, code, said: () => said, exitCode: async () => (await ended)[0] as number }
}

test('the printed link signs in, shows which machine asks, and confirming it logs the terminal in', async () => {
  const login = await startLogin()
  const page = await dashboard.open()
  await page.goto(login.link)
  await page.getByRole('button', { name: 'Continue as local developer' }).click()
  const form = page.getByTestId('device-login')
  await form.getByText('Only continue if you started this in your own terminal').waitFor()
  await form.getByText(login.code).waitFor()
  assert.equal(page.url(), login.link)
  await form.getByLabel('Name').fill('Work laptop')
  await form.getByLabel('Limit').fill('0')
  await form.getByRole('button', { name: 'Create key and connect' }).click()
  await form.getByText('Enter an amount above 0 USDC').waitFor()
  await form.getByLabel('Limit').fill('3')
  await form.getByLabel('Expires').selectOption('30')
  await form.getByRole('button', { name: 'Create key and connect' }).click()
  await page.getByText('Go back to your terminal').waitFor()
  assert.equal(await login.exitCode(), 0, login.said())
  assert.match(login.said(), /Logged in to http:\/\/localhost:\d+ with the key "Work laptop"/)
  const { api_key: key } = JSON.parse(readFileSync(join(home, '.config/penny/login.json'), 'utf8'))
  const own = await fetch(`${dashboard.origin}/api/key`, { headers: { authorization: `Bearer ${key}` } })
  const { name, limit, expires_at: expiresAt } = (await own.json()) as Record<string, string>
  assert.deepEqual([name, limit], ['Work laptop', '3'])
  assert.ok(Date.parse(expiresAt!) > Date.now())
  await page.getByRole('main').getByRole('link', { name: 'Keys' }).click()
  await page.getByTestId('key-row').filter({ hasText: 'Work laptop' }).waitFor()
})

test('a code can be typed, a wrong one is reported, and declining tells the terminal', async () => {
  const login = await startLogin()
  const page = await dashboard.open()
  await page.goto(`${dashboard.origin}/device`)
  await page.getByRole('button', { name: 'Continue as local developer' }).click()
  await page.getByLabel('Code').fill('bbbb bbbb')
  await page.getByRole('button', { name: 'Continue', exact: true }).click()
  await page.getByText('This code is unknown, already used or expired').waitFor()
  await page.getByLabel('Code').fill(login.code.toLowerCase())
  await page.getByRole('button', { name: 'Continue', exact: true }).click()
  await page.getByRole('button', { name: 'Decline' }).click()
  await page.getByText('Declined. No key was created').waitFor()
  assert.equal(await login.exitCode(), 1)
  assert.match(login.said(), /The login was declined in the dashboard/)
})
