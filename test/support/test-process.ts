import { dirname, relative } from 'node:path'
import { pathToFileURL } from 'node:url'
import { isMainThread } from 'node:worker_threads'
import { youngGeneration } from './child-environment.ts'
import { beginFile } from './file-costs.ts'

// Loaded into the process of every test file, before it. Its threads load it too, and need none of this.

if (isMainThread) {
  await import('./watchdog.ts')
  await import('./same-examples.ts')
  // What `fork` passes on.
  process.execArgv = [youngGeneration, ...bundledChildren(process.env.TEST_SERVICE_PROGRAM)]
  beginFile(relative(process.cwd(), process.argv[1]!))
}

/** The environment of the service's child processes does not say where the bundle is. */
function bundledChildren(main: string | undefined): readonly string[] {
  if (main === undefined) return []
  const preload = new URL('./bundled-child.ts', import.meta.url)
  preload.searchParams.set('folder', pathToFileURL(`${dirname(main)}/`).href)
  return [`--import=${preload}`]
}
