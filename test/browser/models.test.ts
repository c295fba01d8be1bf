import assert from 'node:assert/strict'
import { test } from 'node:test'
import { dashboardSuite } from './dashboard.ts'

const dashboard = dashboardSuite({ SANDBOX_TOKENS_PER_SECOND: '0' })

test('a visitor without an account compares the models and their prices, which are those of the API', async () => {
  const page = await dashboard.open()
  await page.goto(dashboard.origin)
  await page.getByRole('link', { name: 'Compare models and estimate your cost' }).click()
  await page.getByRole('heading', { name: 'Models', level: 1 }).waitFor()
  const { data } = (await (await fetch(`${dashboard.baseUrl}/models`)).json()) as { data: { id: string }[] }
  await page.getByTestId('model-row').first().waitFor()
  const shown = await page
    .getByTestId('model-row')
    .evaluateAll((rows) => rows.map((row) => (row as HTMLElement).dataset.model))
  assert.deepEqual(
    shown,
    data.map(({ id }) => id),
  )
  const row = page.getByRole('table', { name: 'Models and prices' }).getByRole('row', { name: /gpt-6-astra/ })
  assert.deepEqual((await row.getByRole('cell').allInnerTexts()).slice(1, 6), [
    '$5.00',
    '$5.00',
    '$25.00',
    '400,000',
    '128,000',
  ])
  for (const capability of ['Reasoning', 'Tools', 'Web search']) await row.getByText(capability).waitFor()
})

test('the calculator agrees with the ledger to the unit, and its link shows the same numbers', async () => {
  const answer = await fetch(`${dashboard.baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${dashboard.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      model: 'gpt-6-astra',
      max_tokens: 400,
      web_search: false,
      messages: [{ role: 'user', content: 'What is a penny? [sandbox:tokens 33]' }],
    }),
  })
  const { usage } = (await answer.json()) as { usage: { prompt_tokens: number; completion_tokens: number } }
  const id = answer.headers.get('x-router-request-id')!
  const headers = { authorization: `Bearer ${dashboard.apiKey}` }
  const row = (await (await fetch(`${dashboard.origin}/api/requests/${id}`, { headers })).json()) as {
    charged_atomic: string
  }

  const page = await dashboard.open()
  await page.goto(`${dashboard.origin}/models`)
  const calculator = page.getByTestId('calculator')
  await calculator.getByLabel('Input tokens').fill(String(usage.prompt_tokens))
  await calculator.getByLabel('Cached input').fill('50')
  await calculator.getByLabel('Output tokens').fill(String(usage.completion_tokens))
  await calculator.getByLabel('Requests per month').fill('1,000')
  const perRequest = calculator.locator('[data-testid=per-request][data-model=gpt-6-astra]')
  await calculator.locator(`[data-testid=per-request][data-atomic="${row.charged_atomic}"]`).waitFor()
  assert.equal(await perRequest.getAttribute('data-atomic'), row.charged_atomic)
  const perMonth = calculator.locator('[data-testid=per-month][data-model=gpt-6-astra]')
  assert.equal(await perMonth.getAttribute('data-atomic'), String(BigInt(row.charged_atomic) * 1000n))
  await page.waitForURL(/requests=1000/)
  await page.reload()
  await calculator.locator(`[data-testid=per-request][data-atomic="${row.charged_atomic}"]`).waitFor()

  // A search costs the same on every model: 0.00875 USDC.
  await calculator.getByLabel('Web searches').fill('2')
  await calculator.locator(`[data-testid=per-request][data-atomic="${BigInt(row.charged_atomic) + 17_500n}"]`).waitFor()
})

test('a calculator field reports invalid and empty numbers', async () => {
  const page = await dashboard.open()
  await page.goto(`${dashboard.origin}/models`)
  const calculator = page.getByTestId('calculator')
  for (const text of ['', 'many', '1.5', '999999999999']) {
    await calculator.getByLabel('Output tokens').fill(text)
    await calculator.getByRole('alert').getByText('Enter a whole number').waitFor()
    assert.equal(await calculator.getByTestId('per-request').count(), 0)
  }
  await calculator.getByRole('button', { name: 'Coding agent turn' }).click()
  await calculator.getByTestId('per-request').first().waitFor()
  assert.equal(await calculator.getByLabel('Input tokens').inputValue(), '40000')
})

test('a model is copied, tried in the playground after signing in, and found by the palette', async () => {
  const page = await dashboard.open()
  await page.goto(`${dashboard.origin}/models`)
  await page.getByRole('button', { name: 'Copy model id gpt-5.6-luna' }).click()
  await page.getByTestId('announcer').getByText('Copied').waitFor()
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'gpt-5.6-luna')
  await page.getByRole('link', { name: 'Try it: gpt-5.6-luna' }).click()
  await page.getByRole('button', { name: 'Continue as local developer' }).click()
  await page.getByRole('heading', { name: 'Playground', level: 1 }).waitFor()
  assert.equal(await page.getByLabel('Model', { exact: true }).inputValue(), 'gpt-5.6-luna')

  await page.keyboard.press('Control+k')
  await page.getByTestId('palette').getByRole('combobox').fill('models')
  await page.getByTestId('palette').getByRole('option', { name: 'Models', exact: true }).click()
  await page.getByRole('heading', { name: 'Models', level: 1 }).waitFor()
})
