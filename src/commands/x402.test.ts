import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { demoPackages } from './x402.ts'

test('the demo installs the versions that the tests run with', () => {
  const manifest = readFileSync(new URL('../../package.json', import.meta.url), 'utf8')
  const { dependencies, devDependencies } = JSON.parse(manifest) as Record<string, Readonly<Record<string, string>>>
  assert.partialDeepStrictEqual({ ...dependencies, ...devDependencies }, demoPackages)
})
