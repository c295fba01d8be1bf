import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { StringDecoder } from 'node:string_decoder'
import { test } from 'node:test'
import { createChatCompletionsReader } from './chat-completions-events.ts'
import { createEventParser } from './event-stream.ts'
import type { EventReader } from './protocol.ts'
import { createResponsesReader } from './responses-events.ts'

// The streams and expectations of web-platform-tests (github.com/web-platform-tests/wpt, eventsource/format-*, 3-Clause BSD): name, bytes,
// data of the events.
const long = 'x'.repeat(200)
const streams: readonly (readonly [string, string, readonly string[]])[] = [
  ['bom', '\ufeffdata:1\n\n\ufeffdata:2\n\ndata:3\n\n', ['1', '3']],
  ['bom-2', '\ufeff\ufeffdata:1\n\ndata:2\n\ndata:3\n\n', ['2', '3']],
  ['comments', `data:1\r:\0\n:\r\ndata:2\n:${long}\rdata:3\n:data:fail\r:${long}\ndata:4\n\n`, ['1\n2\n3\n4']],
  ['data-before-final-empty-line', 'retry:1000\ndata:test1\n\nid:test\ndata:test2', ['test1']],
  ['field-data', 'data:\n\ndata\ndata\n\ndata:test\n\n', ['', '\n', 'test']],
  [
    'field-parsing',
    'data:\0\ndata:  2\rData:1\ndata\0:2\ndata:1\r\0data:4\nda-ta:3\rdata_5\ndata:3\rdata:\r\n data:32\ndata:4\n\n',
    ['\0\n 2\n1\n3\n\n4'],
  ],
  ['field-unknown', 'data:test\n data\ndata\nfoobar:xxx\njustsometext\n:thisisalogcomment\n\n', ['test\n']],
  ['leading-space', 'data:\ttest\rdata: \ndata:test\n\n', ['\ttest\n\ntest']],
  ['newlines', 'data:test\r\ndata\ndata:test\r\n\r', ['test\n\ntest']],
  ['null-character', 'data:\0\n\n\n\n', ['\0']],
  ['utf-8', 'data:ok…\n\n', ['ok…']],
]

for (const [name, stream, expected] of streams) {
  test(`a stream is read as browsers read it, cut at any byte: ${name}`, () => {
    const bytes = Buffer.from(stream)
    for (let cut = 0; cut <= bytes.length; cut += 1) {
      const data: string[] = []
      const parser = createEventParser((message) => void data.push(message.data), assert.fail)
      const decoder = new StringDecoder('utf8')
      for (const piece of [bytes.subarray(0, cut), bytes.subarray(cut)]) parser.feed(decoder.write(piece))
      assert.deepEqual(data, expected, `cut at byte ${cut}`)
    }
  })
}

const readers: readonly (readonly [string, () => EventReader])[] = [
  ['text.sse', () => createResponsesReader()],
  ['chat-completions/text.sse', () => createChatCompletionsReader()],
]
for (const [fixture, createReader] of readers) {
  test(`an answer is the same in every form that the format allows, cut at any byte: ${fixture}`, () => {
    const plain = readFileSync(new URL(`__fixtures__/${fixture}`, import.meta.url), 'utf8')
    const dressed = `\ufeff: hello\n${plain.replaceAll(/^data: ?\{/gm, ':ping\nretry: 1\nid\ndata:{\ndata:')}`
    const read = (bytes: Buffer, cut: number) => {
      const reader = createReader()
      const decoder = new StringDecoder('utf8')
      const pieces = [bytes.subarray(0, cut), bytes.subarray(cut)]
      const events = [...pieces.flatMap((piece) => reader.push(decoder.write(piece))), ...reader.end()]
      const text = events.map((event) => (event.type === 'text' ? event.text : '')).join('')
      return [text, ...events.filter(({ type }) => type !== 'text')]
    }
    const expected = read(Buffer.from(plain), 0)
    for (const newline of ['\n', '\r', '\r\n']) {
      const bytes = Buffer.from(dressed.replaceAll(/\r?\n/g, newline))
      for (let cut = 0; cut <= bytes.length; cut += 1)
        assert.deepEqual(read(bytes, cut), expected, `${JSON.stringify(newline)}, cut at byte ${cut}`)
    }
  })
}
