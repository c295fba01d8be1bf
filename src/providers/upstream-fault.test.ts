import assert from 'node:assert/strict'
import { test } from 'node:test'
import { piecesOf, readFault } from './upstream-fault.ts'

const key = 'hidden-operator-key-7Q2xZ9AAAA'
const hidden = ['api.upstream.test:8443', 'api.upstream.test', ...piecesOf(key), 'meta/Internal-Model-70b']

function shown(message: string): string {
  return readFault({ error: { message } }, hidden).message
}

test('no part of the operator’s key, hosts, addresses, files and models is in a message, however it is written', () => {
  const base64 = (text: string) => Buffer.from(text).toString('base64')
  const leaks = [
    key.toUpperCase(),
    `${key.slice(0, 10)}\n${key.slice(10)}`,
    `${key.slice(0, 14)}\u200b${key.slice(14)}`,
    key.split('').join(' '),
    `${key.slice(0, 18)}…AAAA`,
    `${key.slice(0, 18)}...AAAA`,
    `${key.slice(0, 12)}********AAAA`,
    key.slice(7, 19),
    base64(key),
    base64(`x:${key}`),
    base64(`xy${key}`),
    'API.Upstream.TEST',
    'api.upstream.test:8443',
    'https://other.example/path?key=1',
    '10.0.0.12:8000',
    '2001:db8:85a3::8a2e:370:7334',
    '[fd00::12]:8000',
    '::1',
    'fe80::1%eth0',
    'gpu-7.internal',
    'vllm-0.vllm.default.svc.cluster.local:8000',
    'localhost:11434',
    'gpu-node-7:8000',
    '/srv/models/llama/config.json',
    '~/models/secret/weights.gguf',
    'C:\\models\\secret.gguf',
    'Meta/internal-model-70B',
  ]
  for (const leak of leaks) assert.match(shown(`Refused: ${leak} (no)`), /^Refused: \[removed\],? \(no\)$/, leak)
})

test('messages that help the customer stay as they are', () => {
  for (const help of [
    'messages[0].content: expected text and/or images, got image/png at 12:30:45.',
    'temperature must be between 0 and 2; ratio 10/20/30 is not one, nor std::vector.',
    'The model gpt-5.6-luna does not support tools.0.function.parameters. Code:400, see line:12.',
    'Ungültiger Wert für „größe“: 你好 😀',
  ])
    assert.equal(shown(help), help)
})
