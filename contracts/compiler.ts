/** What `hardhat.config.ts`, `generate-abi.ts` and `prove.ts` must agree on: one source, one bytecode. */
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'

export const contractNames = ['DevUsdc', 'ArcSystemLog', 'SettlementGateway', 'ReadEach'] as const

export const compilerVersion = '0.8.30'

const common = {
  evmVersion: 'prague',
  // Without the hash of the metadata the bytecode depends on the code alone, not on paths or comments.
  metadata: { bytecodeHash: 'none' },
} as const

export const compilerSettings = { ...common, viaIR: true, optimizer: { enabled: true, runs: 1_000_000 } } as const

/** Tests deploy the contracts as `compilerSettings` made them. Their own code compiles in a third of the time without the optimizer. */
export const testCompilerSettings = { ...common, optimizer: { enabled: false } } as const

const require = createRequire(import.meta.url)

/** A source by its path within this folder, so that the bytecode does not depend on where the folder is, or of a package. */
export function resolveImport(path: string): { contents: string } | { error: string } {
  try {
    const isOwn = path.startsWith('src/') || path.startsWith('proofs/')
    return { contents: readFileSync(isOwn ? join(import.meta.dirname, path) : require.resolve(path), 'utf8') }
  } catch (error) {
    return { error: String(error) }
  }
}
