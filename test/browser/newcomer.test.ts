import assert from 'node:assert/strict'
import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify, stripVTControlCharacters } from 'node:util'
import type { Page } from 'playwright-core'
import { leftovers } from '../support/leftovers.ts'
import { until } from '../support/until.ts'
import { chromiumPath, openBrowser } from './chromium.ts'
import { atOverview } from './person.ts'

// The first minutes of a newcomer, in one piece: clone, `npm start` in a terminal, the printed curl, the dashboard, a receipt,
// Ctrl-C. Transcript and screenshots of the last run are in tmp/newcomer.

const root = fileURLToPath(new URL('../..', import.meta.url))
const records = join(root, 'tmp/newcomer')
const folder = mkdtempSync(join(tmpdir(), 'penny-newcomer-'))
const clone = join(folder, 'penny')
const environment = { PATH: process.env.PATH, HOME: folder, TERM: 'xterm', PORT: '0' }
/** Longer than the time in which a signal that arrives twice counts once. */
const pastDuplicatesMs = 1_200
/** Long, and only ever waited for by a test that fails: machines that run tests are busy. */
const waitMsMax = 60_000
let browser: { close(): Promise<void> } | undefined
let terminal: ChildProcess | undefined
after(async () => {
  await browser?.close()
  terminal?.kill('SIGKILL')
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
})

test('from a fresh clone to a verified receipt, and Ctrl-C leaves nothing running', async () => {
  chromiumPath()
  rmSync(records, { recursive: true, force: true })
  mkdirSync(records, { recursive: true })
  cloneRepository()

  const service = startInTerminal('npm start')
  const printed = await service.said(/Ctrl-C stops everything\./)
  assert.match(printed, /Building the dashboard … done in/, 'the dashboard of a fresh clone is built')
  const origin = printed.match(/Base URL {3}(http:\/\/localhost:\d+)\/v1/)![1]!

  const curl = printed.match(/^curl -i (?:.*\\\n)*.*$/m)![0]
  const { stdout: answer } = await promisify(execFile)('bash', ['-c', curl], { env: environment })
  writeFileSync(join(records, 'curl.txt'), `${curl}\n\n${answer}`)
  assert.match(answer, /^HTTP\/1\.1 200 OK/)
  assert.match(answer, /^x-router-charged-usdc: [1-9]\d*\r$/m)
  const requestId = answer.match(/^x-router-request-id: (req_[0-9a-f]{32})\r$/m)![1]!

  const opened = await openBrowser()
  browser = opened
  const page = await opened.context.newPage()
  page.setDefaultTimeout(waitMsMax)
  const look = async (name: string) => {
    await page.waitForFunction(() => document.querySelector('[aria-busy=true]') === null)
    await page.screenshot({ path: join(records, `${name}.png`) })
  }
  await signIn(page, origin, look)
  await findRequest(page, requestId)
  await look('3-first-request')
  await askInPlayground(page)
  await look('4-playground')
  await verifyReceipt(page, `${origin}/r/${requestId}`)
  await look('5-receipt')

  await openStream(printed)
  service.press('\x03')
  await service.said(/1 request running; stopping when it ends, at most 30 s\. Press Ctrl-C again to stop now\./)
  await pause(pastDuplicatesMs)
  service.press('\x03')
  await service.said(/Stopping now: ending 1 request\./)
  await service.ended
  await until(() => leftovers(folder).length === 0)
})

/** What is committed, with the packages of this clone: they are linked, not downloaded again. The dashboard is not there yet. */
function cloneRepository(): void {
  execFileSync('git', ['clone', '--quiet', root, clone])
  for (const part of ['node_modules', 'web/node_modules', '.runtime']) {
    if (!existsSync(join(root, part))) continue
    // Hard links where the file systems allow them. A failed attempt leaves folders, into which the copy would go.
    const copy = 'cp -al "$0" "$1" 2>/dev/null || { rm -rf "$1"; cp -a "$0" "$1"; }'
    execFileSync('bash', ['-c', copy, join(root, part), join(clone, part)])
  }
  // Written in place when packages change: it must not be the same file.
  const marker = 'node_modules/.penny-packages.json'
  rmSync(join(clone, marker), { force: true })
  if (existsSync(join(root, marker))) copyFileSync(join(root, marker), join(clone, marker))
}

