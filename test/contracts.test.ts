import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { contractNames } from '../contracts/compiler.ts'

const root = fileURLToPath(new URL('..', import.meta.url))

// CONTRACTS_FUZZ_SEED and CONTRACTS_INVARIANT_RUNS make it another and a longer walk: see contracts/README.md.
test('the contracts keep their promises: every operation, every attack story, every invariant under random calls', async () => {
  const hardhat = join(root, 'node_modules/hardhat/dist/src/cli.js')
  const { code, stdout, stderr } = await run([hardhat, '--config', 'contracts/hardhat.config.ts', 'test', 'solidity'])
  assert.equal(code, 0, `${stdout.slice(-6_000)}\n${stderr.slice(-2_000)}`)
  const [, passing] = /(\d+) passing/.exec(stdout) ?? []
  assert.ok(Number(passing) > 100, stdout.slice(-2_000))
})

// Hardhat has compiled them for the test above, with the settings of `generate-abi.ts`: compiling them again takes as long again.
test('the committed ABIs and bytecodes are what the sources compile to', async () => {
  for (const name of contractNames) {
    const generated = Object.values(await import(`../contracts/generated/${name}.abi.ts`))
    const artifact = join(root, `node_modules/.cache/penny-contracts/artifacts/contracts/src/${name}.sol/${name}.json`)
    const { abi, bytecode } = JSON.parse(readFileSync(artifact, 'utf8'))
    assert.deepEqual(new Set(generated), new Set([abi, bytecode]), `${name} is stale; run: npm run contracts:abi`)
  }
})

/** Not `spawnSync`: while that waits, this process reacts to no signal, and a stop of `npm test` would wait for the compiler. */
async function run(args: readonly string[]) {
  const child = spawn(process.execPath, args, { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] })
  const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')])
  return { code: code as number | null, stdout, stderr }
}
