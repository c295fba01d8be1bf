import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { inspect } from 'node:util'
import { atEnd } from '../../test/support/at-end.ts'
import {
  describeConfig,
  embeddedDefaults,
  isMasterKeyInline,
  readConfig,
  refuseEmbeddedInProduction,
  removeSecrets,
} from './config.ts'
import { InvalidConfigError } from './setting.ts'
import { type SettingName, settings } from './settings.ts'

const key = 'ab'.repeat(32)
const chain = {
  CHAIN_RPC_URL: 'http://127.0.0.1:8545',
  GATEWAY_URL: 'http://127.0.0.1:9000',
  USDC_ADDRESS: `0x${'3'.repeat(40)}`,
  GATEWAY_WALLET_ADDRESS: `0x${'4'.repeat(40)}`,
}

test('with nothing set every embedded default is in use', () => {
  const config = readConfig({})
  assert.deepEqual(embeddedDefaults(config), [
    'DATABASE_URL',
    'UPSTREAM_BASE_URL',
    'CHAIN_RPC_URL',
    'SEARCH_PROVIDER',
    'MASTER_KEY',
  ])
  assert.deepEqual(
    [config.port, config.host, config.inFlightCap, config.unsettledCap],
    [8_402, '127.0.0.1', 1_000_000n, 5_000_000n],
  )
  assert.deepEqual([config.keepaliveAfterMs, config.leaseMs], [45_000, 15_000])
})

/** An environment of a real chain and a gateway, with which every setting is read by the service or the gateway. */
const everySetting = {
  CHAIN_RPC_URL: 'http://127.0.0.1:8545',
  GATEWAY_URL: 'http://127.0.0.1:9000',
  USDC_ADDRESS: `0x${'3'.repeat(40)}`,
  GATEWAY_WALLET_ADDRESS: `0x${'4'.repeat(40)}`,
  DATABASE_URL: 'postgresql://127.0.0.1/penny',
  MASTER_KEY: key,
  GATEWAY_TOKEN: key,
  GATEWAY_RELAYER_KEY: key,
  SEARCH_PROVIDER: 'exa,brave,tavily,searxng',
  EXA_API_KEY: key,
  BRAVE_API_KEY: key,
  TAVILY_API_KEY: key,
  SEARXNG_URL: 'http://127.0.0.1:8080',
}

test('every setting of the reference is read', () => {
  const entries = (['service', 'gateway'] as const).flatMap((reader) => describeConfig(everySetting, reader))
  assert.deepEqual(new Set(entries.map(({ name }) => name)), new Set(Object.keys(settings) as SettingName[]))
})

test('a setting is described with its range, and a value beyond it is refused', () => {
  assert.deepEqual([settings.REPLAY_HOURS.range, settings.SWEEP_MIN_USDC.range], ['1 to 24', 'above 0'])
  assert.throws(() => readConfig({ REPLAY_HOURS: '25' }), /from 1 to 24/)
})

test('a production start on embedded defaults is refused, unless explicitly allowed', () => {
  const config = readConfig({ NODE_ENV: 'production' })
  assert.throws(() => refuseEmbeddedInProduction(config, false), /DATABASE_URL.*--allow-embedded/)
  refuseEmbeddedInProduction(config, true)
  refuseEmbeddedInProduction(readConfig({}), false)
})

test('every secret is removed from the environment, and nothing else', () => {
  const secrets = {
    DATABASE_URL: 'postgresql://penny:password@127.0.0.1/penny',
    UPSTREAM_API_KEY: key,
    MASTER_KEY: key,
    METRICS_TOKEN: key,
    GATEWAY_TOKEN: key,
    GATEWAY_RELAYER_KEY: key,
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=x',
    EXA_API_KEY: key,
    BRAVE_API_KEY: key,
    TAVILY_API_KEY: key,
    SMTP_URL: 'smtp://penny:password@127.0.0.1:25',
    CHAIN_RPC_URL: 'http://127.0.0.1:1/v2/key',
  }
  const { CHAIN_RPC_URL: _, ...others } = chain
  const rest = { ...others, UPSTREAM_BASE_URL: 'http://127.0.0.1:1', SEARCH_PROVIDER: 'exa,brave,tavily', PATH: '/bin' }
  const environment: Record<string, string> = { ...secrets, ...rest }
  const hidden = (['service', 'gateway'] as const).flatMap((reader) =>
    describeConfig(environment, reader).filter(({ value }) => value?.includes('(hidden)')),
  )
  for (const { name } of hidden) assert.ok(name in secrets, name)
  for (const [name, setting] of Object.entries(settings)) assert.ok(!('isSecret' in setting) || name in secrets, name)
  removeSecrets(environment)
  assert.deepEqual(environment, rest)
})

