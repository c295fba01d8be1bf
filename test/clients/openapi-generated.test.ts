import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { startTestService, type TestService } from '../support/service.ts'

type Read = { readonly text: string; readonly calls: readonly string[]; readonly totalTokens: number }
type Program = (
  baseUrl: string,
  apiKey: string,
) => Promise<{
  readonly read: Read
  readonly events: readonly Read[]
  readonly error: string
}>

let service: TestService
let programs: Readonly<Record<'useOpenApiFetch' | 'useHeyApi', Program>>
before(async () => {
  execFileSync(process.execPath, [fileURLToPath(new URL('../openapi/check.ts', import.meta.url)), '--always'])
  // Its own program for the compiler: it is written by generators.
  const path: string = '../openapi/program.ts'
  programs = await import(path)
  service = await startTestService()
})
after(() => service?.stop())

for (const name of ['useOpenApiFetch', 'useHeyApi'] as const) {
  test(`a client generated from openapi.json sends every parameter and reads answers, chunks and errors: ${name}`, async () => {
    const { apiKey } = await service.openAccount('10')
    const { read, events, error } = await programs[name](service.origin, apiKey)
    assert.match(read.text, /^chatcmpl-\w+ chat\.completion \d+ \S+ fp_penny /)
    assert.ok(read.totalTokens > 0)
    assert.ok(events.length > 2 && events.at(-1)!.totalTokens > 0, 'the last chunk has the usage')
    assert.match(error, /^invalid_api_key \w+ /)
  })
}
