import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { type Browser, type BrowserContext, chromium } from 'playwright-core'

const candidates = [
  process.env.CHROMIUM_PATH,
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
  '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
]
const installMsMax = 5 * 60_000

/** Of two lists Chromium takes the last one, so this one repeats what playwright-core disables. */
const disabledFeatures = [
  'AimEnabled',
  'AvoidUnnecessaryBeforeUnloadCheckSync',
  'DestroyProfileOnBrowserClose',
  'HttpsFirstBalancedModeAutoEnable',
  'HttpsUpgrades',
  'LensOverlay',
  'MediaRouter',
  'NetworkTimeServiceQuerying',
  'OptimizationHints',
  'PaintHolding',
  'PreconnectToSearch',
  // A process kept ready for the next page, in each profile. Profiles here have one page.
  'SpareRendererForSitePerProcess',
  'ThirdPartyStoragePartitioning',
  // The pop-up of the address bar is a page with a renderer of its own, in each window, and is never seen.
  'WebUIOmniboxAimPopup',
  'WebUIOmniboxPopup',
]

const settings = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  `--disable-features=${disabledFeatures.join(',')}`,
]

/** The machine's Chromium. Debian's is installed when there is none and we may; otherwise the message says what to do. */
export function chromiumPath(): string {
  const present = findChromium()
  if (present !== undefined) return present
  if (process.getuid?.() === 0 && existsSync('/usr/bin/apt-get')) installChromium()
  const installed = findChromium()
  if (installed !== undefined) return installed
  throw new Error('The browser tests need Chromium: install it (apt-get install chromium), or set CHROMIUM_PATH.')
}

function findChromium(): string | undefined {
  return candidates.find((path) => path !== undefined && existsSync(path))
}

function installChromium(): void {
  process.stderr.write('  Installing Chromium for the browser tests …\n')
  const apt = (...args: readonly string[]) =>
    spawnSync('apt-get', ['-qq', '-o', 'DPkg::Lock::Timeout=240', ...args], {
      timeout: installMsMax,
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    })
  apt('update')
  const { status, stderr } = apt('install', '-y', '--no-install-recommends', 'chromium')
  if (status !== 0) process.stderr.write(`  apt-get could not install it: ${stderr?.toString().slice(-500)}\n`)
}

export type Window = { readonly width: number; readonly height: number }

/** One browser for many contexts, each with cookies and caches of its own. */
export async function launchBrowser(): Promise<Browser> {
  return chromium.launch({ executablePath: chromiumPath(), headless: true, args: settings })
}

export type ContextOptions = { readonly viewport?: Window; readonly colorScheme?: 'light' | 'dark' }

/** An empty profile in a browser that runs: starting another browser for it takes ten times as long. */
export async function openContext(browser: Browser, options: ContextOptions = {}): Promise<BrowserContext> {
  const context = await browser.newContext({
    viewport: options.viewport ?? { width: 1280, height: 900 },
    colorScheme: options.colorScheme ?? 'light',
    // Every frame is drawn by the processor here.
    reducedMotion: 'reduce',
    acceptDownloads: true,
  })
  await context.grantPermissions(['clipboard-read', 'clipboard-write'])
  return context
}

/** A browser for one context, gone with it. */
export async function openBrowser(
  options: ContextOptions = {},
): Promise<{ readonly context: BrowserContext; close(): Promise<void> }> {
  const browser = await launchBrowser()
  return { context: await openContext(browser, options), close: () => browser.close() }
}
