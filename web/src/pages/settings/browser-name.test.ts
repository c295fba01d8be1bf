import assert from 'node:assert/strict'
import { test } from 'node:test'
import { browserName } from './browser-name.ts'

test('a session is named by its browser and system, and by all there is where neither is known', () => {
  const chrome = 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/150.0.0.0 Safari/537.36'
  assert.equal(browserName(chrome), 'Chrome on Linux')
  assert.equal(browserName(`${chrome} Edg/150.0`), 'Edge on Linux')
  assert.equal(
    browserName(
      'Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 Version/19.0 Safari/604.1',
    ),
    'Safari on iPhone',
  )
  assert.equal(
    browserName('Mozilla/5.0 (Windows NT 10.0; rv:150.0) Gecko/20100101 Firefox/150.0'),
    'Firefox on Windows',
  )
  assert.equal(browserName('penny-command'), 'penny-command')
  assert.equal(browserName(null), 'Unknown browser')
})
