import { readFileSync } from 'node:fs'
import { contracts } from '../../src/openapi/contracts/all.ts'
import { openApiDocument } from '../../src/openapi/openapi.ts'

/** The text of openapi.json: the contract of the routes, for their clients. */
export function renderOpenApi(): string {
  const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
    version: string
  }
  return `${JSON.stringify(openApiDocument(contracts, version), null, 2)}\n`
}
