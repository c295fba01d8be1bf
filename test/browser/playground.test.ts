import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Page } from 'playwright-core'
import { dashboardSuite } from './dashboard.ts'
import { atOverview, createKey, openAccountWithPasskey, signInAsDeveloper } from './person.ts'
import {
  answers,
  ask,
  chargedOf,
  composer,
  gotoPlayground,
  messages,
  openPlayground,
  rowOf,
  say,
  send,
} from './playground.ts'

// Answers come as fast as they can: what streams, and what is stopped, is in playground-streams.test.ts. What the settings and the
// other views do is in playground-settings.test.ts.
const dashboard = dashboardSuite({ SANDBOX_TOKENS_PER_SECOND: '0' })

const document = `# Title

A **bold** word, \`code\`, and a [link](https://example.com/a).

1. one
2. two

| left | right |
|---|--:|
| a | 1 |

\`\`\`ts
const answer: number = 42 // "quoted" <b>
\`\`\`
`

test('an answer is shown as Markdown, with highlighted code that can be copied', async () => {
  const page = await openPlayground(dashboard)
  const answer = await ask(page, say(document))
  await answer.getByRole('heading', { name: 'Title' }).waitFor()
  assert.equal(await page.locator('h1').count(), 1, 'the page keeps its one h1')
  await answer.locator('strong', { hasText: 'bold' }).waitFor()
  assert.equal(await answer.getByTestId('answer').getByRole('listitem').count(), 2)
  assert.equal(
    await answer.getByRole('cell', { name: '1' }).evaluate((cell) => getComputedStyle(cell).textAlign),
    'right',
  )
  await answer.locator('code .hljs-keyword', { hasText: 'const' }).waitFor()
  await answer.getByRole('button', { name: 'Copy', exact: true }).click()
  await page.getByTestId('announcer').getByText('Copied').waitFor()
  const copied = () => page.evaluate(() => navigator.clipboard.readText())
  assert.equal(await copied(), 'const answer: number = 42 // "quoted" <b>')
  await answer.getByRole('button', { name: 'Copy answer' }).click()
  await page.waitForFunction(async () => (await navigator.clipboard.readText()).startsWith('# Title'))
  assert.equal(await copied(), document)
  const link = answer.getByRole('link', { name: 'link' })
  assert.deepEqual(
    [await link.getAttribute('href'), await link.getAttribute('rel'), await link.getAttribute('target')],
    ['https://example.com/a', 'noopener noreferrer nofollow', '_blank'],
  )
})

test('hostile Markdown runs nothing, loads nothing and links nowhere but to the web', async () => {
  const page = await openPlayground(dashboard)
  const elsewhere: string[] = []
  page.on('request', (request) => {
    if (!request.url().startsWith(dashboard.origin)) elsewhere.push(request.url())
  })
  const hostile = [
    '<img src="https://evil.example/a.png" onerror="window.owned = true"><script>window.owned = true</script>',
    '[a](javascript:window.owned=true) [b](JAVASCRIPT:alert(1)) [c](data:text/html,x) [d](//evil.example) [e](/funds)',
    '![tracker](https://evil.example/pixel.png) [good](https://good.example)',
    '<a href="javascript:window.owned=true" onclick="window.owned=true">x</a> <iframe src="https://evil.example"></iframe>',
    '```html"><img src=x onerror=window.owned=true>\n<script>window.owned = true</script>\n```',
    '| <img src=x onerror=window.owned=true> | b |\n|---|---|\n| <svg onload=window.owned=true> | [y](vbscript:x) |',
  ].join('\n\n')
  const answer = await ask(page, say(hostile))
  const shown = answer.getByTestId('answer')
  await shown.getByRole('link', { name: 'good' }).waitFor()
  assert.equal(await shown.locator('img, script, iframe, svg[onload], [onerror], [onclick], [style]').count(), 0)
  const links = await shown.locator('a').evaluateAll((found) => found.map((one) => one.getAttribute('href')))
  assert.ok(links.includes('https://evil.example/pixel.png'), 'an image is a link and is not loaded')
  assert.ok(links.includes('https://good.example') && links.every((href) => href?.startsWith('https://')), links.join())
  await shown.getByText('<script>window.owned = true</script>', { exact: false }).first().waitFor()
  assert.equal(await page.evaluate(() => (window as unknown as { owned?: boolean }).owned), undefined)
  assert.deepEqual(elsewhere, [])
})

