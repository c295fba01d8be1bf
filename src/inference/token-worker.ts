import { getPriority, setPriority } from 'node:os'
import { parentPort } from 'node:worker_threads'
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base'
import { cutRuns } from './cut-runs.ts'

export type CountQuestion = { readonly id: number; readonly texts: readonly string[] }
export type CountAnswer = { readonly id: number; readonly tokens?: number; readonly problem?: string }

// A text that spells a special token, such as <|endoftext|>, is counted as ordinary text and never refused.
const asText = { disallowedSpecial: new Set<string>() }

const niceMax = 19
// Counting takes seconds for one account's long prompts, and may share a core with the event loop that serves all accounts. On Linux a
// thread has its own priority; elsewhere this would be that of the whole process.
if (parentPort !== null && process.platform === 'linux') setPriority(Math.min(niceMax, getPriority() + 10))

parentPort?.on('message', ({ id, texts }: CountQuestion) => {
  parentPort?.postMessage(answerTo(id, texts))
})

function answerTo(id: number, texts: readonly string[]): CountAnswer {
  try {
    let tokens = 0
    for (const text of texts) for (const piece of cutRuns(text)) tokens += countTokens(piece, asText)
    return { id, tokens }
  } catch (error) {
    return { id, problem: String(error) }
  }
}
