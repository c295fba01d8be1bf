import { parentPort, threadId } from 'node:worker_threads'
import type { CountQuestion } from '../token-worker.ts'

// Counts characters, and throws on some texts. Thread numbers are consecutive, so a text that kills every odd thread kills either
// its first thread or its second, never both.
parentPort?.on('message', ({ id, texts }: CountQuestion) => {
  const text = texts.join('')
  const parity = threadId % 2 === 0 ? 'even' : 'odd'
  if (text === 'die always' || text === `die in ${parity} threads`) throw new Error('dead')
  parentPort?.postMessage({ id, tokens: text.length })
})
