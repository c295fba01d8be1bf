import type { Locator, Page } from 'playwright-core'
import type { Dashboard } from './dashboard.ts'
import { signInAsDeveloper } from './person.ts'

// What a person does in the playground.

export async function openPlayground(
  dashboard: Dashboard,
  options: Parameters<Dashboard['open']>[0] = {},
): Promise<Page> {
  const page = await dashboard.open(options)
  await signInAsDeveloper(dashboard, page, '/playground')
  await composer(page).waitFor()
  return page
}

export async function gotoPlayground(dashboard: Dashboard, page: Page): Promise<void> {
  await page.goto(`${dashboard.origin}/playground`)
  await composer(page).waitFor()
}

export function composer(page: Page): Locator {
  return page.getByRole('textbox', { name: 'Message', exact: true })
}

/** Makes the sandbox model answer with exactly this text. */
export function say(text: string): string {
  return `Please. [sandbox:say ${JSON.stringify(text)}]`
}

/** Sends a message once it is quoted, by the keyboard. */
export async function send(page: Page, text: string): Promise<void> {
  await composer(page).fill(text)
  await page.locator('[data-testid=composer] [data-quote]').first().waitFor()
  await page.keyboard.press('Control+Enter')
  await page.locator('[data-role=assistant]').last().waitFor()
}

/** Sends a message and waits for its answer and for its cost. */
export async function ask(page: Page, text: string): Promise<Locator> {
  const before = await answers(page).count()
  await send(page, text)
  const answer = answers(page).nth(before)
  await page.locator('[data-testid=composer]').getByRole('button', { name: 'Send' }).waitFor()
  await answer.getByTestId('final').waitFor()
  return answer
}

export function answers(page: Page): Locator {
  return page.locator('[data-role=assistant]')
}

export function messages(page: Page): Locator {
  return page.getByTestId('message')
}

export async function chargedOf(answer: Locator): Promise<bigint> {
  return BigInt((await answer.getByTestId('final').getAttribute('data-charged'))!)
}

export type Row = {
  readonly status: string
  readonly charged_atomic: string
  readonly held_atomic: string
  readonly key: { readonly id: string; readonly name: string }
}

/** The ledger row of an answer, as the service has it. */
export async function rowOf(page: Page, answer: Locator): Promise<Row> {
  const id = (await answer.getByTestId('final').getAttribute('data-request'))!
  return page.evaluate(async (request) => (await fetch(`/api/requests/${request}`)).json(), id)
}
