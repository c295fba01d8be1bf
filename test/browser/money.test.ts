import assert from 'node:assert/strict'
import { test } from 'node:test'
import jsQr from 'jsqr'
import type { Page, Route } from 'playwright-core'
import { until } from '../support/until.ts'
import { dashboardSuite } from './dashboard.ts'
import { availableBalance, createKey, openAccountWithPasskey, signInAsDeveloper } from './person.ts'

const dashboard = dashboardSuite({ SANDBOX_TOKENS_PER_SECOND: '40' })

test('a key with a limit of $0.01 hit by fifty calls at once never spends more, and its page says why calls were refused', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page)
  const secret = await createKey(page, 'One cent', '0.01')
  // Fifty such answers cost more than a cent: however slowly the calls come in, some must be refused.
  const answers = await Promise.all(
    Array.from({ length: 50 }, () =>
      chat(secret, { max_tokens: 200, messages: [{ role: 'user', content: '[sandbox:tokens 100]' }] }),
    ),
  )
  const statuses = answers.map(({ status }) => status)
  assert.ok(statuses.includes(200) && statuses.includes(402), statuses.join())
  await page.getByRole('link', { name: 'One cent' }).click()
  const refusals = page.getByTestId('refusals')
  await refusals.getByText('key_limit_exceeded').waitFor()
  await refusals.getByText('may cost more than the remaining limit of the key').waitFor()
  const key = await keyFromPage(page)
  assert.ok(BigInt(key.spent_atomic) > 0n && BigInt(key.spent_atomic) <= 10_000n, key.spent_atomic)
})

test('a deposit goes live, step by step, and the code on the page is the address beside it', async () => {
  const page = await dashboard.open()
  await openAccountWithPasskey(dashboard, page)
  await page.goto(`${dashboard.origin}/funds`)
  const address = (await page.getByTestId('deposit-address').getAttribute('data-address'))!
  assert.equal(await readQr(page), address)
  await page.getByRole('button', { name: 'Get 25 test USDC' }).click()
  await page.locator('[data-testid=deposit-row][data-state=credited]').waitFor()
  assert.equal(await page.getByTestId('deposit-row').count(), 1, 'one deposit is one row')
  await page.locator('[data-testid=balance-pill][data-available="25000000"]').waitFor()
})

test('money is not withdrawn to four kinds of bad address; to a good one it is paid, and the transaction is shown', async () => {
  const page = await dashboard.open()
  await openAccountWithPasskey(dashboard, page)
  await page.goto(`${dashboard.origin}/funds`)
  await page.getByRole('button', { name: 'Get 25 test USDC' }).click()
  await page.locator('[data-testid=balance-pill][data-available="25000000"]').waitFor()

  const form = page.getByTestId('withdraw')
  await form.getByLabel('Amount').fill('10')
  const own = (await page.getByTestId('deposit-address').getAttribute('data-address'))!
  const { usdc, gateway } = await chainAddresses(page)
  for (const [address, why] of [
    [`0x${'0'.repeat(40)}`, /zero address/],
    [usdc, /token contract/],
    [own, /own deposit address/],
  ] as const) {
    await form.getByLabel('To').fill(address)
    await form.getByRole('button', { name: 'Review withdrawal' }).click()
    await form.getByRole('alert').filter({ hasText: why }).waitFor()
  }
  await form.getByLabel('To').fill(gateway)
  await form.getByRole('button', { name: 'Review withdrawal' }).click()
  await confirm(page, gateway)
  await page.getByRole('dialog', { name: 'Confirm withdrawal' }).getByRole('alert').waitFor()
  await page.getByRole('button', { name: 'Cancel' }).click()
  assert.equal(await availableBalance(page), 25_000_000n)

  const good = '0x70997970C51812dc3A010C7d01b50e0d17dc79C8'
  await form.getByLabel('To').fill(good)
  await form.getByRole('button', { name: 'Review withdrawal' }).click()
  // The service makes the withdrawal, and its answer is lost. Whatever the user does then, it is one withdrawal.
  const { promise: escaped, resolve: loseAnswer } = Promise.withResolvers<void>()
  const loseOnce = async (route: Route) => {
    if (route.request().method() !== 'POST') return route.fallback()
    await route.fetch()
    await escaped
    await route.abort()
    await page.unroute('**/api/withdrawals', loseOnce)
  }
  await page.route('**/api/withdrawals', loseOnce)
  await confirm(page, good)
  const dialog = page.getByRole('dialog', { name: 'Confirm withdrawal' })
  await dialog.locator('button[aria-busy=true]').waitFor()
  for (const _ of [1, 2]) await page.keyboard.press('Escape')
  assert.ok(await dialog.getByRole('button', { name: 'Cancel' }).isDisabled())
  assert.ok(await dialog.getByRole('button', { name: 'Close' }).isDisabled())
  loseAnswer()
  await dialog.getByText('The service did not respond').waitFor()
  await page.keyboard.press('Escape')
  await dialog.waitFor({ state: 'detached' })
  await form.getByRole('button', { name: 'Review withdrawal' }).click()
  await confirm(page, good)
  const row = page.locator('[data-testid=withdrawal-row][data-state=confirmed]')
  await row.waitFor()
  assert.equal(await page.getByTestId('withdrawal-row').count(), 1, 'sent twice, made once')
  assert.match((await row.locator('code').last().getAttribute('title'))!, /^0x[0-9a-f]{64}$/)
  await page.locator('[data-testid=balance-pill][data-available="15000000"]').waitFor()
})

