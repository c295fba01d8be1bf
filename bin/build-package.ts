import { spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { stripTypeScriptTypes } from 'node:module'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

// `npm run package`: makes the folder that is published. In a clone Node runs the TypeScript as it is; below node_modules it refuses
// to, so the package holds the same files with the types removed and line numbers unchanged.
//
//   npm run package && npm publish .package --provenance        (from a CI that can vouch for it)

const root = fileURLToPath(new URL('..', import.meta.url))

/** Copied unchanged. Everything else is left out: tests, tools, and the sources of the dashboard and the contracts. */
const copied = [
  'bin/penny.mjs',
  'bin/preflight.mjs',
  'bin/runtime.mjs',
  'src/site/docs/site.js',
  'src/site/docs/samples.json',
  'migrations',
  'docs',
  // Listed one by one: an operator's penny.env and secrets may be in the same folder. The Docker files are left out, because they build
  // from a clone.
  'deploy/Caddyfile',
  'deploy/grafana',
  'deploy/haproxy.cfg',
  'deploy/helm',
  'deploy/nginx.conf',
  'deploy/prometheus',
  'deploy/systemd',
  'web/dist',
  'openapi.json',
  'README.md',
  'ARCHITECTURE.md',
  'CHANGELOG.md',
  'CONTRIBUTING.md',
  'LICENSE',
  'gateway/migrations',
]
const stripped = ['src', 'gateway', 'sandbox', 'contracts/generated']

type Manifest = Readonly<Record<string, unknown>>

export function buildPackage(target: string): void {
  rmSync(target, { recursive: true, force: true })
  buildDashboard()
  for (const path of copied) cpSync(join(root, path), join(target, path), { recursive: true, filter: isShipped })
  for (const folder of stripped) for (const file of sourcesOf(folder)) stripInto(target, file)
  writeFileSync(join(target, 'package.json'), `${JSON.stringify(manifestOf(readManifest('.')), null, 2)}\n`)
}

/** Pictures are only for readers of the documentation on the web. */
function isShipped(source: string): boolean {
  return !source.startsWith(join(root, 'docs/pictures'))
}

function buildDashboard(): void {
  const { status } = spawnSync(process.execPath, [join(root, 'web/build.ts'), '--if-stale'], { stdio: 'inherit' })
  if (status !== 0 || !existsSync(join(root, 'web/dist/index.html')))
    throw new Error('the dashboard could not be built')
}

function sourcesOf(folder: string): readonly string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .map((name) => `${folder}/${name.replaceAll('\\', '/')}`)
    .filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts') && !file.includes('__fixtures__'))
}

/** Types become white space, so that lines and columns stay; names of our own files end in .js. */
function stripInto(target: string, file: string): void {
  const source = stripTypeScriptTypes(readFileSync(join(root, file), 'utf8'))
  const path = join(target, file.replace(/\.ts$/, '.js'))
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, source.replaceAll(/(['"])(\.{1,2}\/[^'"\n]+)\.ts\1/g, '$1$2.js$1'))
}

function readManifest(folder: string): Manifest {
  return JSON.parse(readFileSync(join(root, folder, 'package.json'), 'utf8')) as Manifest
}

/** The published package.json: the command and its dependencies. Only two documents can be imported. */
function manifestOf({
  name,
  version,
  description,
  license,
  type,
  bin,
  dependencies,
  optionalDependencies,
}: Manifest): Manifest {
  const { dependencies: sandboxDependencies } = readManifest('sandbox') as { dependencies: Record<string, string> }
  return {
    name,
    version,
    description,
    license,
    keywords: ['openai', 'chat-completions', 'inference', 'usdc', 'x402', 'pay-per-request'],
    type,
    bin,
    exports: { './openapi.json': './openapi.json', './package.json': './package.json' },
    files: [
      'bin',
      'src',
      'gateway',
      'sandbox',
      'contracts',
      'migrations',
      'docs',
      'deploy',
      'web/dist',
      'openapi.json',
      'ARCHITECTURE.md',
      'CHANGELOG.md',
      'CONTRIBUTING.md',
    ],
    // npm under an older Node silently skips native packages.
    engines: { node: '>=26' },
    publishConfig: { access: 'public', provenance: true },
    dependencies,
    optionalDependencies,
    // The sandbox chain, for people who try the service. A production install leaves it out.
    peerDependencies: { hardhat: sandboxDependencies.hardhat },
    peerDependenciesMeta: { hardhat: { optional: true } },
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const target = resolve(root, process.argv[2] ?? '.package')
  buildPackage(target)
  process.stdout.write(`The package is in ${target}\n`)
}
