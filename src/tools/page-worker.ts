import { parentPort } from 'node:worker_threads'
import { decodeText } from './charset.ts'
import { htmlToMarkdown } from './html-to-markdown.ts'
import type { PageKind } from './page-kind.ts'
import { pdfText } from './pdf-text.ts'

export type ReadQuestion = {
  readonly kind: PageKind
  readonly body: Uint8Array
  readonly contentType: string
  readonly url: string
  readonly charactersMax: number
}

export type ReadPage = { readonly title: string | undefined; readonly text: string; readonly truncated: boolean }

export type ReadAnswer = { readonly page: ReadPage } | { readonly problem: string }

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
  if (kind === 'pdf') return pdfText(body, charactersMax)
  const text = decodeText(body, contentType)
  if (kind === 'text') return { title: undefined, text, more: false }
  const { title, markdown } = htmlToMarkdown(text, url)
  return { title, text: markdown, more: false }
}
