import type { DocumentedRoute, Operation } from './api-reference.ts'

type Sample = { readonly language: 'sh' | 'python' | 'js' | 'go'; readonly code: string }

const completionSamples: readonly Sample[] = [
  {
    language: 'python',
    code: `from openai import OpenAI

client = OpenAI()  # reads OPENAI_BASE_URL and OPENAI_API_KEY
answer = client.chat.completions.create(
    model="gpt-5.6-terra",
    messages=[{"role": "user", "content": "What is a penny?"}],
    max_tokens=400,
)
print(answer.choices[0].message.content)`,
  },
  {
    language: 'js',
    code: `import OpenAI from 'openai'

const client = new OpenAI() // reads OPENAI_BASE_URL and OPENAI_API_KEY
const answer = await client.chat.completions.create({
  model: 'gpt-5.6-terra',
  messages: [{ role: 'user', content: 'What is a penny?' }],
  max_tokens: 400,
})
console.log(answer.choices[0].message.content, answer.usage.cost)`,
  },
  {
    language: 'go',
    code: `client := openai.NewClient() // github.com/openai/openai-go: reads OPENAI_BASE_URL and OPENAI_API_KEY
answer, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
	Model:     "gpt-5.6-terra",
	Messages:  []openai.ChatCompletionMessageParamUnion{openai.UserMessage("What is a penny?")},
	MaxTokens: openai.Int(400),
})`,
  },
]

/** The variables of the samples, defined once on each page. A test runs every curl with them. */
const variables: Readonly<Record<string, readonly [value: string, about: string]>> = {
  PENNY_URL: ['', ''],
  OPENAI_BASE_URL: ['"$PENNY_URL/v1"', ''],
  OPENAI_API_KEY: ['penny_…', 'from the page Keys'],
  PENNY_MANAGEMENT_KEY: ['penny_mgmt_…', 'from Settings, Management keys'],
  REQUEST_ID: ['req_…', 'the header x-router-request-id of an answer'],
  KEY_ID: ['…', 'an id of GET /api/keys'],
  WEBHOOK_ID: ['…', 'an id of GET /api/webhooks'],
  EVENT_ID: ['evt_…', 'an id of GET /api/webhooks/$WEBHOOK_ID/deliveries'],
  X402_PAYMENT: ['…', 'a wallet signs it: npx penny x402 demo'],
  X402_SIGN_IN: ['…', 'a wallet signs it: npx penny x402 demo'],
}