test('the drawer of a request shows the payment that covers it and its position in the batch', async () => {
  const page = await dashboard.open()
  await openAccountWithPasskey(dashboard, page)
  await page.goto(`${dashboard.origin}/funds`)
  await page.getByRole('button', { name: 'Get 25 test USDC' }).click()
  await page.locator('[data-testid=balance-pill][data-available="25000000"]').waitFor()
  const secret = await createKey(page, 'Batched')
  const { id } = await chat(secret, { max_tokens: 50, messages: [{ role: 'user', content: 'Batch' }] })
  await page.goto(`${dashboard.origin}/requests/${id}`)
  await page
    .getByTestId('settlement')
    .getByText(/^payment \d+ of \d+ in the batch$/)
    .waitFor()
  await page.getByTestId('settlement').getByText('Paid alone in payment 1').waitFor()
})

test('a receipt is genuine, and one that was changed says which check failed', async () => {
  const { id } = await chat(dashboard.apiKey, { max_tokens: 50, messages: [{ role: 'user', content: 'Receipt' }] })
  const page = await dashboard.open()
  await receiptIsThere(id)
  await page.goto(`${dashboard.origin}/r/${id}`)
  await page.locator('[data-testid=checks][data-ok=true]').waitFor()
  await page.route('**/api/receipts/*', async (route) => {
    const answer = await route.fetch()
    const receipt = (await answer.json()) as { entry: Record<string, string> }
    await route.fulfill({ response: answer, json: { ...receipt, entry: { ...receipt.entry, amount_atomic: '1' } } })
  })
  await page.reload()
  await page.locator('[data-testid=check-hash][data-ok=false]').waitFor()
  await page.locator('[data-testid=check-payment][data-ok=false]').waitFor()
  await page.getByText('This receipt is not genuine').waitFor()
})

test('new requests appear in the live log, and the export sums to its footer', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page, '/requests?live=true&model=gpt-5.6-sol')
  await page.getByText('No requests match').waitFor()
  const sent = await chat(dashboard.apiKey, {
    model: 'gpt-5.6-sol',
    max_tokens: 50,
    messages: [{ role: 'user', content: 'Live' }],
  })
  await page.locator(`a[href*="${sent.id}"]`).waitFor()
  await page.reload()
  const totals = page.getByTestId('totals')
  await totals.waitFor()
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByTestId('export-csv').click()])
  const lines = (await streamText(await download.createReadStream())).trim().split(/\r?\n/)
  const column = lines[0]!.split(',').indexOf('charged_atomic')
  const sum = lines.slice(1).reduce((total, line) => total + BigInt(line.split(',')[column]!), 0n)
  assert.equal(String(sum), await totals.getAttribute('data-charged'))
})

async function chat(apiKey: string, body: object): Promise<{ status: number; id: string }> {
  const answer = await fetch(`${dashboard.baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ web_search: false, web_fetch: false, ...body }),
  })
  await answer.text()
  return { status: answer.status, id: answer.headers.get('x-router-request-id')! }
}

async function keyFromPage(page: Page): Promise<{ spent_atomic: string }> {
  const id = new URL(page.url()).pathname.split('/').at(-1)!
  return page.evaluate(async (key) => (await fetch(`/api/keys/${key}`)).json(), id)
}

/** The gateway's contract is never shown; a receipt names it, as every proof must. */
async function chainAddresses(page: Page): Promise<{ usdc: string; gateway: string }> {
  const { id } = await chat(dashboard.apiKey, { max_tokens: 20, messages: [{ role: 'user', content: 'Hi' }] })
  const receipt = await receiptIsThere(id)
  const usdc = await page.evaluate(
    async () => (await (await fetch('/api/session')).json()).chain.usdc_address as string,
  )
  return { usdc, gateway: receipt.domain.gateway_wallet }
}

function receiptIsThere(id: string): Promise<{ domain: { gateway_wallet: string } }> {
  return until(async () => {
    const answer = await fetch(`${dashboard.origin}/api/receipts/${id}`)
    return answer.ok && ((await answer.json()) as { domain: { gateway_wallet: string } })
  })
}

async function confirm(page: Page, address: string): Promise<void> {
  const dialog = page.getByRole('dialog', { name: 'Confirm withdrawal' })
  await dialog.waitFor()
  const last = dialog.getByLabel('Type the last four characters of the address')
  if ((await last.count()) > 0) await last.fill(address.slice(-4))
  await dialog.getByRole('button', { name: 'Withdraw 10 USDC' }).click()
}

async function readQr(page: Page): Promise<string> {
  const picture = await page.getByTestId('qr').screenshot()
  const pixels = await page.evaluate(async (base64) => {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0))
    const bitmap = await createImageBitmap(new Blob([bytes], { type: 'image/png' }))
    const canvas = new OffscreenCanvas(bitmap.width, bitmap.height)
    const context = canvas.getContext('2d')!
    context.drawImage(bitmap, 0, 0)
    const { data, width, height } = context.getImageData(0, 0, bitmap.width, bitmap.height)
    return { data: Array.from(data), width, height }
  }, picture.toString('base64'))
  const read = jsQr.default ?? jsQr
  return (read as unknown as typeof jsQr.default)(Uint8ClampedArray.from(pixels.data), pixels.width, pixels.height)!
    .data
}

async function streamText(stream: AsyncIterable<Buffer>): Promise<string> {
  let text = ''
  for await (const part of stream) text += part.toString()
  return text
}