test('the quote of an earlier message is not shown as that of the present one', async () => {
  const page = await openPlayground(dashboard)
  await composer(page).fill('Short')
  await page.locator('[data-quote]').waitFor()
  let answerQuote = () => {}
  const mayAnswer = new Promise<void>((resolve) => {
    answerQuote = resolve
  })
  await page.route('**/api/quote', async (route) => {
    await mayAnswer
    await route.fallback()
  })
  await composer(page).fill('Long '.repeat(2_000))
  await page.getByTestId('quote').getByText('Quoting… Before your change: at most $').waitFor()
  assert.equal(await page.locator('[data-quote]').count(), 0)
  answerQuote()
  await page.locator('[data-quote]').waitFor()
})

test('web search is named in the quote, shown as it happens and charged', async () => {
  const page = await openPlayground(dashboard)
  await composer(page).fill('Hold?')
  await page.locator('[data-quote]').waitFor()
  assert.doesNotMatch(await page.getByTestId('quote').innerText(), /more if the model/)
  await page.getByLabel('Web search').check()
  await page.getByTestId('quote').getByText('more if the model searches the web').waitFor()
  const answer = await ask(page, 'Hold? [sandbox:call web_search {"query":"hold"}]')
  await answer.getByText('Searched the web for “hold”').waitFor()
  assert.ok((await chargedOf(answer)) >= 8_750n)
})

test('the paying key is shown, and changes only by choice', async () => {
  const page = await dashboard.open()
  await openAccountWithPasskey(dashboard, page)
  await gotoEmpty(page)
  await page.getByRole('heading', { name: 'Playground', level: 1 }).waitFor()
  await page.getByText('You need an active key').waitFor()
  await fund(page)
  await createKey(page, 'First key')
  await gotoPlayground(dashboard, page)
  await composer(page).fill('Hi')
  await page.getByTestId('payer').getByText('First key').waitFor()
  await createKey(page, 'Second key')
  await gotoPlayground(dashboard, page)
  await page.getByTestId('payer').getByText('First key').waitFor()
  assert.equal((await rowOf(page, await ask(page, 'Hi [sandbox:tokens 3]'))).key.name, 'First key')
  await page.getByLabel('Pay with key').selectOption('Second key')
  assert.equal((await rowOf(page, await ask(page, 'Hi [sandbox:tokens 3]'))).key.name, 'Second key')

  // A new tab begins with the last choice; a revoked key is not replaced by another one.
  const other = await page.context().newPage()
  await gotoPlayground(dashboard, other)
  await composer(other).fill('Hi')
  await other.getByTestId('payer').getByText('Second key').waitFor()
  await other.evaluate(async () => {
    const { data } = await (await fetch('/api/keys')).json()
    const { id } = data.find(({ name }: { name: string }) => name === 'Second key')
    await fetch(`/api/keys/${id}`, { method: 'DELETE' })
  })
  await page.reload()
  await composer(page).fill('Hi')
  await page.getByTestId('quote').getByText('Choose the key that pays.').waitFor()
  assert.ok(await page.getByRole('button', { name: 'Send' }).isDisabled())
  await page.getByLabel('Pay with key').selectOption('First key')
  await page.getByTestId('payer').getByText('First key').waitFor()
})

test('without money, and beyond a key’s limit, the page says what to do', async () => {
  const page = await dashboard.open()
  await openAccountWithPasskey(dashboard, page)
  await createKey(page, 'Poor')
  await gotoPlayground(dashboard, page)
  await composer(page).fill('Hi')
  await page.getByTestId('quote').getByRole('link', { name: 'Deposit' }).waitFor()
  await page.keyboard.press('Control+Enter')
  const failure = page.locator('[data-role=assistant][data-state=failed]').last().getByRole('alert')
  await failure.getByRole('link', { name: 'Deposit' }).waitFor()
  await failure.getByText(/^Deposit USDC, wait for running requests/).waitFor()

  await fund(page)
  await createKey(page, 'Small', '0.002')
  await gotoPlayground(dashboard, page)
  await page.getByLabel('Pay with key').selectOption('Small')
  await page.getByLabel('Max tokens').fill('5000')
  await composer(page).fill('Hi [sandbox:tokens 5]')
  await page
    .getByTestId('quote')
    .getByRole('button', { name: /^Use \d+ max tokens$/ })
    .waitFor()
  await page.keyboard.press('Control+Enter')
  await failure.getByRole('link', { name: 'Open the key' }).waitFor()
  await failure.getByRole('button', { name: /^Use \d+ max tokens$/ }).click()
  assert.notEqual(await page.getByLabel('Max tokens').inputValue(), '5000')
  await failure.getByRole('button', { name: 'Try again' }).click()
  await page.locator('[data-role=assistant][data-state=done]').getByTestId('final').waitFor()
})

