import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parsePageUrl, RefusedUrlError, refuseLocalHost } from './untrusted-url.ts'

test('an address is read once, into one form', () => {
  const forms: Readonly<Record<string, string>> = {
    'https://Example.COM./a/../b?c#d': 'https://example.com/b?c',
    'http://example.com:80/': 'http://example.com/',
    'https://example.com:80/': 'https://example.com:80/',
    'http:example.com': 'http://example.com/',
    ' https://example.com ': 'https://example.com/',
    'https://bücher.example/ü': 'https://xn--bcher-kva.example/%C3%BC',
    'http://0x08080808/': 'http://8.8.8.8/',
    'http://[2606:4700:0:0::1111]/': 'http://[2606:4700::1111]/',
    'https://a_b.example/': 'https://a_b.example/',
  }
  for (const [text, href] of Object.entries(forms)) {
    const url = parsePageUrl(text)
    refuseLocalHost(url)
    assert.equal(url.href, href)
  }
})

test('other ports, schemes, user names and endless addresses are refused, on public hosts too', () => {
  const refused = [
    '',
    'example.com',
    '/path',
    'http://',
    'http://example.com:22/',
    'http://example.com:8080/',
    'https://example.com:8443/',
    'http://example.com:0/',
    'ftp://example.com/',
    'file:///etc/passwd',
    'data:text/plain,x',
    'javascript:alert(1)',
    'ws://example.com/',
    'http://user@example.com/',
    'http://user:word@example.com/',
    'http://:word@example.com/',
    'http://exa mple.com/',
    `http://example.com/${'a'.repeat(2_048)}`,
    // Short as written, long once it is escaped.
    `http://example.com/${'ü'.repeat(500)}`,
  ]
  for (const text of refused) assert.throws(() => parsePageUrl(text), RefusedUrlError, text)
})

test('host names of private networks are refused', () => {
  const refused = [
    'localhost',
    'LOCALHOST.',
    'a.localhost',
    'router',
    'printer.local',
    'db.internal',
    'metadata.google.internal',
    'host.docker.internal',
    'nas.home.arpa',
    'docs.penny.test',
    'x.onion',
    '127.0.0.1',
    '127.1',
    '0',
    '①②⑦.⓪.⓪.①',
    '[::1]',
    'a..example.com',
    'example.com..',
    `${'a'.repeat(64)}.example`,
    `${'a.'.repeat(130)}example`,
  ]
  for (const host of refused) {
    assert.throws(() => refuseLocalHost(parsePageUrl(`http://${host}/`)), RefusedUrlError, host)
  }
})
