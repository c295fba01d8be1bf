import { escapeHtml } from '../page.ts'
import { type Heading, renderCode, renderTabs } from './markdown.ts'
import { curlOf, definitions, requestSamples, schemesOf } from './request-samples.ts'

export type Json = Readonly<Record<string, unknown>>
export type Schemas = Readonly<Record<string, Json>>

/** Answers of the sandbox by operation, recorded by test/docs/reference.test.ts: JSON, or the text of another format. */
export type Recorded = Readonly<Record<string, unknown>>

export type OpenApi = {
  readonly info: { readonly version: string; readonly description: string }
  readonly tags: readonly { readonly name: string; readonly description: string }[]
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly components: { readonly schemas: Schemas }
}

export type Operation = {
  readonly operationId: string
  readonly summary: string
  readonly tags: readonly string[]
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

export type ReferencePage = {
  readonly title: string
  readonly path: string
  readonly html: string
  readonly headings: readonly Heading[]
}

const depthMax = 3

/** Routes that a program calls: with a key, as a wallet, or in public below `/v1`. The others are those of the dashboard. */
export function isForPrograms({ path, operation }: DocumentedRoute): boolean {
  return (
    /^(\/x402)?\/v1\//.test(path) ||
    schemesOf(operation).some((scheme) => scheme === 'key' || scheme === 'management_key')
  )
}

/** All routes with their tags, those for programs first. */
export function routesOf({ paths }: OpenApi): readonly DocumentedRoute[] {
  const routes = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(
      ([method, operation]): DocumentedRoute => ({ path, method: method.toUpperCase(), operation }),
    ),
  )
  return [...routes.filter(isForPrograms), ...routes.filter((route) => !isForPrograms(route))]
}

/** The reference, made from the document that the routes themselves are tested against: an index, and a page for each subject. */
export function apiReference(document: OpenApi, recorded: Recorded, publicUrl: string): readonly ReferencePage[] {
  const { info, tags, components } = document
  const all = routesOf(document)
  const groups = tags.map(({ name, description }) => {
    const path = `/docs/api/${name.toLowerCase().replaceAll(' ', '-')}`
    return { name, description, path, routes: all.filter(({ operation }) => operation.tags.includes(name)) }
  })
  const index = groups.map(
    ({ name, description, path, routes }) =>
      `<h2 id="${path.split('/').at(-1)}"><a href="${path}">${name}</a></h2>\n<p>${description}.</p>\n<ul class="routes">${routes.map((route) => linkTo(route, path)).join('')}</ul>`,
  )
  const pages = groups.map(({ name, description, path, routes }): ReferencePage => {
    const curls = routes.filter(isForPrograms).map((route) => curlOf(route, exampleBody(route.operation)))
    const named = schemasOf(routes, components.schemas)
    const shapes = named.map(
      (schema) =>
        `<details><summary><code>${schema}</code></summary>\n<div id="schema-${schema}">${renderSchema(components.schemas[schema]!)}</div></details>`,
    )
    const html = `<h1 id="api">${name}</h1>
<p>${description}. <a href="/docs/api">All routes</a></p>
${curls.length === 0 ? '<p>The dashboard calls these routes with the session cookie that signing in sets.</p>' : renderCode(definitions(curls, publicUrl), 'sh')}
${routes.map((route) => renderRoute(route, recorded)).join('\n')}
<h2 id="shapes">Schemas</h2>
${shapes.join('\n')}`
    const headings = routes.map(({ path: at, method, operation }): Heading => {
      return { level: 2, id: operation.operationId, text: `${method} ${at}` }
    })
    return { title: name, path, html, headings: [...headings, { level: 2, id: 'shapes', text: 'Schemas' }] }
  })
  const html = `<h1 id="api">API reference</h1>
<p>Send an API key, or a management key where one is named, as <code>Authorization: Bearer penny_…</code>.
Amounts are exact: <code>x_atomic</code> counts atomic units (6 decimals), <code>x</code> is the same in USDC.
Version ${escapeHtml(info.version)}; OpenAPI 3.1: <a href="/openapi.json">/openapi.json</a>.</p>
<p>The samples read these variables. Every curl runs in our tests, and the answers shown are recorded from the sandbox.</p>
${renderCode(definitions(['$OPENAI_BASE_URL $OPENAI_API_KEY $PENNY_MANAGEMENT_KEY'], publicUrl), 'sh')}
${index.join('\n')}`
  return [{ title: 'API reference', path: '/docs/api', html, headings: [] }, ...pages]
}

function linkTo({ path, method, operation }: DocumentedRoute, page: string): string {
  const { operationId, summary } = operation
  return `<li><a href="${page}#${operationId}"><code>${method} ${escapeHtml(path)}</code></a> ${inlineCode(summary)}</li>`
}

function renderRoute(route: DocumentedRoute, recorded: Recorded): string {
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
  const samples = isForPrograms(route) ? requestSamples(route, exampleBody(operation)) : []
  const sample =
    samples.length === 0 ? '' : `<div class="sample">${renderTabs(samples)}${renderAnswer(operationId, recorded)}</div>`
  return `<section class="route">
<h2 id="${escapeHtml(operationId)}"><span class="method">${method}</span> <code>${escapeHtml(path)}</code></h2>
<p>${inlineCode(summary)}. ${accessOf(operation)}</p>
${sample}
<div>${rows.length === 0 ? '' : tableOf(['parameter', 'type', 'about'], rows)}
${renderBody(requestBody)}
<ul id="${escapeHtml(operationId)}-response">${answers.join('')}<li>errors ${errors.map((status) => `<code>${status}</code>`).join(', ')}: <a href="#schema-Error">Error</a></li></ul></div>
</section>`
}

/** The body of the sample; undefined when the route needs none. */
export function exampleBody({ requestBody }: Operation): unknown {
  return requestBody?.content?.['application/json']?.example
}

function renderAnswer(operationId: string, recorded: Recorded): string {
  const answer = recorded[operationId]
  const stream = recorded[`${operationId}.stream`]
  if (answer === undefined) return '<p>No body.</p>'
  // Long answers scroll by themselves, also by keyboard.
  const scrolling = (text: string, language: string) => renderCode(text, language).replace('<pre', '<pre tabindex="0"')
  const shown =
    typeof answer === 'string' ? scrolling(answer, 'text') : scrolling(JSON.stringify(answer, null, 2), 'json')
  const streamed = `<p>With <code>"stream": true</code>:</p>\n${scrolling(String(stream), 'text')}`
  return stream === undefined ? shown : shown + streamed
}

function renderBody(body: Body | undefined): string {
  const schema = body?.content?.['application/json']?.schema
  if (schema === undefined) return ''
  return typeof schema.$ref === 'string' ? `<p>Body: ${typeOf(schema)}</p>` : `<h4>Body</h4>\n${renderSchema(schema)}`
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
  visit([routes, { $ref: '#/components/schemas/Error' }])
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