test('a model that fails costs nothing, says so, and can be asked again', async () => {
  const page = await openPlayground(dashboard)
  await send(page, 'Fail [sandbox:error 500]')
  const failed = page.locator('[data-role=assistant][data-state=failed]')
  await failed.getByRole('alert').waitFor()
  await failed.getByRole('alert').getByText('Without output nothing is charged.').waitFor()
  assert.equal(await chargedOf(failed), 0n)
  // The failed answer has no words: it is not part of the next call.
  await messages(page).first().getByRole('button', { name: 'Edit message' }).click()
  await page.getByLabel('Edit your message').fill('Fine [sandbox:tokens 4]')
  await page.getByRole('button', { name: 'Save', exact: true }).click()
  await failed.getByRole('button', { name: 'Try again' }).click()
  await page.locator('[data-role=assistant][data-state=done]').getByTestId('final').waitFor()

  // Halfway: what was streamed stays and is charged.
  await send(page, 'Break [sandbox:fail-after 80]')
  await failed.getByRole('alert').waitFor()
  assert.notEqual((await failed.getByTestId('answer').innerText()).trim(), '')
  await failed.getByTestId('final').waitFor()
  assert.ok((await chargedOf(failed)) > 0n)
})

test('the conversation survives a reload; Clear asks once and clears it for good; signing out too', async () => {
  const page = await openPlayground(dashboard)
  await page.getByRole('button', { name: 'Write code' }).click()
  assert.match(await composer(page).inputValue(), /exponential backoff/)
  await ask(page, 'Remember [sandbox:tokens 5]')
  await page.getByLabel('System prompt').fill('Be kind.')
  await composer(page).fill('A draft')
  await page.reload()
  await messages(page).nth(1).getByTestId('final').waitFor()
  assert.equal(await composer(page).inputValue(), 'A draft')
  assert.equal(await page.getByLabel('System prompt').inputValue(), 'Be kind.')

  // Another page of the dashboard and back.
  await page.getByRole('link', { name: 'Explain' }).click()
  await page.getByTestId('explain').getByText('The lines add up to the charge').waitFor()
  await page.goBack()
  await messages(page).nth(1).waitFor()

  await page.getByRole('button', { name: 'Clear' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click()
  assert.equal(await messages(page).count(), 2)
  await page.getByRole('button', { name: 'Clear' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Clear conversation' }).click()
  await page.getByTestId('examples').waitFor()
  await page.reload()
  await page.getByTestId('examples').waitFor()

  await ask(page, 'Secret [sandbox:tokens 5]')
  await page.getByRole('button', { name: /^Account: / }).click()
  await page.getByRole('button', { name: 'Sign out' }).click()
  await page.getByRole('heading', { name: 'Sign in' }).waitFor()
  assert.deepEqual(
    await page.evaluate(() => Object.keys(sessionStorage).filter((key) => key.includes('playground'))),
    [],
  )
  await signInAsDeveloper(dashboard, page, '/playground')
  await page.getByTestId('examples').waitFor()
})

test('two tabs have two conversations, and both are paid', async () => {
  const first = await openPlayground(dashboard)
  const second = await first.context().newPage()
  await gotoPlayground(dashboard, second)
  await Promise.all([ask(first, 'One [sandbox:tokens 6]'), ask(second, 'Two [sandbox:tokens 6]')])
  await messages(first).first().getByText('One').waitFor()
  await messages(second).first().getByText('Two').waitFor()
  for (const page of [first, second]) {
    assert.equal(await messages(page).count(), 2)
    assert.ok((await chargedOf(answers(page).first())) > 0n)
  }
})

async function gotoEmpty(page: Page): Promise<void> {
  await page.goto(`${dashboard.origin}/playground`)
}

async function fund(page: Page): Promise<void> {
  await page.goto(`${dashboard.origin}/funds`)
  await page.getByRole('button', { name: 'Get 25 test USDC' }).click()
  await page.locator('[data-testid=balance-pill][data-available="25000000"]').waitFor()
  await page.goto(dashboard.origin)
  await atOverview(page)
}
