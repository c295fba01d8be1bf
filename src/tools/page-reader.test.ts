import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { deflateSync } from 'node:zlib'
import { atEnd } from '../../test/support/at-end.ts'
import { decodeText } from './charset.ts'
import type { ReadQuestion } from './page-channel.ts'
import { pageKind } from './page-kind.ts'
import { createPageReader, pageReaderLimits } from './page-reader.ts'
import { FetchFailedError } from './web-fetch.ts'

const never = new AbortController().signal
const reader = createPageReader({
  ...pageReaderLimits,
  processesMax: 1,
  // No test here is about time; on a busy machine a page takes as long as it takes.
  readMsMax: 60_000,
  waitingMax: 3,
})
after(() => reader.close())

test('the text of a PDF is read, page by page, with its title', async () => {
  const page = await reader.read(
    question(
      'pdf',
      pdf(['BT /F1 12 Tf 72 720 Td (Hold the money) Tj ET', 'BT /F1 12 Tf 72 720 Td (Then charge) Tj ET']),
    ),
    never,
    'a',
  )
  assert.deepEqual(page, { title: 'On holds', text: 'Hold the money\n\nThen charge', truncated: false })
})

test('a text that is too long is cut between letters, and says so', async () => {
  const page = await reader.read({ ...question('text', Buffer.from('😀'.repeat(10))), charactersMax: 5 }, never, 'a')
  assert.deepEqual(page, { title: undefined, text: '😀😀', truncated: true })
})

test('only the beginning of a page of ten megabytes is read', async () => {
  const page = await reader.read(
    question('html', Buffer.from(`<main>${'<p>A <b>bold</b> word</p>'.repeat(400_000)}`)),
    never,
    'a',
  )
  assert.deepEqual([page.text.slice(0, 15), page.truncated], ['A **bold** word', true])
})

test('an invalid PDF fails only its own page', async () => {
  await assert.rejects(
    reader.read(question('pdf', Buffer.from('%PDF-1.7 and then nothing')), never, 'a'),
    FetchFailedError,
  )
  assert.equal((await reader.read(question('html', Buffer.from('<p>still here</p>')), never, 'a')).text, 'still here')
})

test('a PDF that unpacks without end is stopped, and the next page is read', async (t) => {
  const memory = { heapMegabytesMax: 64, buffersBytesMax: 32 * 1024 * 1024 }
  const small = createPageReader({ ...pageReaderLimits, processesMax: 1, readMsMax: 60_000, ...memory })
  atEnd(t, () => small.close())
  const spaces = deflateSync(Buffer.alloc(256 * 1024 * 1024, ' '), { level: 1 })
  await assert.rejects(small.read(question('pdf', pdf([spaces])), never, 'a'), FetchFailedError)
  assert.equal((await small.read(question('html', Buffer.from('<p>still here</p>')), never, 'a')).text, 'still here')
})

test('a page of a million nested elements is read or given up, and the next is read', async (t) => {
  const hasty = createPageReader({ ...pageReaderLimits, processesMax: 1, readMsMax: 1_000 })
  atEnd(t, () => hasty.close())
  for (const nested of ['<div>', '<a><b><p><table>']) {
    const reading = hasty.read(question('html', Buffer.from(`${nested.repeat(1_000_000)}deep`)), never, 'a')
    await reading.catch((error: unknown) => assert.ok(error instanceof FetchFailedError))
  }
  assert.equal((await reader.read(question('html', Buffer.from('<p>still here</p>')), never, 'a')).text, 'still here')
})

test('pages beyond the queue’s limit are refused, and a cancelled page leaves the queue', async () => {
  const controller = new AbortController()
  const reason = new Error('gone')
  const pages = Array.from({ length: 4 }, () =>
    reader.read(question('html', Buffer.from('<p>x</p>')), controller.signal, 'a'),
  )
  await assert.rejects(async () => reader.read(question('html', Buffer.from('x')), never, 'a'), FetchFailedError)
  controller.abort(reason)
  const outcomes = await Promise.allSettled(pages)
  assert.ok(outcomes.every((outcome) => outcome.status === 'fulfilled' || outcome.reason === reason))
})

test('many pages of one account delay the page of another account by one page', async (t) => {
  const shared = createPageReader({ ...pageReaderLimits, processesMax: 1, readMsMax: 60_000 })
  atEnd(t, () => shared.close())
  const order: string[] = []
  const read = (account: string) =>
    shared.read(question('html', Buffer.from('<p>x</p>')), never, account).then(() => order.push(account))
  await Promise.all([read('greedy'), read('greedy'), read('greedy'), read('honest')])
  assert.deepEqual(order, ['greedy', 'greedy', 'honest', 'greedy'])
})

