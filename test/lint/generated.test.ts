import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { loadCommands } from '../../src/commands/all.ts'
import { helpText } from '../../src/commands/help.ts'
import { renderCommandsPage } from '../support/commands-page.ts'
import { renderOpenApi } from '../support/openapi.ts'
import { renderSettingsPage } from '../support/settings-page.ts'

test('openapi.json is what the routes’ schemas say', () => {
  const committed = readFileSync(new URL('../../openapi.json', import.meta.url), 'utf8')
  assert.equal(committed, renderOpenApi(), 'run: npm run generate')
})

test('docs/commands.md is what the command table says', async () => {
  const committed = readFileSync(new URL('../../docs/commands.md', import.meta.url), 'utf8')
  assert.equal(committed, await renderCommandsPage(), 'run: npm run generate')
})

test('the help of every command names all of its options and fits a terminal of 80 columns', async () => {
  for (const [name, command] of Object.entries(await loadCommands())) {
    const help = helpText(command.summary, command.usage)
    const lines = [`  penny ${name.padEnd(10)} ${command.summary}`, ...help.split('\n')]
    assert.deepEqual(
      lines.filter((line) => line.length > 80),
      [],
      name,
    )
    const options = Object.keys(command.options)
    assert.deepEqual(
      options.filter((option) => !help.includes(`--${option}`)),
      [],
      name,
    )
  }
})

test('docs/settings.md is what the list of settings says', () => {
  const committed = readFileSync(new URL('../../docs/settings.md', import.meta.url), 'utf8')
  assert.equal(committed, renderSettingsPage(), 'run: npm run generate')
})
