import assert from 'node:assert/strict'
import { test } from 'node:test'
import { until } from '../support/until.ts'
import { dashboardSuite } from './dashboard.ts'
import { answers, ask, chargedOf, composer, messages, openPlayground, rowOf, send } from './playground.ts'

// The model writes slowly enough that a person can watch it, and stop it.
const dashboard = dashboardSuite({ SANDBOX_TOKENS_PER_SECOND: '40' })

test('a stream that is stopped is charged for what was produced, and says so', async () => {
  const page = await openPlayground(dashboard)
  await page.getByLabel('Max tokens').fill('4000')
  await composer(page).fill('Tell me all [sandbox:tokens 2000]')
  const quote = page.locator('[data-testid=quote][data-quote]')
  await quote.waitFor()
  const quoted = BigInt((await quote.getAttribute('data-quote'))!)
  await page.getByRole('button', { name: 'Send' }).click()
  await page.getByTestId('answer').waitFor()
  const meter = page.getByTestId('meter')
  await meter.waitFor()
  const first = BigInt((await meter.getAttribute('data-cost'))!)
  await page.locator('[data-testid=balance-pill]:not([data-held="0"])').waitFor()
  // The service reports the cost again as the answer grows.
  await until(async () => BigInt((await meter.getAttribute('data-cost')) ?? 0) > first)
  await page.getByRole('button', { name: 'Stop' }).click()
  const answer = answers(page).first()
  await answer.getByTestId('final').getByText('Cancelled').waitFor()
  const charged = await chargedOf(answer)
  await page.locator('[data-testid=balance-pill][data-held="0"]').waitFor()
  assert.ok(charged > first && charged < quoted, `${first} < ${charged} < ${quoted}`)
  await answer
    .getByText(/^Stopped\. You were charged \$0\.\d{6} for what was produced; \$0\.\d{6} was returned\.$/)
    .waitFor()
  assert.ok(await page.getByRole('button', { name: 'Send' }).isDisabled(), 'what was answered is not paid for again')
  await answer.getByRole('link', { name: 'Explain' }).click()
  await page.getByTestId('explain').getByText('The lines add up to the charge').waitFor()
})

test('Escape stops the answer, but first it closes a dialog', async () => {
  const page = await openPlayground(dashboard)
  await page.getByLabel('Max tokens').fill('4000')
  await send(page, 'Go on [sandbox:tokens 2000]')
  await page.getByTestId('answer').waitFor()
  await page.getByRole('button', { name: 'Code', exact: true }).click()
  await page.getByRole('dialog').waitFor()
  await page.keyboard.press('Escape')
  await page.getByRole('dialog').waitFor({ state: 'detached' })
  assert.equal(await answers(page).first().getAttribute('data-state'), 'running')
  await page.keyboard.press('Escape')
  await answers(page).first().getByTestId('final').getByText('Cancelled').waitFor()
  assert.notEqual((await answers(page).first().getByTestId('answer').innerText()).trim(), '')
})

test('an open editor cannot request a second answer while one streams', async () => {
  const page = await openPlayground(dashboard)
  await ask(page, 'Hello [sandbox:tokens 5]')
  await page.getByRole('button', { name: 'Edit message' }).click()
  let calls = 0
  page.on('request', (request) => {
    if (new URL(request.url()).pathname === '/api/playground') calls += 1
  })
  await page.getByLabel('Max tokens').fill('4000')
  await send(page, 'Go on [sandbox:tokens 2000]')
  await page.getByTestId('meter').waitFor()
  const save = page.getByRole('button', { name: 'Save', exact: true })
  const saveAndAnswer = page.getByRole('button', { name: 'Save and answer again' })
  for (const button of [save, saveAndAnswer]) {
    assert.ok(await button.isDisabled())
    assert.match((await button.getAttribute('title'))!, /streaming/)
  }
  await page.getByRole('button', { name: 'Stop' }).click()
  await answers(page).nth(1).getByTestId('final').getByText('Cancelled').waitFor()
  assert.equal(calls, 1)
  await saveAndAnswer.click()
  await answers(page).nth(1).waitFor({ state: 'detached' })
  await answers(page).first().getByTestId('final').waitFor()
  assert.equal(calls, 2)
})

