import { escapeHtml } from '../page.ts'
import { exampleOf, type Json, type Schemas } from './examples.ts'
import { type Heading, renderCode, renderTabs } from './markdown.ts'
import { requestSamples, schemesOf, streamSamples } from './request-samples.ts'

export type OpenApi = {
  readonly info: { readonly version: string; readonly description: string }
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly components: { readonly schemas: Schemas }
}

export type Operation = {
  readonly operationId: string
  readonly summary: string
  readonly security?: readonly Json[]
  readonly parameters?: readonly Parameter[]
  readonly requestBody?: Body
  readonly responses: Readonly<Record<string, Answer>>
}

/** An answer, or the name of an error's answer that many routes share. */
type Answer = Body & { readonly description?: string; readonly $ref?: string }

export type Parameter = {
  readonly name: string
  readonly in: string
  readonly required: boolean
  readonly schema: Json
  readonly description?: string
}

type Body = { readonly content?: Readonly<Record<string, { readonly schema: Json; readonly example?: unknown }>> }

/** An operation with its path and method. */
export type DocumentedRoute = { readonly path: string; readonly method: string; readonly operation: Operation }

export type ReferencePage = { readonly html: string; readonly headings: readonly Heading[] }

const depthMax = 3

const pages = {
  /** Routes that a program calls. */
  programs: {
    title: 'API reference',
    about:
      'The routes for programs. Send an API key, or a management key where one is named, as <code>Authorization: Bearer penny_…</code>.',
    other: 'The routes of the dashboard are on <a href="/docs/api/dashboard">another page</a>.',
    has: ({ path, operation }: DocumentedRoute) =>
      /^(\/x402)?\/v1\//.test(path) ||
      schemesOf(operation).some((scheme) => scheme === 'key' || scheme === 'management_key'),
  },
  /** Routes that the dashboard calls with a session. */
  dashboard: {
    title: 'Dashboard API',
    about:
      'The routes behind the dashboard. They need a session cookie, which signing in sets, unless marked as public.',
    other: 'The routes for programs are in <a href="/docs/api">the API reference</a>.',
    has: (route: DocumentedRoute): boolean => !pages.programs.has(route),
  },
} as const

/** The reference of one part of the API, made from the document that the routes themselves are tested against. */
export function apiReference({ info, paths, components }: OpenApi, part: keyof typeof pages): ReferencePage {
  const { title, about, other, has } = pages[part]
  const routes = Object.entries(paths)
    .flatMap(([path, methods]) =>
      Object.entries(methods).map(
        ([method, operation]): DocumentedRoute => ({ path, method: method.toUpperCase(), operation }),
      ),
    )
    .filter(has)
  const named = schemasOf(routes, components.schemas)
  const shapes = named.map(
    (name) =>
      `<h3 id="schema-${escapeHtml(name)}">${escapeHtml(name)}</h3>\n${renderSchema(components.schemas[name]!)}`,
  )
  const html = `<h1 id="api">${title}</h1>
<p>${about} ${other} Version ${escapeHtml(info.version)}; OpenAPI 3.1: <a href="/openapi.json">/openapi.json</a>.
Amounts are exact: <code>x_atomic</code> counts atomic units (6 decimals), <code>x</code> is the same in USDC.</p>
${routes.map((route) => renderRoute(route, components.schemas)).join('\n')}
<h2 id="shapes">Schemas</h2>
${shapes.join('\n')}`
  const headings = routes.map(({ path, method, operation }): Heading => {
    return { level: 2, id: operation.operationId, text: `${method} ${path}` }
  })
  return { html, headings: [...headings, { level: 2, id: 'shapes', text: 'Schemas' }] }
}

function renderRoute(route: DocumentedRoute, schemas: Schemas): string {
  const { path, method, operation } = route
  const { operationId, summary, parameters = [], requestBody, responses } = operation
  const rows = parameters.map(
    (parameter) =>
      `<tr><td><code>${escapeHtml(parameter.name)}</code></td><td>${typeOf(parameter.schema)}</td><td>${aboutParameter(parameter)}</td></tr>`,
  )
  const errors = Object.keys(responses).filter((status) => responses[status]!.$ref !== undefined)
  const answers = Object.entries(responses)
    .filter(([status]) => !errors.includes(status))
    .map(([status, answer]) => `<li><code>${escapeHtml(status)}</code> ${bodyOf(answer) || 'Done'}</li>`)
  return `<section class="route">
<h2 id="${escapeHtml(operationId)}"><span class="method">${method}</span> <code>${escapeHtml(path)}</code></h2>
<p>${inlineCode(summary)}. ${accessOf(operation)}</p>
<h3 id="${escapeHtml(operationId)}-request">Request</h3>
${renderTabs(requestSamples(route, exampleBody(operation, schemas)))}
${rows.length === 0 ? '' : tableOf(['parameter', 'type', 'about'], rows)}
${renderBody(requestBody, schemas)}
<h3 id="${escapeHtml(operationId)}-response">Response</h3>
<ul>${answers.join('')}<li>errors ${errors.map((status) => `<code>${status}</code>`).join(', ')}: <a href="#schema-Error">Error</a></li></ul>
${renderResponses(operation, schemas)}
</section>`
}

