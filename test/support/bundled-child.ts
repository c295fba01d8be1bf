import { existsSync } from 'node:fs'
import { registerHooks } from 'node:module'
import { fileURLToPath } from 'node:url'
import { nameInBundle } from './name-in-bundle.ts'

// Loaded into the processes that a service within a test file starts: they run the program of the bundle, if it has theirs.

const folder = new URL(import.meta.url).searchParams.get('folder')!
const hooks = registerHooks({
  resolve(specifier, context, resolve) {
    const { url, ...rest } = resolve(specifier, context)
    const isProgram = context.parentURL === undefined
    if (!isProgram) return { url, ...rest }
    hooks.deregister()
    const bundled = new URL(nameInBundle(fileURLToPath(url)), folder)
    return existsSync(bundled) ? { url: bundled.href, format: 'module', shortCircuit: true } : { url, ...rest }
  },
})
