import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, globSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createClient } from '@hey-api/openapi-ts'
import openapiTS, { astToString } from 'openapi-typescript'

// Generates two clients from openapi.json and compiles program.ts over them. It takes eight seconds of CPU time, so a document that
// has passed is not tried again: checked.txt has the hash of what passed. With --always it is generated all the same.

const folder = import.meta.dirname
const document = join(folder, '../../openapi.json')
const generated = join(folder, 'generated')
const checked = join(folder, 'checked.txt')

const hash = hashOf([document, ...globSync(join(folder, '*.{ts,json}')).sort()])
const isChecked = existsSync(checked) && readFileSync(checked, 'utf8').trim() === hash
if (!isChecked || process.argv.includes('--always')) await generateAndCompile()

function hashOf(files: readonly string[]): string {
  const sum = createHash('sha256')
  for (const file of files) sum.update(readFileSync(file))
  return sum.digest('hex')
}

async function generateAndCompile(): Promise<void> {
  await createClient({
    input: document,
    output: { path: join(generated, 'hey-api'), module: { extension: '.ts' } },
    plugins: ['@hey-api/client-fetch', '@hey-api/typescript', '@hey-api/sdk'],
    logs: { level: 'silent' },
  })
  const types = await openapiTS(new URL(`file://${document}`))
  writeFileSync(join(generated, 'openapi-typescript.ts'), astToString(types))
  const tsc = join(folder, '../../node_modules/.bin/tsc')
  const { status, stdout } = spawnSync(tsc, ['-p', folder], { encoding: 'utf8' })
  process.stdout.write(stdout)
  if (status !== 0) {
    process.exitCode = 1
  } else if (!isChecked) {
    writeFileSync(checked, `${hash}\n`)
    console.log('The generated clients compile. Commit test/openapi/checked.txt.')
  }
}