type Session = {
  readonly ended: Promise<unknown>
  press(keys: string): void
  /** What was printed so far, without colours, once it fits. */
  said(pattern: RegExp): Promise<string>
}

function startInTerminal(command: string): Session {
  // `script` gives the command a terminal of its own and keeps the transcript.
  const transcript = join(records, 'terminal.txt')
  const child = spawn('script', ['-qefc', `stty cols 120 rows 40; ${command}`, transcript], {
    cwd: clone,
    env: environment,
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  terminal = child
  let output = ''
  child.stdout.on('data', (text) => {
    output += text
  })
  return {
    ended: once(child, 'exit'),
    press: (keys) => void child.stdin.write(keys),
    said: (pattern) =>
      until(() => {
        const plain = stripVTControlCharacters(output).replaceAll('\r\n', '\n')
        if (pattern.test(plain)) return plain
        assert.equal(child.exitCode, null, `it ended: ${plain}`)
        return undefined
      }),
  }
}

type Look = (name: string) => Promise<unknown>

async function signIn(page: Page, origin: string, look: Look): Promise<void> {
  await page.goto(`${origin}/`)
  await page.getByTestId('prices').waitFor()
  await look('1-signed-out')
  await page.getByRole('link', { name: 'Sign in' }).first().click()
  await page.getByRole('button', { name: 'Continue as local developer' }).click()
  await atOverview(page)
  await page.locator('[data-row]').first().waitFor()
  await look('2-overview')
}

async function findRequest(page: Page, requestId: string): Promise<void> {
  await page.getByRole('link', { name: 'Requests', exact: true }).first().click()
  await page.getByTestId('request-row').first().click()
  await page.waitForURL(`**/requests/${requestId}**`)
  await page.getByTestId('explain').waitFor()
}

async function askInPlayground(page: Page): Promise<void> {
  await page.keyboard.press('Escape')
  await page.getByRole('link', { name: 'Playground', exact: true }).first().click()
  await page.getByRole('heading', { name: 'Playground', level: 1 }).waitFor()
  const question = page.getByRole('textbox', { name: /^(You|Message)$/ }).last()
  await question.fill('Say hello. [sandbox:say "Hello, newcomer."]')
  await page.getByRole('button', { name: 'Send' }).click()
  await page.getByTestId('answer').getByText('Hello, newcomer.').waitFor()
  await page.locator('[data-testid=final][data-charged]:not([data-charged="0"])').waitFor()
}

async function verifyReceipt(page: Page, address: string): Promise<void> {
  // Signed with the payment that covers the request, within seconds.
  await until(async () => {
    const answer = await fetch(address.replace('/r/', '/api/receipts/'))
    return answer.ok && 'payment' in ((await answer.json()) as object)
  })
  await page.goto(address)
  await page.getByTestId('checks').waitFor()
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'Download JSON' }).click(),
  ])
  const file = join(folder, download.suggestedFilename())
  await download.saveAs(file)
  const verify = ['--no', 'penny', 'verify', file]
  const { stdout } = await promisify(execFile)('npx', verify, { cwd: clone, env: environment })
  assert.match(stdout, /^The receipt is valid\.$/m)
}

/** Resolves with the first piece of an answer that takes a minute. */
async function openStream(printed: string): Promise<void> {
  const baseUrl = printed.match(/Base URL {3}(\S+)/)![1]!
  const apiKey = printed.match(/API key {4}(\S+)/)![1]!
  const messages = [{ role: 'user', content: 'Tell me all. [sandbox:tokens 4000]' }]
  const answer = await fetch(`${baseUrl}/chat/completions`, {
    method: 'POST',
    body: JSON.stringify({ stream: true, web_search: false, web_fetch: false, max_tokens: 6000, messages }),
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
  })
  assert.equal(answer.status, 200)
  const reader = answer.body!.getReader()
  await reader.read()
  // Read on, so that the service is not held up by us; it ends when the service does.
  void (async () => {
    while (!(await reader.read()).done);
  })().catch(() => {})
}
