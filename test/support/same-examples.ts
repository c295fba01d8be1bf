import fc from 'fast-check'

// Loaded into the process of every test file. `npm test` draws the same examples everywhere, so that what is green on one machine
// is green on the next. `npm run test:all` and the long forms draw new ones; TEST_SEED repeats a run.

const { TEST_SEED: seed } = process.env
if (seed !== undefined) fc.configureGlobal({ seed: Number(seed) })
