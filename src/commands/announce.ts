import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { format, type Usdc } from '../money/usdc.ts'
import type { Output } from './command.ts'

/** What somebody needs to send the first request. */
export type SandboxFacts = {
  readonly baseUrl: string
  readonly apiKey: string
  readonly dashboardUrl: string
  readonly spendable: Usdc
}

/** The same facts for programs. Written whole or not at all, and readable by its owner alone: it holds a key. */
export function writeSandboxFile(dataDir: string, facts: SandboxFacts): void {
  const path = join(dataDir, 'sandbox.json')
  const content = {
    base_url: facts.baseUrl,
    api_key: facts.apiKey,
    dashboard_url: facts.dashboardUrl,
    pid: process.pid,
  }
  writeFileSync(`${path}.new`, `${JSON.stringify(content, null, 2)}\n`, { mode: 0o600 })
  renameSync(`${path}.new`, path)
}

/** Where the sandbox of this data folder was last served; undefined when it never was. */
export function readSandboxUrl(dataDir: string): string | undefined {
  try {
    const { base_url: baseUrl } = JSON.parse(readFileSync(join(dataDir, 'sandbox.json'), 'utf8')) as {
      base_url: string
    }
    return baseUrl.replace(/\/v1$/, '')
  } catch {
    return undefined
  }
}

export function announce(facts: SandboxFacts, output: Output): string {
  if (output.json) {
    const { baseUrl, apiKey, dashboardUrl } = facts
    return `${JSON.stringify({ base_url: baseUrl, api_key: apiKey, dashboard_url: dashboardUrl, pid: process.pid })}\n`
  }
  const strong = (text: string) => (output.color ? `\x1b[1m${text}\x1b[0m` : text)
  return `
${strong('Penny Router is ready.')}

  Base URL   ${strong(facts.baseUrl)}
  API key    ${strong(facts.apiKey)}
  Balance    ${format(facts.spendable)} test USDC
  Dashboard  ${facts.dashboardUrl}

${strong('curl')}

curl -i ${facts.baseUrl}/chat/completions \\
  -H "Authorization: Bearer ${facts.apiKey}" \\
  -H "Content-Type: application/json" \\
  -d '{"model": "gpt-5.6-terra", "messages": [{"role": "user", "content": "What is a penny?"}]}'

${strong('Python')}  (pip install openai)

from openai import OpenAI
client = OpenAI(base_url="${facts.baseUrl}", api_key="${facts.apiKey}")
answer = client.chat.completions.create(model="gpt-5.6-terra", messages=[{"role": "user", "content": "What is a penny?"}])
print(answer.choices[0].message.content)

${strong('Node')}  (npm install openai)

import OpenAI from 'openai'
const client = new OpenAI({ baseURL: '${facts.baseUrl}', apiKey: '${facts.apiKey}' })
const answer = await client.chat.completions.create({ model: 'gpt-5.6-terra', messages: [{ role: 'user', content: 'What is a penny?' }] })
console.log(answer.choices[0].message.content)

Ctrl-C stops everything.
`
}
