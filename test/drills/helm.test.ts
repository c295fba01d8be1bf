import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parse, parseAllDocuments } from 'yaml'
import { renderTemplate } from '../support/helm-template.ts'
import { drill, isWhole } from './drill.ts'
import { findEngine } from './engine.ts'

// Debian has no Helm. What Helm renders with is there: Go's text/template and sprig's functions.

const chart = fileURLToPath(new URL('../../deploy/helm/penny/', import.meta.url))
const source = fileURLToPath(new URL('render-chart.go', import.meta.url))
const libraries = '/usr/share/gocode'
const sprig = `${libraries}/src/github.com/Masterminds/sprig`
const engine = { name: 'Go', program: 'go', package: 'golang-go', version: 'version' }
const buildMsMax = 300_000
const renderMsMax = 30_000

drill({
  engine,
  tried: 'the chart in the template engine of Helm, with plain and large numbers',
  ...missingLibraries(),
  async run({ path }) {
    using folder = temporary()
    const program = join(folder.path, 'render-chart')
    const env = { ...process.env, GO111MODULE: 'off', GOPATH: libraries, GOCACHE: join(folder.path, 'cache') }
    execFileSync(path, ['build', '-o', program, source], { env, stdio: 'pipe', timeout: buildMsMax })
    const values = chartValues()
    const config = { ...values.config, DRAIN_MS: 1_200_000, BODY_BYTES_MAX: 8_388_608 }
    const variants = [values, { ...values, config, serviceMonitor: true, prometheusRule: true, metricsToken: true }]
    let objects = 0
    for (const variant of variants) {
      for (const file of readdirSync(join(chart, 'templates'))) {
        const template = readFileSync(join(chart, 'templates', file), 'utf8')
        const rendered = objectsOf(renderByGo(program, template, variant))
        // The evaluator of test/deploy.test.ts, whose rules hold for every machine, must render the same.
        assert.deepEqual(rendered, objectsOf(renderHere(template, variant)), file)
        objects += rendered.length
      }
    }
    const settings = objectsOf(
      renderByGo(program, readFileSync(join(chart, 'templates/settings.yaml'), 'utf8'), variants[1]!),
    )
    assert.deepEqual([settings[0]!.data!.DRAIN_MS, settings[0]!.data!.BODY_BYTES_MAX], ['1200000', '8388608'])
    return `${objects} objects in 2 variants, the same as in test/deploy.test.ts, 1200000 and 8388608 written out`
  },
})

/** Go is a package of its own; its libraries are two more. */
function missingLibraries(): { readonly problem?: string } {
  const packages = ['golang-github-masterminds-sprig-dev', 'golang-gopkg-yaml.v3-dev']
  const install = (name: string) =>
    findEngine({ ...engine, name, program: name, package: name }, { mayInstall: isWhole })
  if (!existsSync(sprig)) for (const name of packages) install(name)
  return existsSync(sprig) ? {} : { problem: `the Debian packages ${packages.join(' and ')} are not installed` }
}

type Values = Readonly<Record<string, unknown>> & { readonly config: Readonly<Record<string, unknown>> }
type Rendered = { readonly kind: string; readonly data?: Readonly<Record<string, string>> }

function chartValues(): Values {
  return parse(readFileSync(join(chart, 'values.yaml'), 'utf8')) as Values
}

function renderByGo(program: string, template: string, values: Values): string {
  const files = { 'alerts.yaml': readFileSync(join(chart, 'alerts.yaml'), 'utf8') }
  const input = JSON.stringify({ template, values, files })
  return execFileSync(program, { input, encoding: 'utf8', timeout: renderMsMax })
}

function renderHere(template: string, values: Values): string {
  const Files = { Get: (name: string) => readFileSync(join(chart, name), 'utf8') }
  return renderTemplate(template, { Values: values, Release: { Name: 'rel', Revision: 1 }, Files })
}

function objectsOf(text: string): readonly Rendered[] {
  const documents = parseAllDocuments(text)
  for (const { errors } of documents) assert.deepEqual(errors, [])
  return documents.map((document) => document.toJS() as Rendered | null).filter((object) => object !== null)
}

function temporary(): Disposable & { readonly path: string } {
  const path = mkdtempSync(join(tmpdir(), 'penny-helm-'))
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) }
}
