import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { brotliCompressSync, constants, gzipSync } from 'node:zlib'

// Builds the dashboard into web/dist. With --if-stale it does nothing if the build is up to date.

const root = fileURLToPath(new URL('..', import.meta.url))
const built = join(root, 'web/dist')
const marker = join(built, 'built-from.json')

/** What the build is made of. `test/lint/code.test.ts` holds the dashboard to importing nothing else of the service. */
const inputs = [
  'web/build.ts',
  'web/src',
  'web/public',
  'web/index.html',
  'web/vite.config.ts',
  'web/package.json',
  'src/money',
  'src/receipts',
  'src/explanations.ts',
]

if (!process.argv.includes('--if-stale') || !isCurrent()) await build()

async function build(): Promise<void> {
  const startedMs = Date.now()
  const title = '  Building the dashboard …'
  process.stderr.write(title)
  const fingerprint = sourcesHash()
  // Renamed when whole: a service that is running meanwhile serves the old build or the new one, never half of one.
  const staging = `${built}-${process.pid}`
  try {
    const vite = await import('vite')
    await vite.build({
      configFile: join(root, 'web/vite.config.ts'),
      logLevel: 'warn',
      build: { outDir: staging, emptyOutDir: true },
    })
    compress(staging)
    writeFileSync(join(staging, 'built-from.json'), JSON.stringify({ sources: fingerprint }))
    rmSync(built, { recursive: true, force: true })
    renameSync(staging, built)
  } finally {
    rmSync(staging, { recursive: true, force: true })
  }
  // In a terminal Vite erases the line that it finds: the title is written again.
  const line = process.stderr.isTTY ? `\r\x1b[2K${title}` : ''
  process.stderr.write(`${line} done in ${((Date.now() - startedMs) / 1000).toFixed(1)} s\n`)
}

/** Writes each text file compressed as well; the service sends that to browsers that accept it. */
function compress(folder: string): void {
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || !/\.(js|css|html|svg)$/.test(entry.name)) continue
    const path = join(entry.parentPath, entry.name)
    const content = readFileSync(path)
    writeFileSync(`${path}.gz`, gzipSync(content))
    writeFileSync(`${path}.br`, brotliCompressSync(content, { params: { [constants.BROTLI_PARAM_QUALITY]: 9 } }))
  }
}

function isCurrent(): boolean {
  try {
    return JSON.parse(readFileSync(marker, 'utf8')).sources === sourcesHash()
  } catch {
    return false
  }
}

// Contents, not times: a checkout touches every file and changes none.
function sourcesHash(): string {
  const hash = createHash('sha256')
  for (const path of inputs.flatMap((input) => filesOf(input))) {
    hash
      .update(path)
      .update('\0')
      .update(readFileSync(join(root, path)))
      .update('\0')
  }
  return hash.digest('hex')
}

function filesOf(input: string): string[] {
  if (!existsSync(join(root, input))) return []
  if (/\.\w+$/.test(input)) return [input]
  return readdirSync(join(root, input), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && !entry.name.endsWith('.test.ts'))
    .map((entry) => join(entry.parentPath, entry.name).slice(root.length))
    .sort()
}