test('the charset is that of the byte order mark, the header, the page, or a guess from the bytes', () => {
  const cases: readonly (readonly [string, Uint8Array, string])[] = [
    ['text/html; charset=ISO-8859-1', Buffer.from([0x63, 0xe9]), 'cé'],
    ['text/html; charset="shift_jis"', Buffer.from([0x93, 0xfa]), '日'],
    [
      'text/html',
      Buffer.concat([Buffer.from('<meta charset=windows-1251>'), Buffer.from([0xcf])]),
      '<meta charset=windows-1251>П',
    ],
    [
      'text/html',
      Buffer.concat([
        Buffer.from('<meta http-equiv="Content-Type" content="text/html; charset=gbk">'),
        Buffer.from([0xc4, 0xe3]),
      ]),
      '<meta http-equiv="Content-Type" content="text/html; charset=gbk">你',
    ],
    [
      'text/xml',
      Buffer.concat([Buffer.from('<?xml version="1.0" encoding="iso-8859-2"?>'), Buffer.from([0xb1])]),
      '<?xml version="1.0" encoding="iso-8859-2"?>ą',
    ],
    ['text/html; charset=ISO-8859-1', Buffer.from('\ufeffcé'), 'cé'],
    ['text/plain', Buffer.from([0xff, 0xfe, 0x41, 0x00]), 'A'],
    ['text/plain', Buffer.from('naïve'), 'naïve'],
    ['text/plain', Buffer.from([0xe9, 0x63]), 'éc'],
    ['text/plain; charset=no-such-thing', Buffer.from('naïve'), 'naïve'],
    ['text/plain', Buffer.from('naïve').subarray(0, 3), 'na'],
  ]
  for (const [contentType, body, expected] of cases) assert.equal(decodeText(body, contentType), expected, contentType)
})

test('pages, texts and PDFs are distinguished; images and programs are not read', () => {
  const cases: readonly (readonly [string, string, string | undefined])[] = [
    ['text/html; charset=utf-8', '', 'html'],
    ['application/xhtml+xml', '', 'html'],
    ['text/markdown', '', 'text'],
    ['application/json', '', 'text'],
    ['application/ld+json', '', 'text'],
    ['application/rss+xml', '', 'text'],
    ['application/pdf', '', 'pdf'],
    ['', '%PDF-1.4', 'pdf'],
    ['', '\n<!DOCTYPE html>', 'html'],
    ['application/octet-stream', 'plain', 'text'],
    ['application/octet-stream', 'MZ\0\0', undefined],
    ['image/png', '', undefined],
    ['application/zip', '', undefined],
    ['video/mp4', '%PDF-', undefined],
  ]
  for (const [type, body, expected] of cases) assert.equal(pageKind(type, Buffer.from(body)), expected, type)
})

function question(kind: ReadQuestion['kind'], body: Uint8Array): ReadQuestion {
  return { kind, body: new Uint8Array(body), contentType: '', url: 'https://site.example/', charactersMax: 10_000 }
}

/** A PDF with one page per content stream; bytes are used as a compressed stream. */
function pdf(contents: readonly (string | Buffer)[]): Buffer {
  const pages = contents.map((_, index) => `${4 + 2 * index} 0 R`).join(' ')
  const objects: Buffer[] = [
    Buffer.from('<< /Type /Catalog /Pages 2 0 R >>'),
    Buffer.from(`<< /Type /Pages /Kids [${pages}] /Count ${contents.length} >>`),
    Buffer.from('<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>'),
  ]
  for (const [index, content] of contents.entries()) {
    objects.push(
      Buffer.from(
        `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents ${5 + 2 * index} 0 R >>`,
      ),
    )
    const filter = typeof content === 'string' ? '' : ' /Filter /FlateDecode'
    objects.push(
      Buffer.concat([
        Buffer.from(`<< /Length ${content.length}${filter} >>\nstream\n`),
        Buffer.from(content),
        Buffer.from('\nendstream'),
      ]),
    )
  }
  objects.push(Buffer.from('<< /Title (On holds) >>'))
  let body = Buffer.from('%PDF-1.4\n')
  const offsets = objects.map((object, index) => {
    const offset = body.length
    body = Buffer.concat([body, Buffer.from(`${index + 1} 0 obj\n`), object, Buffer.from('\nendobj\n')])
    return offset
  })
  const table = offsets.map((offset) => `${String(offset).padStart(10, '0')} 00000 n \n`).join('')
  const trailer = `trailer\n<< /Size ${objects.length + 1} /Root 1 0 R /Info ${objects.length} 0 R >>\nstartxref\n${body.length}\n%%EOF`
  return Buffer.concat([body, Buffer.from(`xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${table}${trailer}`)])
}
