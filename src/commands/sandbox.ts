import { randomUUID } from 'node:crypto'
import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts'
import {
  type ModelFailure,
  modelFailures,
  NoSandboxError,
  SandboxRefusalError,
  sandboxClient,
} from '../../sandbox/client.ts'
import type { Config } from '../config/config.ts'
import type { Database } from '../db/database.ts'
import { createKey, listKeys } from '../identity/api-keys.ts'
import { KeyFinder } from '../identity/key-finder.ts'
import { type Account, findAccount } from '../ledger/accounts.ts'
import { dateBack } from '../ledger/demo-account.ts'
import { Holds } from '../ledger/holds.ts'
import { endLease } from '../ledger/nodes.ts'
import { parse } from '../money/usdc.ts'
import { loadCatalog } from '../run/catalog.ts'
import { type Command, CommandError, type Output } from './command.ts'
import { faucetCommand } from './faucet.ts'
import { type PlannedRequest, plannedKeys, planTraffic, seededRandom } from './replay-plan.ts'
import { Replayer } from './replayer.ts'
import { readSandboxFile } from './sandbox-file.ts'
import { interruptedCode, untilStopped } from './stop-signal.ts'
import { withDatabase } from './with-database.ts'
import { withdrawCommand } from './withdraw.ts'

const daysMax = 90
const perDayMax = 1_000

export const sandboxCommand: Command = {
  usage: [
    [
      'penny sandbox fail HOW',
      'Make the sandbox model fail: kill, hang, slow, 429, 500 or garbage. "off" restores it. With SANDBOX_PROVIDERS=2 the backup provider answers',
    ],
    [
      'penny sandbox replay',
      'Add 30 days of example requests to the demo account, with past times, through the real ledger. Also makes two deposits and a withdrawal, on chain and dated today. Each run adds another set with its own keys. Needs a running sandbox',
    ],
    ['--days N', `Number of days, 1 to ${daysMax} (default: 30)`],
    ['--per-day N', 'Requests on an average day (default: 40)'],
    ['--seed N', 'Seed of the random numbers (default: 1)'],
  ],
  options: { days: { type: 'string' }, 'per-day': { type: 'string' }, seed: { type: 'string' } },
  wordsMax: 2,
  async run({ words: [verb, how], options, config, output }) {
    if (verb === 'fail') return letFail(config, how, output)
    if (verb !== 'replay' || how !== undefined)
      throw new CommandError('Use penny sandbox fail HOW, or penny sandbox replay.', 2)
    const days = readCount('days', options.days ?? '30', daysMax)
    const perDay = readCount('per-day', options['per-day'] ?? '40', perDayMax)
    const seed = readCount('seed', options.seed ?? '1', 1_000_000)
    const apiKey = await refuseUnlessSandbox(config)
    const stop = untilStopped()
    const plan = planTraffic(days, perDay, Date.now(), seededRandom(seed))
    if (plan.length === 0)
      throw new CommandError('None of these requests would be in the past yet. Use more --days or --per-day.', 2)
    // One connection: the clock of the replay is a setting of its session.
    const replay = (database: Database) => replayPlan({ database, config, apiKey, plan, output }, stop)
    return withDatabase(config, replay, { poolMax: 1 })
  },
}

const slowMs = 10_000

async function letFail({ dataDir }: Config, how: string | undefined, output: Output): Promise<number> {
  const failure = modelFailures.find((one) => one === how)
  if (failure === undefined && how !== 'slow' && how !== 'off')
    throw new CommandError(
      `${how === undefined ? 'How should the model fail?' : `Unknown failure "${how}".`} Use one of ${Object.keys(failureWords).join(', ')}.`,
      2,
    )
  const client = sandboxClient(dataDir)
  try {
    await client.fail(failure)
    await client.slow(how === 'slow' ? slowMs : 0)
  } catch (error) {
    throw error instanceof NoSandboxError || error instanceof SandboxRefusalError
      ? new CommandError(error.message)
      : error
  }
  const line = failureWords[how as keyof typeof failureWords]
  if (output.json) output.write(`${JSON.stringify({ failure: how === 'off' ? null : how })}\n`)
  else output.write(how === 'off' ? `${line}\n` : `${line} Undo: penny sandbox fail off\n`)
  return 0
}

/** What each failure does to the next requests. */
const failureWords: Readonly<Record<ModelFailure | 'slow' | 'off', string>> = {
  kill: 'The sandbox model now cuts every connection.',
  hang: 'The sandbox model now accepts requests and never answers.',
  slow: `The sandbox model now waits ${slowMs / 1000} s before each answer.`,
  '429': 'The sandbox model now answers every request with 429.',
  '500': 'The sandbox model now answers every request with 500.',
  garbage: 'The sandbox model now sends streams that cannot be parsed.',
  off: 'The sandbox model answers normally.',
}

