import assert from 'node:assert/strict'
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { buildPackage } from '../bin/build-package.ts'

// The package as the world gets it: packed, laid below a node_modules of its own, and run. Its dependencies are those of this clone,
// linked, so that no network is needed; `npm install` of the tarball itself is not part of this.

const root = fileURLToPath(new URL('..', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'penny-package-'))
const installed = join(folder, 'node_modules/penny')
const command = join(installed, 'bin/penny.mjs')
const environment = {
  PATH: process.env.PATH,
  HOME: folder,
  DATA_DIR: join(folder, 'data'),
  PORT: '0',
  LOG_LEVEL: 'silent',
}
const execute = promisify(execFile)
let files: readonly string[] = []
let service: ChildProcess | undefined

before(async () => {
  const staging = join(folder, 'staging')
  buildPackage(staging)
  const { stdout } = await execute('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', folder], {
    cwd: staging,
  })
  const [packed] = JSON.parse(stdout) as [{ filename: string; files: { path: string }[] }]
  files = packed.files.map(({ path }) => path)
  mkdirSync(installed, { recursive: true })
  await execute('tar', ['-xzf', join(folder, packed.filename), '-C', installed, '--strip-components=1'])
  for (const name of readdirSync(join(root, 'node_modules')).filter(
    (entry) => entry !== 'penny' && !entry.startsWith('.'),
  ))
    symlinkSync(join(root, 'node_modules', name), join(folder, 'node_modules', name))
})

after(async () => {
  if (service?.exitCode === null) {
    service.kill('SIGTERM')
    await once(service, 'exit')
  }
  rmSync(folder, { recursive: true, force: true })
})

test('the package holds what is run and read, and nothing else', () => {
  for (const file of [
    'bin/penny.mjs',
    'src/main.js',
    'migrations/0001_baseline.sql',
    'migrations/functions/place_holds.sql',
    'web/dist/index.html',
    'docs/guides/quickstart.md',
    'deploy/systemd/penny.service',
    'deploy/helm/penny/templates/web.yaml',
    'deploy/prometheus/alerts.yaml',
    'openapi.json',
    'LICENSE',
    'README.md',
  ])
    assert.ok(files.includes(file), file)
  const strange = files.filter((file) =>
    /\.ts$|\.test\.|__fixtures__|^test\/|^web\/src|^bench|^deploy\/secrets|package-lock|\.env|\.key$/.test(file),
  )
  assert.deepEqual(strange, [])
  const manifest = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8')) as Record<string, unknown>
  assert.deepEqual(
    [manifest.private, manifest.scripts, manifest.devDependencies, manifest.publishConfig],
    [undefined, undefined, undefined, { access: 'public', provenance: true }],
  )
})

test('no file of the package names one that is not there', () => {
  const missing = files
    .filter((file) => /^(src|gateway|sandbox)\/.*\.js$/.test(file))
    .flatMap((file) => {
      const source = readFileSync(join(installed, file), 'utf8')
      const targets = [...source.matchAll(/(?:from |import\(|new URL\()'(\.{1,2}\/[^']+\.\w+)'/g)].map(
        (match) => match[1]!,
      )
      return targets
        .filter((target) => !files.includes(join(file, '..', target)))
        .map((target) => `${file} → ${target}`)
    })
  assert.deepEqual(missing, [])
})

test('installed, pages are read in a process without permissions', async () => {
  const path = join(installed, 'src/tools/page-reader.js')
  const { createPageReader } = (await import(pathToFileURL(path).href)) as typeof import('../src/tools/page-reader.ts')
  const reader = createPageReader()
  const read = (kind: 'html' | 'pdf', text: string) =>
    reader.read(
      { kind, body: Buffer.from(text), contentType: '', url: 'https://site.example/', charactersMax: 100 },
      new AbortController().signal,
      'a',
    )
  try {
    assert.equal((await read('html', '<p>installed</p>')).text, 'installed')
    // The parser was loaded, and says what is wrong with this one.
    await assert.rejects(read('pdf', 'not one'), (error: Error) => /PDF/.test(String(error.cause)))
  } finally {
    await reader.close()
  }
})

test('installed without the chain of the sandbox, as in production, a start without a real chain says what to do', async () => {
  const hardhat = join(folder, 'node_modules/hardhat')
  rmSync(hardhat)
  try {
    await assert.rejects(
      execute(process.execPath, [command, 'start'], { env: environment }),
      /penny: The chain of the sandbox is not installed.*npm install hardhat.*CHAIN_RPC_URL/,
    )
  } finally {
    symlinkSync(join(root, 'node_modules/hardhat'), hardhat)
  }
})

test('installed, the command helps, starts, serves a paid request, its dashboard and its documentation', async () => {
  const { stdout } = await execute(process.execPath, [command, '--help'], { env: environment })
  assert.match(stdout, /^ {2}start +start the service/m)
  service = spawn(process.execPath, [command, 'start', '--json'], {
    env: environment,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [line] = (await once(service.stdout!, 'data')) as [Buffer]
  const { base_url: baseUrl, api_key: apiKey } = JSON.parse(String(line)) as { base_url: string; api_key: string }
  const answer = await fetch(`${baseUrl}/chat/completions`, {
    method: 'POST',
    body: JSON.stringify({ messages: [{ role: 'user', content: 'Hi [sandbox:tokens 5]' }] }),
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
  })
  assert.equal(answer.status, 200)
  assert.ok(Number(answer.headers.get('x-router-charged-usdc')) > 0)
  for (const path of ['/', '/docs/guides/quickstart', '/docs/api', '/openapi.json'])
    assert.equal((await fetch(new URL(path, baseUrl))).status, 200, path)
})
