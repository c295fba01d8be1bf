import { copyFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { renderCommandsPage } from './support/commands-page.ts'
import { renderOpenApi } from './support/openapi.ts'
import { renderSettingsPage } from './support/settings-page.ts'

// `npm run generate`: writes the files that are derived from others and committed. `npm run check` proves them fresh.

const root = fileURLToPath(new URL('..', import.meta.url))
writeFileSync(join(root, 'openapi.json'), renderOpenApi())
console.log('openapi.json')
writeFileSync(join(root, 'docs/commands.md'), await renderCommandsPage())
console.log('docs/commands.md')
writeFileSync(join(root, 'docs/settings.md'), renderSettingsPage())
console.log('docs/settings.md')
copyFileSync(join(root, 'deploy/prometheus/alerts.yaml'), join(root, 'deploy/helm/penny/alerts.yaml'))
console.log('deploy/helm/penny/alerts.yaml')