test('each of two models has its own Stop', async () => {
  const page = await openPlayground(dashboard)
  await page.getByLabel('Max tokens').fill('4000')
  await page.getByRole('button', { name: 'Compare', exact: true }).click()
  await send(page, 'Both [sandbox:tokens 120]')
  const lanes = page.getByTestId('lane')
  await lanes.nth(0).getByTestId('meter').waitFor()
  await lanes.nth(1).getByTestId('meter').waitFor()
  await lanes.nth(0).getByRole('button', { name: 'Stop' }).click()
  await lanes.nth(0).getByTestId('final').getByText('Cancelled').waitFor()
  await lanes.nth(1).locator('[data-state=done]').getByTestId('final').waitFor()
  assert.equal((await rowOf(page, answers(page).nth(0))).status, 'cancelled')
  assert.equal((await rowOf(page, answers(page).nth(1))).status, 'succeeded')
})

test('an answer streams on while another page is open', async () => {
  const page = await openPlayground(dashboard)
  await send(page, 'Wait for me [sandbox:tokens 100]')
  await page.getByTestId('meter').waitFor()
  await page.getByRole('link', { name: 'Usage' }).first().click()
  await page.getByRole('heading', { name: 'Usage', level: 1 }).waitFor()
  await page.getByRole('link', { name: 'Playground' }).first().click()
  await page.locator('[data-role=assistant][data-state=done]').getByTestId('final').waitFor()
  assert.equal((await rowOf(page, answers(page).first())).status, 'succeeded')
})

test('a reload during a stream keeps what was written, and charges no more than that', async () => {
  const page = await openPlayground(dashboard)
  await page.getByLabel('Max tokens').fill('4000')
  await send(page, 'Tell me all [sandbox:tokens 2000]')
  await page.getByTestId('answer').waitFor()
  await page.getByTestId('meter').waitFor()
  await page.reload()
  const answer = answers(page).first()
  await answer.getByTestId('final').getByText('Cancelled').waitFor()
  assert.equal(await answer.getAttribute('data-state'), 'interrupted')
  assert.notEqual((await answer.getByTestId('answer').innerText()).trim(), '')
  await answer.getByText(/^The connection was closed while this answer streamed\. You were charged /).waitFor()
  const { charged_atomic, held_atomic } = await rowOf(page, answer)
  assert.ok(BigInt(charged_atomic) > 0n && BigInt(charged_atomic) < BigInt(held_atomic))
  assert.equal(await messages(page).count(), 2)
  // It can go on from there.
  await send(page, 'More [sandbox:tokens 5]')
  await answers(page).nth(1).getByTestId('final').waitFor()
})

test('an answer whose stream ends without its last line is shown as interrupted, with its cost', async () => {
  const page = await openPlayground(dashboard)
  // A proxy that closes politely: to the browser the response is complete.
  await page.route('**/api/playground', async (route) => {
    const response = await route.fetch()
    await route.fulfill({ response, body: (await response.text()).replace('data: [DONE]', '') })
  })
  await send(page, 'Hello [sandbox:tokens 5]')
  const answer = page.locator('[data-role=assistant][data-state=interrupted]')
  await answer.getByText(/^The connection was closed while this answer streamed\. You were charged /).waitFor()
})

test('signing out ends what streams, and its cost ends with it', async () => {
  const page = await openPlayground(dashboard)
  await page.getByLabel('Max tokens').fill('4000')
  await send(page, 'Tell me all [sandbox:tokens 2000]')
  await page.getByTestId('meter').waitFor()
  const id = await dashboard.database.query<{ count: string }>(`select count(*) from holds`)
  assert.ok(Number(id[0]!.count) >= 1)
  await page.getByRole('button', { name: /^Account: / }).click()
  await page.getByRole('button', { name: 'Sign out' }).click()
  await page.getByRole('heading', { name: 'Sign in' }).waitFor()
  await until(async () => {
    const open = await dashboard.database.query<{ count: string }>(`select count(*) from holds`)
    return Number(open[0]!.count) === 0
  })
})
