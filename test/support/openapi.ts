import { readFileSync } from 'node:fs'
import { contractGroups } from '../../src/openapi/contracts/all.ts'
import { openApiDocument } from '../../src/openapi/openapi.ts'

/** The text of openapi.json: the contract of the routes, for their clients. */
export function renderOpenApi(): string {
  const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
    version: string
  }
  return `${compact(openApiDocument(contractGroups, version), '')}\n`
}

const lineLengthMax = 140

/** JSON whose short values are on one line each: half the size, and its differences are as easy to read. */
function compact(value: unknown, indent: string): string {
  const line = JSON.stringify(value)
  if (typeof value !== 'object' || value === null || line.length + indent.length <= lineLengthMax) return line
  const inner = `${indent}  `
  if (Array.isArray(value)) return `[\n${value.map((each) => inner + compact(each, inner)).join(',\n')}\n${indent}]`
  const members = Object.entries(value).filter(([, member]) => member !== undefined)
  const lines = members.map(([name, member]) => `${inner}${JSON.stringify(name)}: ${compact(member, inner)}`)
  return `{\n${lines.join(',\n')}\n${indent}}`
}
