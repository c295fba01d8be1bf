import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { after, before, type TestContext, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { loadPriceList } from '../../src/billing/price-list.ts'
import { readConfig, refuseEmbeddedInProduction } from '../../src/config/config.ts'
import { locateEmbeddedPostgres } from '../../src/db/embedded-postgres.ts'
import { loadCatalog } from '../../src/run/catalog.ts'
import { childEnvironment, pennyProgram } from '../support/child-environment.ts'
import { type Block, isOutput, purposeOf, readBlocks } from './guide-blocks.ts'

// Every guide is followed to the letter, in order, against one sandbox that was started as the quickstart says. What a guide
// shows as output must have been printed. Blocks that are not run say so in their fence.

const root = fileURLToPath(new URL('../..', import.meta.url))
const guides = join(root, 'docs/guides')
const folder = mkdtempSync(join(tmpdir(), 'penny-guides-'))
const dataDir = join(folder, '.penny')
/** A withdrawal waits for blocks; on a busy machine more than a minute. */
const blockMsMax = 5 * 60_000
const hasPython =
  process.platform !== 'win32' &&
  (process.env.PATH ?? '').split(delimiter).some((place) => existsSync(join(place, 'python3')))

let service: ChildProcess | undefined
let ledgerUrl = ''

before(async () => {
  mkdirSync(join(folder, 'bin'))
  writeFileSync(
    join(folder, 'bin/penny'),
    `#!/bin/sh\nexec ${[process.execPath, ...pennyProgram()].map((word) => `"${word}"`).join(' ')} "$@"\n`,
  )
  chmodSync(join(folder, 'bin/penny'), 0o755)
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'))
  service = spawn(join(folder, 'bin/penny'), ['start'], {
    cwd: folder,
    env: {
      ...environment(),
      PORT: '0',
      SANDBOX_TOKENS_PER_SECOND: '400',
      SANDBOX_PROVIDERS: '2',
      GATEWAY_BATCH_MS: '300',
      LOG_LEVEL: 'silent',
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  await untilPrinted(service, 'Ctrl-C stops everything.')
  ledgerUrl = (await locateEmbeddedPostgres(dataDir))!
})

after(async () => {
  if (service?.exitCode === null) {
    service.kill('SIGTERM')
    await once(service, 'exit')
  }
  rmSync(folder, { recursive: true, force: true })
})

for (const file of readdirSync(guides).filter((name) => name.endsWith('.md'))) {
  const markdown = readFileSync(join(guides, file), 'utf8')
  const [, title] = /^# (.+)$/m.exec(markdown)!
  test(`“${title}”: every command runs, and prints what the guide shows`, (context) => follow(context, file, markdown))
}

// An account that used the service has credit, and a request paid from credit is never settled on its own.
test('“Verifying a receipt” works too for an account whose request is paid from credit', async (context) => {
  const { base_url: baseUrl, api_key: apiKey } = JSON.parse(readFileSync(join(dataDir, 'sandbox.json'), 'utf8'))
  const answer = await fetch(`${baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ max_tokens: 50_000, messages: [{ role: 'user', content: 'Hi [sandbox:tokens 3]' }] }),
  })
  assert.equal(answer.status, 200)
  await follow(context, 'receipts.md', readFileSync(join(guides, 'receipts.md'), 'utf8'))
  const { entry } = JSON.parse(readFileSync(join(folder, 'receipt.json'), 'utf8'))
  assert.ok(BigInt(entry.from_credit_atomic) > 0n && BigInt(entry.amount_atomic) > 0n)
})

test('links between the pages of the documentation lead somewhere', () => {
  const files = readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.md'),
  )
  const broken = files.flatMap((file) => {
    const text = readFileSync(join(root, 'docs', file), 'utf8')
    const targets = [...text.matchAll(/\]\((?!\w+:|#|\/)([^()\s#]+)/g)].map((match) => match[1]!)
    return targets
      .filter((target) => !existsSync(join(root, 'docs', dirname(file), target)))
      .map((target) => `${file} → ${target}`)
  })
  assert.deepEqual(broken, [])
})

async function follow(context: TestContext, file: string, markdown: string): Promise<void> {
  const state = join(folder, `${file}.state`)
  let printed = ''
  for (const block of readBlocks(markdown)) {
    const place = `docs/guides/${file}:${block.line}`
    switch (purposeOf(block)) {
      case 'run':
        if (block.language === 'python' && !hasPython) context.diagnostic(`${place} was not run: there is no python3`)
        else printed = await run(block, state, place)
        break
      case 'output':
        assert.ok(isOutput(block.text, printed), `${place} shows\n${block.text}\nand what was printed is\n${printed}`)
        break
      case 'config':
        refuseEmbeddedInProduction(readConfig(settingsOf(block)), false)
        break
      case 'models':
        writeFileSync(join(folder, 'models.json'), block.text)
        assert.ok(loadPriceList(join(folder, 'models.json')).models.size > 0)
        break
      case 'providers': {
        const file = join(folder, 'providers.json')
        writeFileSync(file, block.text)
        assert.deepEqual(loadCatalog(readConfig({ PROVIDERS_FILE: file })).warnings, [])
        break
      }
      case 'not-run':
        break
      default:
        assert.fail(`${place} is neither run nor marked "not-run": \`\`\`${block.language} ${block.mark}`)
    }
  }
}

/** Runs a block as a reader would, in one shell for the whole guide: what a block exports, the next ones have. */
async function run(block: Block, state: string, place: string): Promise<string> {
  const source = join(folder, block.language === 'js' ? 'block.mjs' : 'block.src')
  writeFileSync(source, block.text)
  const command = { sh: `. "${source}"`, js: `"${process.execPath}" "${source}"`, python: `python3 "${source}"` }[
    block.language
  ]!
  const script = `[ -f "${state}" ] && . "${state}"; set -ae; trap 'export -p > "${state}"' EXIT; ${command}`
  const shell = spawn('sh', ['-c', script], {
    cwd: folder,
    env: environment(),
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: blockMsMax,
  })
  let [printed, complaint] = ['', '']
  shell.stdout.on('data', (text) => {
    printed += text
  })
  shell.stderr.on('data', (text) => {
    complaint += text
  })
  const [code] = (await once(shell, 'close')) as [number | null]
  assert.equal(code, 0, `${place} failed:\n${printed}\n${complaint}`)
  return printed
}

/** The settings of a guide, with a file that exists in the place of each secret. */
function settingsOf({ text }: Block): Record<string, string> {
  const lines = text.split('\n').filter((line) => line.includes('='))
  return Object.fromEntries(
    lines.map((line) => {
      const [name = '', ...value] = line.split('=')
      if (!name.endsWith('_FILE') || name === 'MODELS_FILE') return [name, value.join('=')]
      const secret = join(folder, name)
      writeFileSync(secret, name === 'DATABASE_URL_FILE' ? 'postgresql://penny@db/penny' : 'ab'.repeat(32))
      return [name, secret]
    }),
  )
}

function environment(): NodeJS.ProcessEnv {
  return {
    ...childEnvironment,
    PATH: [join(folder, 'bin'), dirname(process.execPath), process.env.PATH ?? ''].join(delimiter),
    HOME: folder,
    LEDGER_URL: ledgerUrl,
  }
}

async function untilPrinted({ stdout }: ChildProcess, line: string): Promise<void> {
  let printed = ''
  for await (const text of stdout!) {
    printed += String(text)
    if (printed.includes(line)) break
  }
  assert.ok(printed.includes(line), `the service did not start:\n${printed}`)
}