test('several chain nodes are read in order, and none may be an invalid address', () => {
  const read = (urls: string) => readConfig({ ...chain, MASTER_KEY: 'a'.repeat(64), CHAIN_RPC_URL: urls })
  assert.equal(
    read('https://one.example/v2/, http://two.example').chain?.rpcUrl,
    'https://one.example/v2,http://two.example',
  )
  assert.equal(
    read('https://one.example, wss://one.example/ws/').chain?.rpcUrl,
    'https://one.example,wss://one.example/ws',
  )
  assert.throws(() => read('https://one.example,two.example'), /CHAIN_RPC_URL must be an http or https address/)
  assert.throws(() => read('wss://one.example'), /CHAIN_RPC_URL must have an http or https address/)
})

test('a master key in a variable is noticed in production; one in a file is not', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'penny-config-'))
  atEnd(t, () => rmSync(folder, { recursive: true, force: true }))
  const file = join(folder, 'key')
  writeFileSync(file, 'ab'.repeat(32))
  const inline = { ...chain, MASTER_KEY: 'ab'.repeat(32) }
  assert.equal(isMasterKeyInline(readConfig({ ...inline, NODE_ENV: 'production' })), true)
  assert.equal(isMasterKeyInline(readConfig(inline)), false)
  assert.equal(isMasterKeyInline(readConfig({ ...chain, NODE_ENV: 'production', MASTER_KEY_FILE: file })), false)
})

test('PUBLIC_URL is only scheme and host: links and the address for clients are made from it', () => {
  for (const url of [
    'https://router.example.com/v1',
    'https://me:secret@router.example.com',
    'https://a.example?secret',
  ])
    assert.throws(
      () => readConfig({ PUBLIC_URL: url }),
      ({ message }: Error) => message.startsWith('PUBLIC_URL must be') && !message.includes('secret'),
    )
  for (const url of ['https://router.example.com/', 'http://127.0.0.1:8402'])
    assert.equal(readConfig({ PUBLIC_URL: url }).publicUrl, new URL(url).origin)
})

test('a bad value stops the start with one line that names it', () => {
  const wrong: Record<string, Record<string, string>> = {
    PORT: { PORT: 'http' },
    PUBLIC_URL: { PUBLIC_URL: 'penny.example' },
    DATABASE_URL: { DATABASE_URL: 'mysql://x' },
    LEDGER_PARTITIONS: { LEDGER_PARTITIONS: '0' },
    UPSTREAM_BASE_URL: { UPSTREAM_API_KEY: 'sk-1' },
    UPSTREAM_PROTOCOL: { UPSTREAM_PROTOCOL: 'soap' },
    GATEWAY_URL: { CHAIN_RPC_URL: 'http://127.0.0.1:1', MASTER_KEY: 'a'.repeat(64) },
    USDC_ADDRESS: { ...chain, USDC_ADDRESS: '0x1', MASTER_KEY: 'a'.repeat(64) },
    MASTER_KEY: chain,
    EXA_API_KEY: { SEARCH_PROVIDER: 'exa' },
    SEARCH_PROVIDER: { SEARCH_PROVIDER: 'altavista' },
    IN_FLIGHT_CAP_USDC: { IN_FLIGHT_CAP_USDC: '0' },
    KEEPALIVE_AFTER_MS: { KEEPALIVE_AFTER_MS: '-1' },
    TRUST_PROXY: { TRUST_PROXY: 'maybe' },
    LOG_LEVEL: { LOG_LEVEL: 'loud' },
    FAILPOINT: { FAILPOINT: 'on_chunk:0' },
  }
  for (const [name, environment] of Object.entries(wrong)) {
    assert.throws(
      () => readConfig(environment),
      (error) => error instanceof InvalidConfigError && error.message.includes(name) && !error.message.includes('\n'),
      name,
    )
  }
})

test('a failpoint is never armed in production', () => {
  assert.deepEqual(readConfig({ FAILPOINT: 'on_chunk:3' }).failpoint, { name: 'on_chunk', reach: 3 })
  assert.throws(() => readConfig({ FAILPOINT: 'on_chunk', NODE_ENV: 'production' }), /Do not set it in production/)
})

test('a secret can be in a file or in the variable, but not in both', () => {
  const folder = mkdtempSync(join(tmpdir(), 'penny-config-'))
  const file = join(folder, 'key')
  writeFileSync(file, 'sk-secret\n')
  const upstream = { UPSTREAM_BASE_URL: 'https://upstream.example/v1/', UPSTREAM_API_KEY_FILE: file }
  assert.deepEqual(readConfig(upstream).upstream, {
    baseUrl: 'https://upstream.example/v1',
    apiKey: 'sk-secret',
    protocol: 'responses',
  })
  assert.throws(() => readConfig({ ...upstream, UPSTREAM_API_KEY: 'sk-2' }), /both set/)
  writeFileSync(file, '')
  assert.throws(() => readConfig(upstream), /empty/)
  rmSync(folder, { recursive: true })
  assert.throws(() => readConfig(upstream), /cannot be read/)
})

