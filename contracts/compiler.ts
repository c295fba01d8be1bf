/** What `hardhat.config.ts` and `generate-abi.ts` must agree on: one source, one bytecode. */

export const contractNames = ['DevUsdc', 'ArcSystemLog', 'SettlementGateway'] as const

export const compilerVersion = '0.8.30'

const common = {
  evmVersion: 'prague',
  // Without the hash of the metadata the bytecode depends on the code alone, not on paths or comments.
  metadata: { bytecodeHash: 'none' },
} as const

export const compilerSettings = { ...common, viaIR: true, optimizer: { enabled: true, runs: 1_000_000 } } as const

/** Tests deploy the contracts as `compilerSettings` made them. Their own code compiles in a third of the time without the optimizer. */
export const testCompilerSettings = { ...common, optimizer: { enabled: false } } as const
