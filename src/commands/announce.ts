import { format, type Usdc } from '../money/usdc.ts'
import type { Output } from './command.ts'
import type { SandboxFile } from './sandbox-file.ts'

export type Announcement = {
  readonly spendable: Usdc
  readonly model: string
  /** The output is stored, for example in a journal or a container's log. */
  readonly hidesSecrets: boolean
}

/** What a user needs to send the first request. */
export function announce(
  { base_url, api_key, dashboard_url }: SandboxFile,
  { spendable, model, hidesSecrets }: Announcement,
  output: Output,
): string {
  const strong = (text: string) => (output.color ? `\x1b[1m${text}\x1b[0m` : text)
  if (hidesSecrets)
    return `
Penny Router is ready.

  Base URL   ${base_url}
  API key    in sandbox.json in DATA_DIR
  Balance    ${format(spendable)} test USDC
  Dashboard  npx penny login-link "Sandbox demo" prints a link that signs you in

curl -i ${base_url}/chat/completions \\
  -H "Authorization: Bearer $OPENAI_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{"model": "${model}", "messages": [{"role": "user", "content": "What is a penny?"}]}'

Ctrl-C stops everything.
`
  return `
${strong('Penny Router is ready.')}

  Base URL   ${strong(base_url)}
  API key    ${strong(api_key)}
  Balance    ${format(spendable)} test USDC
  Dashboard  ${dashboard_url}

${strong('curl')}

curl -i ${base_url}/chat/completions \\
  -H "Authorization: Bearer ${api_key}" \\
  -H "Content-Type: application/json" \\
  -d '{"model": "${model}", "messages": [{"role": "user", "content": "What is a penny?"}]}'

${strong('Python')}  (pip install openai)

from openai import OpenAI
client = OpenAI(base_url="${base_url}", api_key="${api_key}")
answer = client.chat.completions.create(model="${model}", messages=[{"role": "user", "content": "What is a penny?"}])
print(answer.choices[0].message.content)

${strong('Node')}  (npm install openai)

import OpenAI from 'openai'
const client = new OpenAI({ baseURL: '${base_url}', apiKey: '${api_key}' })
const answer = await client.chat.completions.create({ model: '${model}', messages: [{ role: 'user', content: 'What is a penny?' }] })
console.log(answer.choices[0].message.content)

${strong('Without a key')}  (a wallet pays each request over x402)

npx penny x402 demo

Ctrl-C stops everything.
`
}
