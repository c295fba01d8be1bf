import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))

// CONTRACTS_FUZZ_SEED and CONTRACTS_INVARIANT_RUNS make it another and a longer walk: see contracts/README.md.
test('the contracts keep their promises: every operation, every attack story, every invariant under random calls', () => {
  const hardhat = join(root, 'node_modules/hardhat/dist/src/cli.js')
  const { status, stdout, stderr } = run([hardhat, '--config', 'contracts/hardhat.config.ts', 'test', 'solidity'])
  assert.equal(status, 0, `${stdout.slice(-6_000)}\n${stderr.slice(-2_000)}`)
  const [, passing] = /(\d+) passing/.exec(stdout) ?? []
  assert.ok(Number(passing) > 100, stdout.slice(-2_000))
})

test('the committed ABIs and bytecodes are what the sources compile to', () => {
  const { status, stderr } = run(['contracts/generate-abi.ts', '--check'])
  assert.equal(status, 0, stderr.slice(-2_000))
})

function run(args: readonly string[]) {
  return spawnSync(process.execPath, args, { cwd: root, encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 })
}