type Replay = {
  readonly database: Database
  readonly config: Config
  readonly apiKey: string
  readonly plan: readonly PlannedRequest[]
  readonly output: Output
}

async function replayPlan(replay: Replay, signal: AbortSignal): Promise<number> {
  const { database, config, plan, output } = replay
  const account = await demoAccount(replay)
  await moveMoney(faucetCommand, replay, { account: account.id, amount: '10' })
  const firstMs = plan[0]?.atMs ?? Date.now()
  const payers = await createKeys(database, account)
  const keyIds = payers.map(({ keyId }) => keyId)
  await dateBack(database, account, keyIds, new Date(firstMs))
  const prices = loadCatalog(config).prices
  const node = randomUUID()
  const holds = new Holds({
    database,
    node,
    priceVersion: prices.version,
    inFlightCap: config.inFlightCap,
  })
  const replayer = new Replayer({ database, holds, node, prices, payers })
  try {
    await replayer.start()
    for (const [index, request] of plan.entries()) {
      if (signal.aborted) break
      await replayer.run(request)
      showProgress(index + 1, plan.length, request.atMs)
    }
  } finally {
    await holds.drained()
    await replayer.stop()
    await endLease(database, node)
  }
  const { counts } = replayer
  const isWhole = !signal.aborted
  if (isWhole) await moveFunds(replay, account)
  output.write(
    output.json
      ? `${JSON.stringify({ account_id: account.id, complete: isWhole, ...counts })}\n`
      : `${isWhole ? 'Added' : 'Interrupted. Added'} ${counts.requests} requests since ${day(firstMs)} to ${account.name}: ${counts.refused} refused, ${counts.cancelled} cancelled, ${counts.failed} failed.\n`,
  )
  return isWhole ? 0 : interruptedCode
}

/** Throws unless a sandbox is running. Returns the key of its demo account. */
async function refuseUnlessSandbox(config: Config): Promise<string> {
  if (config.production || config.chain !== undefined)
    throw new CommandError(
      'penny sandbox works only in the sandbox, not in production and not with an external chain or gateway.',
    )
  const known = readSandboxFile(config.dataDir)
  const session = await fetch(`${known?.base_url.replace(/\/v1$/, '')}/api/session`)
    .then((response) => response.json() as Promise<{ environment?: string }>)
    .catch(() => undefined)
  if (known === undefined || session?.environment !== 'sandbox')
    throw new CommandError(`No sandbox is running on ${config.dataDir}. Start it with penny start.`)
  return known.api_key
}

/** Identified by the key of the running sandbox: a database that does not know this key is not the sandbox's. */
async function demoAccount({ database, apiKey }: Replay): Promise<Account> {
  const bearer = await new KeyFinder({ database, now: Date.now }).find(apiKey)
  return (await findAccount(database, bearer.partition, bearer.accountId))!
}

/** New keys for each replay. */
async function createKeys(database: Database, account: Account) {
  const names = (await listKeys(database, account.id)).map(({ name }) => name)
  const payers = []
  for (const { name, limit, limitWindow } of plannedKeys) {
    const earlier = names.filter((known) => known === name || known.startsWith(`${name} `)).length
    const { id } = await createKey(database, {
      partition: account.partition,
      accountId: account.id,
      name: earlier === 0 ? name : `${name} ${earlier + 1}`,
      limit: limit === undefined ? undefined : parse(limit),
      limitWindow,
    })
    payers.push({ partition: account.partition, accountId: account.id, keyId: id })
  }
  return payers
}

/** Deposits and the withdrawal are on the chain, so they cannot be in the past. */
async function moveFunds(replay: Replay, account: Account): Promise<void> {
  await moveMoney(faucetCommand, replay, { account: account.id, amount: '5' })
  const to = account.ownerAddress === undefined ? { to: privateKeyToAddress(generatePrivateKey()) } : {}
  await moveMoney(withdrawCommand, replay, { account: account.id, amount: '1', yes: true, ...to })
}

async function moveMoney(command: Command, { config, output }: Replay, options: Record<string, string | boolean>) {
  const quiet: Output = { ...output, json: true, write: () => {} }
  await command.run({ words: [], options, config, output: quiet })
}

function showProgress(done: number, all: number, atMs: number): void {
  const { stderr } = process
  const isLast = done === all
  if (stderr.isTTY) stderr.write(`\r\x1b[2K  Replaying ${day(atMs)}: ${done} of ${all} requests${isLast ? '\n' : ''}`)
  else if (isLast || done % 250 === 0) stderr.write(`  Replaying ${day(atMs)}: ${done} of ${all} requests\n`)
}

function day(ms: number): string {
  return new Date(ms).toISOString().slice(0, 10)
}

function readCount(name: string, text: string | boolean, max: number): number {
  const count = Number(text)
  if (Number.isInteger(count) && count >= 1 && count <= max) return count
  throw new CommandError(`--${name} must be a whole number from 1 to ${max}. Got "${text}".`, 2)
}
