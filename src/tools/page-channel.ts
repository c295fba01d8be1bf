import type { PageKind } from './page-kind.ts'

export type ReadQuestion = {
  readonly kind: PageKind
  readonly body: Uint8Array
  readonly contentType: string
  readonly url: string
  readonly charactersMax: number
}

export type ReadPage = { readonly title: string | undefined; readonly text: string; readonly truncated: boolean }

/** `reading`: the code is loaded and the page has arrived, so the page's read timeout starts. */
export type ReadAnswer = { readonly reading: true } | { readonly page: ReadPage } | { readonly problem: string }

/** Loads the code for one kind of page. The returned function parses one page. */
export type PageParser = (kind: PageKind) => Promise<(question: ReadQuestion) => Promise<ReadPage> | ReadPage>

type Header = Omit<ReadQuestion, 'body'> & { readonly bodyBytes: number }

export const titleCharactersMax = 300
const problemCharactersMax = 300
const newline = 0x0a

/** A question on the wire: one line of JSON, followed by the bytes of the page. */
export function encodeQuestion({ body, ...rest }: ReadQuestion): string {
  return `${JSON.stringify({ ...rest, bodyBytes: body.byteLength } satisfies Header)}\n`
}

/**
 * Checks what a child sent: a page that exploited the parser can make the child send anything. Returns undefined for text that is
 * not a valid answer to the question.
 */
export function decodeAnswer(line: string, { charactersMax }: ReadQuestion): ReadAnswer | undefined {
  let answer: Partial<Record<'reading' | 'problem', unknown>> & { readonly page?: Partial<Record<string, unknown>> }
  try {
    answer = JSON.parse(line) ?? {}
  } catch {
    return undefined
  }
  if (answer.reading === true) return { reading: true }
  if (typeof answer.problem === 'string') return { problem: answer.problem.slice(0, problemCharactersMax) }
  const { title, text, truncated } = answer.page ?? {}
  if (title !== undefined && (typeof title !== 'string' || title.length > titleCharactersMax)) return undefined
  if (typeof text !== 'string' || text.length > charactersMax || typeof truncated !== 'boolean') return undefined
  return { page: { title, text, truncated } }
}

/** Includes JSON escapes: an escaped character takes six bytes. */
export function answerBytesMax({ charactersMax }: ReadQuestion): number {
  return 6 * (charactersMax + titleCharactersMax) + 1_000
}

/** Runs in the child. Answers one question. Ends when standard input closes, which happens when the service stops or dies. */
export function answerQuestion(parser: PageParser): void {
  // The permission model does not cover signals, and the child runs as the same user as the service: it could kill the service.
  for (const name of ['kill', '_kill']) Reflect.deleteProperty(process, name)
  const { stdin, stdout } = process
  const send = (answer: ReadAnswer) => void stdout.write(`${JSON.stringify(answer)}\n`)
  // Standard output carries answers only.
  globalThis.console = new console.Console(process.stderr)
  let head = Buffer.alloc(0)
  let question: ReadQuestion | undefined
  let received = 0
  const receive = (asked: ReadQuestion, bytes: Uint8Array) => {
    asked.body.set(bytes, received)
    received += bytes.byteLength
    if (received === asked.body.byteLength) void answer(parser, asked, send)
  }
  stdin.on('data', (chunk: Buffer) => {
    if (question !== undefined) return receive(question, chunk)
    head = Buffer.concat([head, chunk])
    const end = head.indexOf(newline)
    if (end === -1) return
    const { bodyBytes, ...header } = JSON.parse(head.toString('utf8', 0, end)) as Header
    question = { ...header, body: new Uint8Array(bodyBytes) }
    receive(question, head.subarray(end + 1))
  })
  stdin.on('end', () => process.exit())
  stdout.on('error', () => process.exit())
}

async function answer(parser: PageParser, question: ReadQuestion, send: (answer: ReadAnswer) => void): Promise<void> {
  try {
    const read = await parser(question.kind)
    send({ reading: true })
    send({ page: await read(question) })
  } catch (error) {
    send({ problem: String(error).slice(0, problemCharactersMax) })
  }
}