/** Defines what these samples use, with the address of this service. */
export function definitions(samples: readonly string[], publicUrl: string): string {
  const text = samples.join('\n')
  const used = Object.entries(variables).filter(
    ([name]) => text.includes(`$${name}`) || (name === 'PENNY_URL' && text.includes('$OPENAI_BASE_URL')),
  )
  return used
    .map(([name, [value, about]]) => `export ${name}=${value || publicUrl}${about === '' ? '' : `  # ${about}`}`)
    .join('\n')
}

/** The call in several languages. `$OPENAI_BASE_URL` ends in `/v1`; `$PENNY_URL` is the same address without it. */
export function requestSamples(route: DocumentedRoute, body: unknown): readonly Sample[] {
  const curl: Sample = { language: 'sh', code: curlOf(route, body) }
  if (route.operation.operationId === 'createChatCompletion') return [curl, ...completionSamples]
  return [curl, pythonOf(route, body), nodeOf(route, body)]
}

export function curlOf(route: DocumentedRoute, body: unknown): string {
  const header = headerOf(route)
  const lines = [
    `curl ${route.method === 'GET' ? '' : `-X ${route.method} `}"${addressOf(route).join('')}"`,
    ...(header ? [`-H "${header.name}: ${header.prefix}$${header.variable}"`] : []),
    ...(body === undefined
      ? []
      : ['-H "Content-Type: application/json"', `-d '${JSON.stringify(body, null, 2).replaceAll("'", "'\\''")}'`]),
  ]
  return lines.join(' \\\n  ')
}

function pythonOf(route: DocumentedRoute, body: unknown): Sample {
  const header = headerOf(route)
  const prefix = header?.prefix ? `"${header.prefix}" + ` : ''
  const headers = [
    ...(header ? [`"${header.name}": ${prefix}os.environ["${header.variable}"]`] : []),
    ...(body === undefined ? [] : ['"Content-Type": "application/json"']),
  ]
  const address = addressOf(route).map((part) =>
    part.startsWith('$') ? `os.environ["${part.slice(1)}"]` : `"${part}"`,
  )
  const given = [
    address.join(' + '),
    ...(body === undefined ? [] : [`json.dumps(${pythonValue(body)}).encode()`]),
    ...(headers.length === 0 ? [] : [`headers={${headers.join(', ')}}`]),
    ...(route.method === 'GET' ? [] : [`method="${route.method}"`]),
  ]
  return {
    language: 'python',
    code: `import json, os, urllib.request

request = urllib.request.Request(
${given.map((argument) => `    ${argument},\n`).join('')})
with urllib.request.urlopen(request) as response:
    print(response.read().decode())`,
  }
}

function nodeOf(route: DocumentedRoute, body: unknown): Sample {
  const header = headerOf(route)
  const prefix = header?.prefix ? `'${header.prefix}' + ` : ''
  const headers = [
    ...(header ? [`'${header.name}': ${prefix}env.${header.variable}`] : []),
    ...(body === undefined ? [] : ["'Content-Type': 'application/json'"]),
  ]
  const address = addressOf(route).map((part) => (part.startsWith('$') ? `env.${part.slice(1)}` : `'${part}'`))
  const options = [
    ...(route.method === 'GET' ? [] : [`method: '${route.method}'`]),
    ...(headers.length === 0 ? [] : [`headers: { ${headers.join(', ')} }`]),
    ...(body === undefined ? [] : [`body: JSON.stringify(${JSON.stringify(body)})`]),
  ]
  const given = options.length === 0 ? '' : `, {\n${options.map((option) => `  ${option},\n`).join('')}}`
  return {
    language: 'js',
    code: `import { env } from 'node:process'

const response = await fetch(${address.join(' + ')}${given})
console.log(await response.text())`,
  }
}

const idVariables: readonly (readonly [prefix: string, variable: string])[] = [
  ['/api/requests/', 'REQUEST_ID'],
  ['/api/keys/', 'KEY_ID'],
  ['/api/webhooks/', 'WEBHOOK_ID'],
]

/** What a long list is asked for in its sample. */
const queries: Readonly<Record<string, string>> = {
  listRequests: '?limit=2',
  listAccountLog: '?limit=2',
  listWebhookDeliveries: '?limit=2',
}

/** The address in parts: variables begin with `$`. */
function addressOf({ path, operation: { operationId } }: DocumentedRoute): readonly string[] {
  const id = idVariables.find(([prefix]) => path.startsWith(prefix))?.[1]
  const filled = path.replace('/v1/models/{id}', '/v1/models/gpt-5.6-terra') + (queries[operationId] ?? '')
  const [base, rest] = filled.startsWith('/v1/') ? ['$OPENAI_BASE_URL', filled.slice(3)] : ['$PENNY_URL', filled]
  const parts = rest.replace('{id}', ` $${id} `).replace('{event}', ' $EVENT_ID ').split(' ')
  return [base, ...parts.filter((part) => part !== '')]
}

/** The credentials that the route takes, one of them. None: it is public. */
export function schemesOf({ security = [] }: Operation): readonly string[] {
  return security.flatMap((way) => Object.keys(way))
}

/** The header that a program sends, with its value in a variable. Undefined for public routes and those for a session only. */
function headerOf({ operation }: DocumentedRoute): CredentialHeader | undefined {
  const schemes = schemesOf(operation)
  // Only a completion is paid for; the other routes of a wallet ask who it is.
  return (schemes.includes('signIn') && operation.operationId !== 'createPaidCompletion' ? ['signIn'] : schemes)
    .map((scheme) => credentialHeaders[scheme])
    .find((header) => header !== undefined)
}

type CredentialHeader = { readonly name: string; readonly prefix: string; readonly variable: string }

const credentialHeaders: Readonly<Record<string, CredentialHeader>> = {
  key: { name: 'Authorization', prefix: 'Bearer ', variable: 'OPENAI_API_KEY' },
  management_key: { name: 'Authorization', prefix: 'Bearer ', variable: 'PENNY_MANAGEMENT_KEY' },
  payment: { name: 'PAYMENT-SIGNATURE', prefix: '', variable: 'X402_PAYMENT' },
  signIn: { name: 'SIGN-IN-WITH-X', prefix: '', variable: 'X402_SIGN_IN' },
}

function pythonValue(value: unknown): string {
  return JSON.stringify(value)
    .replaceAll(/\btrue\b/g, 'True')
    .replaceAll(/\bfalse\b/g, 'False')
    .replaceAll(/\bnull\b/g, 'None')
}
