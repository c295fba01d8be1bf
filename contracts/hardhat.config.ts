import { createRequire } from 'node:module'
import { join } from 'node:path'
import { defineConfig } from 'hardhat/config'
import { exampleCount } from '../test/support/examples.ts'
import { compilerSettings, compilerVersion, contractNames, testCompilerSettings } from './compiler.ts'

const require = createRequire(import.meta.url)
const built = join(import.meta.dirname, '..', 'node_modules', '.cache', 'penny-contracts')

// The compiler is the one from npm, so that nothing is downloaded.
const compiler = { version: compilerVersion, path: require.resolve('solc/soljson.js') }

export default defineConfig({
  solidity: {
    compilers: [{ ...compiler, settings: testCompilerSettings }],
    overrides: Object.fromEntries(
      contractNames.map((name) => [`contracts/src/${name}.sol`, { ...compiler, settings: compilerSettings }]),
    ),
  },
  paths: {
    sources: join(import.meta.dirname, 'src'),
    tests: { solidity: join(import.meta.dirname, 'test') },
    artifacts: join(built, 'artifacts'),
    cache: join(built, 'cache'),
  },
  test: {
    solidity: {
      // The seed is pinned: a failure seen once is seen again. `npm run test:all` takes more runs, a long run another seed and even more.
      fuzz: {
        seed: process.env.CONTRACTS_FUZZ_SEED ?? '0x50656e6e79',
        runs: exampleCount('CONTRACTS_FUZZ_RUNS', { short: 8, full: 8, all: 64 }),
      },
      invariant: {
        runs: exampleCount('CONTRACTS_INVARIANT_RUNS', { short: 4, full: 4, all: 64 }),
        depth: 128,
        failOnRevert: true,
      },
    },
  },
})