/** The body of the request example; undefined when the route takes none. */
export function exampleBody({ requestBody }: Operation, schemas: Schemas): unknown {
  const content = requestBody?.content?.['application/json']
  return content && (content.example ?? exampleOf(content.schema, schemas))
}

/** The body of the response example; undefined when the response is not JSON. */
export function exampleResponse({ responses }: Operation, schemas: Schemas): unknown {
  const [, answer] = Object.entries(responses).find(([status]) => status.startsWith('2'))!
  const content = answer.content?.['application/json']
  return content && (content.example ?? exampleOf(content.schema, schemas))
}

function renderResponses(operation: Operation, schemas: Schemas): string {
  const response = exampleResponse(operation, schemas)
  const stream = streamSamples[operation.operationId]
  if (response === undefined) return '<p>No body.</p>'
  const json = renderCode(JSON.stringify(response, null, 2), 'json')
  return stream === undefined ? json : `${json}<p>With <code>"stream": true</code>:</p>\n${renderCode(stream, 'text')}`
}

function renderBody(body: Body | undefined, schemas: Schemas): string {
  const schema = body?.content?.['application/json']?.schema
  if (schema === undefined) return ''
  const named = typeof schema.$ref === 'string' ? schemas[schema.$ref.split('/').at(-1)!]! : schema
  return `<h4>Body</h4>\n${renderSchema(named)}`
}

function aboutParameter({ in: place, required, description }: Parameter): string {
  const about = description === undefined ? '' : inlineCode(description)
  return [place, required ? 'required' : '', about].filter(Boolean).join('; ')
}

function accessOf(operation: Operation): string {
  const named = new Set(schemesOf(operation).map((scheme) => credentials[scheme]))
  return named.size === 0 ? 'Public.' : `Needs ${[...named].join(' or ')}.`
}

const credentials: Readonly<Record<string, string>> = {
  key: 'an API key',
  management_key: 'a management key',
  payment: 'a payment of a wallet',
  signIn: 'a sign-in of a wallet',
  session: 'a session',
  localSession: 'a session',
}

function bodyOf({ content = {} }: Body): string {
  return Object.entries(content)
    .map(([type, { schema }]) => (type === 'application/json' ? typeOf(schema) : `<code>${escapeHtml(type)}</code>`))
    .join(', or ')
}

/** The named schemas that these routes use, directly or through other schemas. */
function schemasOf(routes: readonly DocumentedRoute[], schemas: Schemas): readonly string[] {
  const found = new Set<string>()
  const visit = (value: unknown): void => {
    for (const [, name] of JSON.stringify(value).matchAll(/"#\/components\/schemas\/(\w+)"/g)) {
      if (found.has(name!)) continue
      found.add(name!)
      visit(schemas[name!])
    }
  }
  visit(routes)
  found.add('Error')
  return [...found].sort()
}

function renderSchema(schema: Json): string {
  const rows = rowsOf(schema, '', 0)
  return rows.length === 0 ? `<p>${typeOf(schema)}</p>` : tableOf(['member', 'type', 'about'], rows)
}

/** One row per member. Members of nested objects follow, with their path. */
function rowsOf(schema: Json, prefix: string, depth: number): readonly string[] {
  const inner = (schema.type === 'array' ? schema.items : schema) as Json | undefined
  const required = new Set((inner?.required as string[] | undefined) ?? [])
  return Object.entries((inner?.properties as Record<string, Json> | undefined) ?? {}).flatMap(([name, member]) => {
    const path = `${prefix}${name}`
    const about = [
      required.has(name) ? '' : 'optional',
      typeof member.description === 'string' ? inlineCode(member.description) : '',
    ]
    const row = `<tr><td><code>${escapeHtml(path)}</code></td><td>${typeOf(member)}</td><td>${about.filter(Boolean).join('; ')}</td></tr>`
    return depth === depthMax
      ? [row]
      : [row, ...rowsOf(member, `${path}${member.type === 'array' ? '[]' : ''}.`, depth + 1)]
  })
}

/** A type in a few words; a named schema is a link. */
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

function inlineCode(text: string): string {
  return escapeHtml(text).replaceAll(/`([^`]+)`/g, '<code>$1</code>')
}

function tableOf(names: readonly string[], rows: readonly string[]): string {
  const head = names.map((name) => `<th>${name}</th>`).join('')
  return `<div class="table" tabindex="0"><table><thead><tr>${head}</tr></thead><tbody>${rows.join('')}</tbody></table></div>`
}
