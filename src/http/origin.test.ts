import assert from 'node:assert/strict'
import { test } from 'node:test'
import { checkSameOrigin, pageAtItsName, readSessionToken, sessionCookie, signInProblem, siteOf } from './origin.ts'
import type { Visitor } from './visitor.ts'

function visitor(headers: Record<string, string>): Visitor {
  return { header: (name) => headers[name], address: '203.0.113.5', network: '203.0.113.5', isLocal: false }
}

test('over https the cookie is bound to the host and to https', () => {
  assert.equal(
    sessionCookie(siteOf('https://penny.example'), 'token', 60),
    '__Host-penny=token; Path=/; HttpOnly; SameSite=Lax; Max-Age=60; Secure',
  )
  assert.match(sessionCookie(siteOf('http://localhost:8402'), 'token', 60), /^penny_session=token; .*Max-Age=60$/)
})

test('signing in over plain http works on the machine itself and nowhere else', () => {
  assert.equal(signInProblem(siteOf('https://penny.example'), visitor({ host: 'penny.example' })), undefined)
  assert.equal(signInProblem(siteOf('http://localhost:8402'), visitor({ host: 'localhost:8402' })), undefined)
  assert.match(signInProblem(siteOf('http://localhost:8402'), visitor({ host: '192.168.1.5:8402' }))!, /machine itself/)
  assert.match(signInProblem(siteOf('http://penny.example'), visitor({ host: 'penny.example' }))!, /needs https/)
  assert.match(signInProblem(siteOf('http://10.0.0.5:8402'), visitor({ host: 'localhost' }))!, /needs https/)
  assert.match(signInProblem(siteOf('http://localhost.evil.example'), visitor({ host: 'localhost' }))!, /needs https/)
})

test('only the site’s own pages may change something', () => {
  const site = siteOf('https://penny.example')
  checkSameOrigin(site, visitor({ origin: 'https://penny.example', 'sec-fetch-site': 'same-origin' }))
  checkSameOrigin(site, visitor({ origin: 'https://penny.example' }))
  const strange: Record<string, string>[] = [
    {},
    { 'sec-fetch-site': 'same-origin' },
    { origin: 'http://penny.example' },
    { origin: 'https://penny.example:8443' },
    { origin: 'https://penny.example.evil.example' },
    { origin: 'null' },
    { origin: 'https://penny.example', 'sec-fetch-site': 'cross-site' },
  ]
  for (const headers of strange)
    assert.throws(() => checkSameOrigin(site, visitor(headers)), { code: 'cross_site_request' })
})

test('a page requested at an IP address is redirected to its host name, so that passkeys and cookies work', () => {
  const site = siteOf('http://localhost:8402')
  const at = (host: string) => pageAtItsName(site, visitor({ host }), '/keys?open=1')
  assert.equal(at('127.0.0.1:8402'), 'http://localhost:8402/keys?open=1')
  assert.equal(at('[::1]:8402'), 'http://localhost:8402/keys?open=1')
  assert.equal(at('localhost:8402'), undefined)
  assert.equal(pageAtItsName(siteOf('https://penny.example'), visitor({ host: '127.0.0.1' }), '/'), undefined)
})

test('the session’s cookie is found among others, and only under the name of this place', () => {
  const site = siteOf('https://penny.example')
  assert.equal(readSessionToken(site, visitor({ cookie: 'a=b; __Host-penny=token; c=d' })), 'token')
  assert.equal(readSessionToken(site, visitor({ cookie: 'penny_session=planted; x__Host-penny=planted' })), undefined)
  assert.equal(readSessionToken(site, visitor({})), undefined)
})

test('passkeys are offered at a name and not at an IP address', () => {
  assert.equal(siteOf('http://localhost:8402').relyingPartyId, 'localhost')
  assert.equal(siteOf('https://penny.example').relyingPartyId, 'penny.example')
  assert.equal(siteOf('http://127.0.0.1:8402').relyingPartyId, undefined)
  assert.equal(siteOf('http://[::1]:8402').relyingPartyId, undefined)
})