test('only a machine that settles needs and reads the master key', () => {
  const web = { ...chain, ROLES: 'web' }
  const config = readConfig(web)
  assert.deepEqual([config.masterKey, config.isMasterKeyIgnored], [undefined, false])
  assert.ok(!embeddedDefaults(config).includes('MASTER_KEY'))
  for (const given of [{ MASTER_KEY: 'ab'.repeat(32) }, { MASTER_KEY: 'nonsense' }, { MASTER_KEY_FILE: '/absent' }]) {
    const { masterKey, isMasterKeyIgnored } = readConfig({ ...web, ...given })
    assert.deepEqual([masterKey, isMasterKeyIgnored], [undefined, true])
  }
  assert.throws(() => readConfig({ ...chain, ROLES: 'web,jobs' }), /MASTER_KEY must be set/)
  assert.deepEqual(readConfig({ ...chain, MASTER_KEY: 'ab'.repeat(32) }).masterKey, { value: 'ab'.repeat(32) })
})

test('every machine serves requests, and one with jobs settles too', () => {
  for (const ROLES of ['jobs', 'sign', 'web,sign']) assert.throws(() => readConfig({ ROLES }), /ROLES must/, ROLES)
  assert.deepEqual(
    [undefined, 'web,jobs', 'jobs, web', 'web'].map((ROLES) => readConfig({ ROLES }).settles),
    [true, true, true, false],
  )
})

// The process that serves clients keeps the configuration for its whole life.
test('a master key in a file stays there: the configuration only has its path', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'penny-config-'))
  atEnd(t, () => rmSync(folder, { recursive: true, force: true }))
  const file = join(folder, 'master-key')
  const environment = { ...chain, MASTER_KEY_FILE: file }
  writeFileSync(file, 'ab'.repeat(32))
  const config = readConfig(environment)
  assert.deepEqual(config.masterKey, { file })
  assert.doesNotMatch(inspect([config, describeConfig(environment)], { depth: null }), /abab/)
  assert.throws(() => readConfig({ ...environment, MASTER_KEY: 'ab'.repeat(32) }), /both set/)
  writeFileSync(file, '')
  assert.throws(() => readConfig(environment), /MASTER_KEY_FILE names an empty file/)
  rmSync(file)
  assert.throws(() => readConfig(environment), /MASTER_KEY_FILE cannot be read/)
})

test('search providers are a list in order of preference, each with what it needs', () => {
  const environment = { SEARCH_PROVIDER: 'brave, searxng', BRAVE_API_KEY: 'key', SEARXNG_URL: 'http://search:8080/' }
  assert.deepEqual(readConfig(environment).search, [
    { provider: 'brave', credential: 'key' },
    { provider: 'searxng', credential: 'http://search:8080' },
  ])
  for (const wrong of ['brave,brave', 'brave,', 'brave,exa', 'brave,altavista']) {
    assert.throws(
      () => readConfig({ ...environment, SEARCH_PROVIDER: wrong }),
      /SEARCH_PROVIDER must be .*, or none, got|EXA_API_KEY/,
      wrong,
    )
  }
})

test('the gateway reads its own variables, and the service reads none of those', () => {
  const { GATEWAY_URL: _, ...own } = chain
  const environment = {
    ...own,
    DATABASE_URL: 'postgres://x',
    GATEWAY_RELAYER_KEY: 'b'.repeat(64),
    GATEWAY_TOKEN: 't'.repeat(32),
    HOST: '0.0.0.0',
  }
  const { gateway } = readConfig(environment, 'gateway')
  assert.deepEqual([gateway!.port, gateway!.batchMs, gateway!.relayerKey], [8_403, 2_000, `0x${'b'.repeat(64)}`])
  assert.deepEqual([gateway!.host, gateway!.payees, gateway!.token], ['127.0.0.1', undefined, 't'.repeat(32)])
  const seller = `0x${'c'.repeat(40)}`
  const payeesOf = (changes: object) => readConfig({ ...environment, ...changes }, 'gateway').gateway!.payees
  assert.deepEqual(payeesOf({ SELLER_ADDRESS: seller }), [seller])
  const payees = `${seller}, 0x${'d'.repeat(40)}`
  assert.deepEqual(payeesOf({ SELLER_ADDRESS: seller, GATEWAY_PAYEES: payees }), payees.split(', '))
  assert.throws(() => payeesOf({ GATEWAY_PAYEES: `${seller},` }), /GATEWAY_PAYEES must be addresses/)
  assert.throws(() => payeesOf({ GATEWAY_TOKEN: 'short' }), /GATEWAY_TOKEN must have 32 to 512 characters/)
  assert.throws(() => payeesOf({ GATEWAY_TOKEN: '' }), /needs settings that are not set: GATEWAY_TOKEN/)
  assert.throws(() => readConfig(environment), /GATEWAY_URL must be set too/)
  assert.throws(() => readConfig({ ...environment, GATEWAY_RELAYER_KEY: '0x12' }, 'gateway'), /GATEWAY_RELAYER_KEY/)
  assert.equal(readConfig({}).gateway, undefined)
})
