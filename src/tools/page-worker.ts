import { decodeText } from './charset.ts'
import { htmlToMarkdown } from './html-to-markdown.ts'
import { answerQuestion, type ReadPage, type ReadQuestion, titleCharactersMax } from './page-channel.ts'
import type { PageKind } from './page-kind.ts'

// Main module of the child processes that parse untrusted pages. page-reader.ts starts them.

type Parsed = { readonly title: string | undefined; readonly text: string; readonly more: boolean }

/** Only this much of a longer page is parsed. It exceeds what a model is given to read, and its tree fits the heap. */
const htmlCharactersMax = 1_500_000

answerQuestion(async (kind) => {
  const parse = await parserOf(kind)
  return async (question) => cut(await parse(question), question.charactersMax)
})

async function parserOf(kind: PageKind): Promise<(question: ReadQuestion) => Parsed | Promise<Parsed>> {
  if (kind === 'html') return readHtml
  if (kind === 'text')
    return ({ body, contentType }) => ({ title: undefined, text: decodeText(body, contentType), more: false })
  // A large library, seldom needed: load it with the first PDF.
  const { pdfText } = await import('./pdf-text.ts')
  return ({ body, charactersMax }) => pdfText(body, charactersMax)
}

function readHtml({ body, contentType, url }: ReadQuestion): Parsed {
  const text = decodeText(body, contentType)
  const { title, markdown } = htmlToMarkdown(text.slice(0, htmlCharactersMax), url)
  return { title, text: markdown, more: text.length > htmlCharactersMax }
}

function cut({ title, text, more }: Parsed, charactersMax: number): ReadPage {
  const isLonger = text.length > charactersMax
  // Characters outside the basic plane are two code units long. Do not keep half a surrogate pair.
  const whole = isLonger ? text.slice(0, charactersMax).replace(/[\uD800-\uDBFF]$/, '') : text
  return { title: title?.slice(0, titleCharactersMax), text: whole, truncated: isLonger || more }
}
