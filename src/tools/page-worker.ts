import { parentPort } from 'node:worker_threads'
import { decodeText } from './charset.ts'
import { htmlToMarkdown } from './html-to-markdown.ts'
import type { PageKind } from './page-kind.ts'

export type ReadQuestion = {
  readonly kind: PageKind
  readonly body: Uint8Array
  readonly contentType: string
  readonly url: string
  readonly charactersMax: number
}

export type ReadPage = { readonly title: string | undefined; readonly text: string; readonly truncated: boolean }

export type ReadAnswer = { readonly page: ReadPage } | { readonly problem: string }

/** Of a longer page the beginning is parsed: it holds more than a model is given to read, and its tree fits the thread. */
const htmlCharactersMax = 1_500_000

// One question at a time: the thread is stopped from outside when it takes too long over one.
parentPort?.on('message', async (question: ReadQuestion) => {
  parentPort?.postMessage(await answerTo(question))
})

async function answerTo(question: ReadQuestion): Promise<ReadAnswer> {
  try {
    const { title, text, more } = await read(question)
    const { charactersMax } = question
    const cut = text.length > charactersMax
    // A letter outside of the basic plane is two units long: half of one is no letter.
    const whole = cut ? text.slice(0, charactersMax).replace(/[\uD800-\uDBFF]$/, '') : text
    return { page: { title: title?.slice(0, 300), text: whole, truncated: cut || more } }
  } catch (error) {
    return { problem: String(error) }
  }
}

async function read({ kind, body, contentType, url, charactersMax }: ReadQuestion) {
  if (kind === 'pdf') {
    // Large, and seldom needed: loaded when the first PDF comes.
    const { pdfText } = await import('./pdf-text.ts')
    return pdfText(body, charactersMax)
  }
  const text = decodeText(body, contentType)
  if (kind === 'text') return { title: undefined, text, more: false }
  const { title, markdown } = htmlToMarkdown(text.slice(0, htmlCharactersMax), url)
  return { title, text: markdown, more: text.length > htmlCharactersMax }
}
