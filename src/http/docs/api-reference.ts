import { escapeHtml } from '../pages/page.ts'
import type { Heading, Rendered } from './markdown.ts'

type Json = Readonly<Record<string, unknown>>

export type OpenApi = {
  readonly info: { readonly version: string; readonly description: string }
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly components: { readonly schemas: Readonly<Record<string, Json>> }
}

type Operation = {
  readonly operationId: string
  readonly summary: string
  readonly security?: readonly Json[]
  readonly parameters?: readonly {
    readonly name: string
    readonly in: string
    readonly required: boolean
    readonly schema: Json
  }[]
  readonly requestBody?: Body
  readonly responses: Readonly<Record<string, Body & { readonly description: string }>>
}

type Body = { readonly content?: Readonly<Record<string, { readonly schema: Json }>> }

const depthMax = 3

/** The reference of every route, from the document that the routes themselves are checked against. */
export function apiReference({ info, paths, components }: OpenApi): Rendered {
  const groups = [
    ['inference', 'For programs, with an API key', (path: string) => path.startsWith('/v1')],
    ['account', 'For the dashboard, with a session', (path: string) => !path.startsWith('/v1')],
  ] as const
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
  )
  const routes = groups.map(
    ([id, title, isIn]) => `<h2 id="${id}">${title}</h2>
${operations
  .filter(({ path }) => isIn(path))
  .map(renderOperation)
  .join('\n')}`,
  )
  const shapes = Object.entries(components.schemas).map(
    ([name, schema]) => `<h3 id="schema-${escapeHtml(name)}">${escapeHtml(name)}</h3>\n${renderSchema(schema)}`,
  )
  const html = `<h1 id="api">API reference</h1>
<p>Version ${escapeHtml(info.version)}. ${escapeHtml(info.description).replaceAll(/`([^`]+)`/g, '<code>$1</code>')} The document itself:
<a href="/openapi.json">/openapi.json</a>, OpenAPI 3.1.</p>
${routes.join('\n')}
<h2 id="shapes">Shapes</h2>
${shapes.join('\n')}`
  return {
    html,
    headings: [
      ...groups.map(([id, text]): Heading => ({ level: 2, id, text })),
      { level: 2, id: 'shapes', text: 'Shapes' },
    ],
  }
}

function renderOperation({ path, method, operation }: { path: string; method: string; operation: Operation }): string {
  const { operationId, summary, parameters = [], requestBody, responses } = operation
  const rows = parameters.map(
    (parameter) =>
      `<tr><td><code>${escapeHtml(parameter.name)}</code></td><td>${typeOf(parameter.schema)}</td><td>${parameter.in}${parameter.required ? ', required' : ''}</td></tr>`,
  )
  const answers = Object.entries(responses).map(
    ([status, answer]) =>
      `<li><code>${escapeHtml(status)}</code> ${bodyOf(answer) || escapeHtml(answer.description)}</li>`,
  )
  return `<h3 id="${escapeHtml(operationId)}"><span class="method">${method}</span> <code>${escapeHtml(path)}</code></h3>
<p>${escapeHtml(summary)}. ${accessOf(operation)}</p>
${rows.length === 0 ? '' : tableOf(['parameter', 'type', 'where'], rows)}
${requestBody === undefined ? '' : `<p>Body: ${bodyOf(requestBody)}</p>`}
<ul>${answers.join('')}</ul>`
}

function accessOf({ security = [] }: Operation): string {
  const names = security.flatMap((way) => Object.keys(way))
  if (names.length === 0) return 'Public.'
  return `Needs ${names.map((name) => (name === 'key' ? 'an API key' : 'a session')).join(' or ')}.`
}

function bodyOf({ content = {} }: Body): string {
  return Object.entries(content)
    .map(([type, { schema }]) => (type === 'application/json' ? typeOf(schema) : `<code>${escapeHtml(type)}</code>`))
    .join(', or ')
}

function renderSchema(schema: Json): string {
  const rows = rowsOf(schema, '', 0)
  return rows.length === 0 ? `<p>${typeOf(schema)}</p>` : tableOf(['member', 'type', 'about'], rows)
}

/** One row a member; those of objects inside follow with their path. */
function rowsOf(schema: Json, prefix: string, depth: number): readonly string[] {
  const inner = (schema.type === 'array' ? schema.items : schema) as Json | undefined
  const required = new Set((inner?.required as string[] | undefined) ?? [])
  return Object.entries((inner?.properties as Record<string, Json> | undefined) ?? {}).flatMap(([name, member]) => {
    const path = `${prefix}${name}`
    const about = [
      required.has(name) ? '' : 'optional',
      typeof member.description === 'string' ? escapeHtml(member.description) : '',
    ]
    const row = `<tr><td><code>${escapeHtml(path)}</code></td><td>${typeOf(member)}</td><td>${about.filter(Boolean).join('; ')}</td></tr>`
    return depth === depthMax
      ? [row]
      : [row, ...rowsOf(member, `${path}${member.type === 'array' ? '[]' : ''}.`, depth + 1)]
  })
}

/** A type in a few words; a named shape as a link to it. */
function typeOf(schema: Json): string {
  if (typeof schema.$ref === 'string') {
    const name = escapeHtml(schema.$ref.split('/').at(-1)!)
    return `<a href="#schema-${name}">${name}</a>`
  }
  const choices = (schema.anyOf ?? schema.oneOf) as readonly Json[] | undefined
  if (choices !== undefined) return choices.map(typeOf).join(' or ')
  if (schema.const !== undefined) return `<code>${escapeHtml(JSON.stringify(schema.const))}</code>`
  if (Array.isArray(schema.enum))
    return schema.enum.map((value) => `<code>${escapeHtml(JSON.stringify(value))}</code>`).join(', ')
  if (schema.type === 'array') return `list of ${typeOf((schema.items ?? {}) as Json)}`
  const types = [schema.type ?? 'anything'].flat().map((type) => escapeHtml(String(type)))
  const bounds = ['minimum', 'maximum', 'minLength', 'maxLength', 'format'].flatMap((name) =>
    schema[name] === undefined || Math.abs(Number(schema[name])) >= Number.MAX_SAFE_INTEGER
      ? []
      : [`${name} ${escapeHtml(String(schema[name]))}`],
  )
  return `${types.join(' or ')}${bounds.length === 0 ? '' : ` (${bounds.join(', ')})`}`
}

function tableOf(names: readonly string[], rows: readonly string[]): string {
  const head = names.map((name) => `<th>${name}</th>`).join('')
  return `<div class="table" tabindex="0"><table><thead><tr>${head}</tr></thead><tbody>${rows.join('')}</tbody></table></div>`
}
