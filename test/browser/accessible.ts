import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import type { Page } from 'playwright-core'

const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

export const windows = { wide: { width: 1280, height: 900 }, narrow: { width: 360, height: 780 } }

/** In the light theme, and where the screen is wide in the dark one too: a theme is a set of colours, which do not depend on the width. */
export async function assertAccessibleInThemes(page: Page, what: string, width: string): Promise<void> {
  await assertAccessible(page, `${what}, light, ${width}`)
  if (width !== 'wide') return
  await useTheme(page, 'dark')
  await assertAccessible(page, `${what}, dark, ${width}`, ['color-contrast'])
  await useTheme(page, 'light')
}

/** The dashboard follows the system a moment later, and its colours fade only from then on. Other pages have no theme of their own. */
async function useTheme(page: Page, colorScheme: 'dark' | 'light'): Promise<void> {
  await page.emulateMedia({ colorScheme })
  await page.waitForFunction(
    (wanted) => [undefined, wanted].includes(document.documentElement.dataset.theme),
    colorScheme,
  )
}

/**
 * No serious fault that axe knows of, or that the given rules of axe find; one h1, and nothing wider than the screen. `what` names the
 * page in a failure.
 */
async function assertAccessible(page: Page, what: string, rules?: readonly string[]): Promise<void> {
  assert.match(await page.title(), / · Penny Router$/, what)
  assert.equal(await page.locator('h1').count(), 1, `${what}: one h1`)
  const spill = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)
  assert.ok(spill <= 0, `${what} is ${spill} px wider than the screen`)
  await page.evaluate(async () => {
    // A dialog that is still fading in has too little contrast, and on a busy machine it fades in for long.
    const passing = document.getAnimations().filter(({ effect }) => effect?.getComputedTiming().endTime !== Infinity)
    await Promise.allSettled(passing.map(({ finished }) => finished))
  })
  const findings = (await findViolations(page, rules))
    .filter(({ id, isSerious }) => isSerious || id === 'region')
    .map(({ id, places }) => `${id}: ${places.join(' | ')}`)
  assert.deepEqual(findings, [], what)
}

/** What axe finds on the page, by all of its rules or the given ones. */
export async function findViolations(page: Page, rules?: readonly string[]) {
  // Evaluated by the debugger, not added as a script: the page's own policy would rightly refuse that.
  await page.evaluate(axeSource)
  return page.evaluate(async (only) => {
    // The other kinds are only counted, not listed: listing what passes takes as long as finding what fails.
    const { axe } = window as unknown as { axe: Axe }
    const { violations } = await axe.run({ resultTypes: ['violations'], ...(only && { runOnly: only }) })
    return violations.map(({ id, impact, nodes }) => ({
      id,
      isSerious: impact === 'serious' || impact === 'critical',
      places: nodes.map(({ html }) => html.slice(0, 160)),
    }))
  }, rules)
}

type Axe = {
  run(options: { readonly resultTypes: readonly ['violations']; readonly runOnly?: readonly string[] }): Promise<{
    readonly violations: readonly {
      readonly id: string
      readonly impact: string
      readonly nodes: readonly { readonly html: string }[]
    }[]
  }>
}
