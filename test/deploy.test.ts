import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { chmodSync, cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { parse, parseAllDocuments } from 'yaml'
import { readConfig } from '../src/config/config.ts'
import { settings } from '../src/config/settings.ts'
import { createLedgerMetrics } from '../src/http/ledger-metrics.ts'
import { renderTemplate } from './support/helm-template.ts'

// What can be known without an engine is checked here; `npm run drill` runs the engines that Debian has. Each file says so.

const root = fileURLToPath(new URL('..', import.meta.url))
const deploy = join(root, 'deploy')
const read = (file: string) => readFileSync(join(deploy, file), 'utf8')
const known = new Set(
  Object.entries(settings).flatMap(([name, { isSecret }]) => (isSecret ? [name, `${name}_FILE`] : [name])),
)

const production = readConfig({ NODE_ENV: 'production' })
/** As docs/guides/scaling-out.md says: both times, and half a minute for the last writes. */
const stopSecondsMin = (production.shutdownDelayMs + production.drainMs) / 1000 + 30

// biome-ignore lint/suspicious/noExplicitAny: what a file says, looked at member by member
type Any = any

test('every file says what was checked of it and what was not', () => {
  const files = readdirSync(deploy, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && !/(templates$)/.test(entry.parentPath))
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((file) => !/citus\.sql$|dockerignore$/.test(file))
  for (const file of files) assert.match(readFileSync(file, 'utf8').slice(0, 500), /Checked (by|as)/, file)
})

test('both images have an exact version of Node, no privileges, a health check, and no secret', () => {
  const text = read('Dockerfile').replaceAll('\\\n', ' ')
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
  const stages = new Map(
    lines
      .join('\n')
      .split(/^FROM /m)
      .slice(1)
      .map((stage) => {
        const [, from, name] = /^(\S+) AS (\S+)/.exec(stage)!
        return [name!, { from: from!, stage }]
      }),
  )
  // `docker build` makes the last one by default.
  assert.equal([...stages.keys()].at(-1), 'service')
  for (const { from } of stages.values())
    assert.ok(stages.has(from) || from === 'scratch' || /^\S+:\d+\.\d+\.\d+-\S+$/.test(from), from)
  for (const image of ['service', 'sandbox']) assert.equal(stages.get(image)!.from, 'runtime')
  const runtime = stages.get('runtime')!.stage
  assert.match(runtime, /^USER [1-9]\d*:[1-9]\d*$/m, 'a user that is not root, by number')
  assert.doesNotMatch(runtime.split(/^USER /m)[1]!, /^RUN /m)
  assert.match(runtime, /HEALTHCHECK .*CMD \["node"/)
  assert.match(runtime, /ENTRYPOINT \["node"/, 'no shell between it and its signals')
  // Every runbook begins with it.
  const system = stages.get('system')!.stage
  assert.match(system, /'#!\/bin\/sh\\nexec node \/app\/src\/main\.ts "\$@"\\n' > \/usr\/local\/bin\/penny/)
  assert.match(system, /chmod 0755 \/usr\/local\/bin\/penny/)
  assert.doesNotMatch(text, /(SECRET|PASSWORD|_KEY|TOKEN)=|ADD |npm install|curl|:latest/)
})

test('compose gives the service nothing it does not need and no variable it does not read', () => {
  const { services } = parse(read('compose.yaml')) as Any
  const { penny, postgres, prometheus, grafana } = services
  assert.deepEqual([penny.read_only, penny.cap_drop, penny.tmpfs], [true, ['ALL'], ['/tmp']])
  for (const [, name] of read('compose.env').matchAll(/^(\w+)=/gm)) assert.ok(known.has(name!), name!)
  // What is set for production must reach the service: `environment` goes before files, and of files the last one.
  assert.equal(penny.environment, undefined)
  assert.deepEqual(penny.env_file, [{ path: 'compose.env' }, { path: 'penny.env', required: false }])
  const guide = readFileSync(join(root, 'docs/guides/production.md'), 'utf8')
  const secrets = [...guide.matchAll(/^\w+_FILE=(\S+)\/[^/\s]+$/gm)].map(([, folder]) => folder!)
  assert.ok(secrets.length > 0)
  for (const folder of secrets) assert.ok(penny.volumes.includes(`./secrets:${folder}:ro`), folder)
  for (const path of ['deploy/penny.env', 'deploy/secrets'])
    for (const list of [readFileSync(join(root, '.gitignore'), 'utf8'), read('Dockerfile.dockerignore')])
      assert.ok(
        list.split('\n').some((line) => line.replace(/^\//, '') === path),
        `${path} stays at home`,
      )
  for (const service of Object.values(services) as Any[]) {
    assert.ok(service.security_opt.includes('no-new-privileges:true'))
    assert.doesNotMatch(service.image, /latest$/)
    for (const port of service.ports ?? []) assert.match(port, /^127\.0\.0\.1:/, 'only this machine')
  }
  assert.ok(Number.parseInt(penny.stop_grace_period, 10) >= stopSecondsMin)
  // docs/guides/scaling-out.md: 23 for each web process, of which there are up to eight, and 20.
  const connections = /^max_connections=(\d+)$/.exec(postgres.command.at(-1))![1]
  assert.ok(Number(connections) >= 8 * 23 + 20)
  assert.match(postgres.healthcheck.test.join(' '), /pg_isready/)
  assert.deepEqual([prometheus.profiles, grafana.profiles], [['observe'], ['observe']])
  for (const service of [prometheus, grafana])
    for (const volume of service.volumes.filter((mount: string) => mount.startsWith('./')))
      assert.ok(existsSync(join(deploy, volume.split(':')[0])), volume)
})

test('the chart renders to what a cluster understands: no privileges, secrets by reference, drained before it goes', () => {
  const chart = parse(read('helm/penny/Chart.yaml')) as Any
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string }
  assert.equal(chart.appVersion, version)
  const values = chartValues()
  for (const name of Object.keys(values.config)) assert.ok(known.has(name), name)
  const objects = renderChart({ serviceMonitor: true, prometheusRule: true })
  assert.deepEqual(objects.map(({ kind }) => kind).sort(), [
    'ConfigMap',
    'Deployment',
    'Job',
    'PodDisruptionBudget',
    'PrometheusRule',
    'Service',
    'Service',
    'ServiceMonitor',
    'StatefulSet',
  ])
  assert.equal(renderChart().length, objects.length - 2)
  const pods = objects.filter(({ spec }) => spec?.template !== undefined)
  for (const { kind, spec } of pods) {
    const [container] = spec.template.spec.containers
    assert.equal(spec.template.spec.securityContext.runAsNonRoot, true, kind)
    assert.deepEqual(
      [container.securityContext.readOnlyRootFilesystem, container.securityContext.capabilities.drop],
      [true, ['ALL']],
    )
    assert.deepEqual(container.envFrom, [{ configMapRef: { name: 'rel' } }, { secretRef: { name: 'penny' } }])
    if (kind !== 'Job')
      assert.ok(
        spec.template.spec.terminationGracePeriodSeconds * 1000 >
          Number(values.config.DRAIN_MS) + Number(values.config.SHUTDOWN_DELAY_MS) + 20_000,
      )
    // An attacker who breaks into a public Pod must not find the master key there.
    const signs = container.env.some(({ name, value }: Any) => name === 'ROLES' && value.split(',').includes('jobs'))
    assert.equal(signs, kind === 'StatefulSet')
    assert.equal(JSON.stringify(spec).includes(values.masterKeySecretName), signs, `${kind} has the master key`)
    const file = container.env.find(({ name }: Any) => name === 'MASTER_KEY_FILE')?.value
    const mount = container.volumeMounts.find(({ name }: Any) => name === 'master-key')
    assert.equal(file, signs ? `${mount.mountPath}/master-key` : undefined)
  }
  const settings = objects.find(({ kind }) => kind === 'ConfigMap').data
  assert.ok(!Object.keys(settings).some((name) => /KEY|TOKEN|DATABASE/.test(name)), 'nothing secret in a ConfigMap')
  // The root of a volume belongs to the cluster: only a folder below it belongs to the service.
  for (const { spec } of pods)
    for (const { name, mountPath } of spec.template.spec.containers[0].volumeMounts)
      if (name === 'data') assert.ok(settings.DATA_DIR.startsWith(`${mountPath}/`), settings.DATA_DIR)
  const web = objects.find(({ kind }) => kind === 'Deployment')
  const { labels } = web.spec.template.metadata
  for (const selector of objects.filter(({ kind }) => ['PodDisruptionBudget', 'Service'].includes(kind)))
    for (const [name, value] of Object.entries(selector.spec.selector.matchLabels ?? selector.spec.selector))
      assert.ok(labels[name] === value || value === 'jobs', `${selector.metadata.name} selects ${name}=${value}`)
})

test('the Prometheus operator gets the same alerts, and its series the name they ask for', () => {
  const objects = renderChart({ serviceMonitor: true, prometheusRule: true })
  assert.equal(read('helm/penny/alerts.yaml'), read('prometheus/alerts.yaml'), 'run: npm run generate')
  const rule = objects.find(({ kind }) => kind === 'PrometheusRule')
  assert.deepEqual(rule.spec, parse(read('prometheus/alerts.yaml')))
  const monitor = objects.find(({ kind }) => kind === 'ServiceMonitor')
  const scraped = objects.find(
    ({ kind, metadata }) =>
      kind === 'Service' &&
      Object.entries(monitor.spec.selector.matchLabels).every(([name, value]) => metadata.labels[name] === value),
  )
  assert.equal(scraped.metadata.labels[monitor.spec.jobLabel], 'penny')
  assert.equal(monitor.spec.endpoints[0].authorization, undefined)
  const guarded = renderChart({ serviceMonitor: true, metricsToken: true }).find(
    ({ kind }) => kind === 'ServiceMonitor',
  )
  assert.deepEqual(guarded.spec.endpoints[0].authorization.credentials, { name: 'penny', key: 'METRICS_TOKEN' })
})

// Unset it would follow the cores of the node, and eight processes do not fit into the memory of one.
test('the web processes of a Pod fit into its memory, whatever the node has', () => {
  const processMiB = 350
  const settlementMiB = 300
  const { data } = renderChart().find(({ kind }) => kind === 'ConfigMap')
  for (const { kind, spec } of renderChart().filter(({ kind }) => ['Deployment', 'StatefulSet'].includes(kind))) {
    const [, gibibytes] = /^(\d+)Gi$/.exec(spec.template.spec.containers[0].resources.limits.memory)!
    const needed = Number(data.WEB_PROCESSES) * processMiB + (kind === 'StatefulSet' ? settlementMiB : 0)
    assert.ok(needed <= Number(gibibytes) * 1024, `${kind}: ${needed} MiB`)
  }
})

// A changed ConfigMap restarts no Pod by itself.
test('a setting that is changed with helm upgrade reaches the Pods, and the cluster knows of it', () => {
  const isPod = ({ kind }: Any) => ['Deployment', 'StatefulSet'].includes(kind)
  const pods = renderChart().filter(isPod)
  const changed = renderChart({}, { PORT: 9000, DRAIN_MS: '120000' }).filter(isPod)
  assert.equal(changed.length, 2)
  for (const { kind, spec } of changed) {
    const before = pods.find((pod) => pod.kind === kind).spec.template
    const sum = (template: Any) => template.metadata.annotations['checksum/config']
    assert.match(sum(before), /^[0-9a-f]{64}$/)
    assert.notEqual(sum(spec.template), sum(before))
    assert.equal(spec.template.spec.terminationGracePeriodSeconds, 180)
    assert.equal(spec.template.spec.containers[0].ports[0].containerPort, 9000)
  }
})

test('plain numbers in a values file reach the service as they were written', () => {
  const config = { DRAIN_MS: 1_200_000, BODY_BYTES_MAX: 8_388_608, IN_FLIGHT_CAP_USDC: 1.5, HOST: '0.0.0.0' }
  const { data } = renderChart({}, config).find(({ kind }) => kind === 'ConfigMap')
  for (const [name, value] of Object.entries(config)) assert.equal(data[name], String(value))
})

test('alerts lead to a runbook that exists, and dashboards and alerts ask only for what the service exposes', () => {
  const { groups } = parse(read('prometheus/alerts.yaml')) as Any
  const rules: Any[] = groups.flatMap((group: Any) => group.rules)
  // Without the database all its numbers are absent, and so are checks that never ran: absence itself must fire an alert.
  for (const asked of [
    'penny_ledger_imbalance_micro_usdc',
    'increase(penny_metrics_read_errors_total[2m]) > 0',
    'absent(penny_solvency_age_seconds)',
  ])
    assert.ok(
      rules.some(({ expr, labels }) => expr.includes(asked) && labels.severity === 'page'),
      asked,
    )
  for (const { alert, expr, labels, annotations } of rules) {
    assert.ok(expr && ['page', 'ticket'].includes(labels.severity) && annotations.summary, alert)
    // The age of a series that does not exist is no number, and would never be too high.
    if (expr.includes('time() -')) assert.match(expr, /\bor absent\(/, alert)
    // The runbook that an alert links to names the alert.
    assert.ok(readFileSync(join(root, annotations.runbook), 'utf8').includes(`\`${alert}\``), alert)
  }
  const { rule_files: files } = parse(read('prometheus/prometheus.yml')) as Any
  for (const file of files) assert.ok(existsSync(join(deploy, 'prometheus', file)))
  const { panels } = JSON.parse(read('grafana/penny.json')) as Any
  const expressions = [
    ...rules.map(({ expr }) => expr),
    ...panels.flatMap((panel: Any) => (panel.targets ?? []).map(({ expr }: Any) => expr)),
  ]
  const asked = new Set(expressions.flatMap((expr: string) => expr.match(/\b(penny|process|nodejs)_\w+/g) ?? []))
  const exposed = exposedMetrics()
  const missing = [...asked].filter((name) => !exposed.has(name.replace(/_(bucket|sum|count)$/, '')))
  assert.deepEqual(missing, [])
})

// Every node shows the ledger's numbers: a sum counts them once for each. And `or` shows its right side only where the left has nothing.
test('panels show each series they are named after, and the ledger’s numbers once', () => {
  const { panels } = JSON.parse(read('grafana/penny.json')) as Any
  const ledger = createLedgerMetrics().metrics.map(({ name }) => name)
  assert.ok(ledger.length > 10)
  for (const { title, targets = [] } of panels) {
    for (const { expr } of targets as Any[]) {
      assert.doesNotMatch(expr, /\bor\b/, `${title}: two targets show two series`)
      for (const name of ledger.filter((candidate) => expr.includes(candidate)))
        assert.match(
          expr,
          new RegExp(`\\b(min|max)( by \\(\\w+\\) )?\\(${name}\\)`),
          `${title}: one node’s, or the same`,
        )
    }
    assert.equal(new Set(targets.map(({ refId }: Any) => refId)).size, targets.length, title)
    if (targets.length > 1)
      assert.ok(
        targets.every(({ legendFormat }: Any) => legendFormat),
        title,
      )
  }
  const { expr } = panels.find(({ title }: Any) => title === 'Unsettled').targets[0]
  assert.match(expr, /^sum\(max by \(state\)/, 'what is unsettled is the sum over its states')
})

test('systemd starts it without privileges and gives it the time to drain', () => {
  const unit = read('systemd/penny.service')
  for (const rule of [
    'NoNewPrivileges=yes',
    'ProtectSystem=strict',
    'CapabilityBoundingSet=',
    'User=penny',
    'StateDirectory=penny',
    'Restart=always',
  ])
    assert.ok(unit.split('\n').includes(rule), rule)
  assert.ok(Number(/^TimeoutStopSec=(\d+)$/m.exec(unit)![1]) >= stopSecondsMin)
  // Tried for ever, and not so often that the machine has nothing else to do.
  const [section] = unit.split('[Service]')
  assert.match(section!, /^StartLimitIntervalSec=0$/m)
  assert.ok(Number(/^RestartSec=(\d+)$/m.exec(unit)![1]) >= 5)
  // A PostgreSQL beside it is up before this starts and down after it has stopped.
  assert.match(unit, /^After=.*\bpostgresql\.service\b.*\bnetwork-online\.target\b/m)
  // Where npm puts it, and what it has there.
  const { name, bin } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as Any
  assert.ok(unit.includes(`npm install --prefix /opt/penny ${name} `))
  assert.ok(
    unit.includes(`ExecStart=/usr/bin/node /opt/penny/node_modules/${name}/${bin.penny} start --hide-secrets\n`),
  )
  assert.match(unit, /^# +Node 26 at \/usr\/bin\/node/m)
})

// A service is started where it may not write: the reason must be a line in its journal, not a stack.
test('a launcher that would have to fetch something and may not write says in one line what to do', () => {
  const folder = mkdtempSync(join(tmpdir(), 'penny-launcher-'))
  try {
    cpSync(join(root, 'bin'), join(folder, 'bin'), { recursive: true })
    writeFileSync(join(folder, 'package-lock.json'), '{}')
    chmodSync(folder, 0o555)
    // Root may write everywhere: it becomes nobody as soon as Node runs.
    const nobody = 'data:text/javascript,process.getuid()||(process.setgid(65534),process.setuid(65534))'
    const { status, stderr } = spawnSync(
      process.execPath,
      ['--import', nobody, join(folder, 'bin/penny.mjs'), 'start'],
      // A data folder that can be made, so that only the packages are missing.
      { encoding: 'utf8', env: { ...process.env, PORT: '0', DATA_DIR: join(tmpdir(), `penny-data-${process.pid}`) } },
    )
    assert.equal(status, 1)
    assert.match(
      stderr,
      /^The packages .* cannot be written to \(EACCES\).* run this command once as a user that can write there.*\n$/,
    )
  } finally {
    chmodSync(folder, 0o755)
    rmSync(folder, { recursive: true, force: true })
  }
})

test('proxies forward every token immediately, and send no completion twice', (context) => {
  const nginx = read('nginx.conf')
  const [, location] = /location ~ \^\/\(x402\/\)\?v1\/ \{([^}]*)\}/.exec(nginx)!
  for (const rule of ['proxy_buffering off;', 'gzip off;', 'proxy_next_upstream error;'])
    assert.ok(location!.includes(rule), rule)
  assert.ok(Number(/proxy_read_timeout (\d+)s/.exec(location!)![1]) > 20 * 60)
  // Either would send a completion, and its price, a second time.
  assert.doesNotMatch(nginx, /^\s*proxy_next_upstream .*(non_idempotent|http_)/m)
  assert.match(nginx, /listen \[::\]:443 ssl;/)
  assert.match(nginx, /location \/metrics \{\s*return 404;/)
  // Caddy's order is its own, not the file's: a handle comes before a respond that stands alone, and the last handle takes everything.
  assert.match(read('Caddyfile'), /^\thandle \/metrics \{\s*respond 404\s*\}/m)
  assert.doesNotMatch(read('Caddyfile'), /^\trespond/m)
  assert.match(read('Caddyfile'), /flush_interval -1/)
  assert.match(read('Caddyfile'), /lb_try_duration 0s/)
  // With it Caddy sends any POST again, also one that a process has read.
  assert.doesNotMatch(read('Caddyfile'), /lb_retry_match/)
  const program = [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin']
    .map((place) => join(place, 'nginx'))
    .find((path) => existsSync(path))
  if (program === undefined) return context.diagnostic('nginx is not installed: its syntax was not checked')
  checkNginx(program, nginx)
})

/** `nginx -t` wants certificates that exist and a configuration around the server; both are made for it. */
function checkNginx(program: string, text: string): void {
  const folder = mkdtempSync(join(tmpdir(), 'penny-nginx-'))
  try {
    const withoutTls = text
      .replace('listen 443 ssl;', 'listen 127.0.0.1:65000;')
      .replace('listen [::]:443 ssl;', '')
      .replaceAll(/^\s*ssl_certificate.*$/gm, '')
    const file = join(folder, 'nginx.conf')
    writeFileSync(file, `error_log ${folder}/error.log;\npid ${folder}/pid;\nevents {}\nhttp {\n${withoutTls}\n}\n`)
    execFileSync(program, ['-t', '-q', '-p', folder, '-c', file, '-e', join(folder, 'error.log')], { stdio: 'pipe' })
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function chartValues(): Any {
  return parse(read('helm/penny/values.yaml'))
}

function renderChart(changes: Any = {}, config: Any = {}): Any[] {
  const values = chartValues()
  const scope = {
    Values: { ...values, ...changes, config: { ...values.config, ...config } },
    Release: { Name: 'rel', Revision: 1 },
    Files: { Get: (name: string) => read(`helm/penny/${name}`) },
  }
  return readdirSync(join(deploy, 'helm/penny/templates')).flatMap((file) => {
    const documents = parseAllDocuments(renderTemplate(read(`helm/penny/templates/${file}`), scope))
    return documents.map((document) => document.toJS()).filter((object) => object !== null)
  })
}

/** From the table of the page, which `test/e2e/metrics.test.ts` compares with a running service. */
function exposedMetrics(): ReadonlySet<string> {
  const page = readFileSync(join(root, 'docs/observability.md'), 'utf8')
  return new Set([...page.matchAll(/^\| `(\w+)` \| (?:counter|gauge|histogram) \|/gm)].map((match) => match[1]!))
}
