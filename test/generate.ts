import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { openDatabase } from '../src/db/database.ts'
import { startEmbeddedPostgres } from '../src/db/embedded-postgres.ts'
import { migrate } from '../src/db/migrate.ts'
import { dumpSchema } from '../src/db/schema-dump.ts'
import { renderCommandsPage } from './support/commands-page.ts'
import { renderOpenApi } from './support/openapi.ts'

// `npm run generate`: writes the files that are derived from others and committed. `npm run check` proves them fresh.

const root = fileURLToPath(new URL('..', import.meta.url))
writeFileSync(join(root, 'openapi.json'), renderOpenApi())
console.log('openapi.json')
writeFileSync(join(root, 'docs/commands.md'), await renderCommandsPage())
console.log('docs/commands.md')
copyFileSync(join(root, 'deploy/prometheus/alerts.yaml'), join(root, 'deploy/helm/penny/alerts.yaml'))
console.log('deploy/helm/penny/alerts.yaml')

const dataDir = mkdtempSync(join(tmpdir(), 'penny-generate-'))
const postgres = await startEmbeddedPostgres({ dataDir })
const database = openDatabase({ url: postgres.url, poolMax: 1, applicationName: 'generate' })
try {
  await migrate(database, join(root, 'migrations'))
  writeFileSync(join(root, 'schema.sql'), await dumpSchema(database))
  console.log('schema.sql')
} finally {
  await database.close()
  await postgres.stop()
  rmSync(dataDir, { recursive: true, force: true })
}
