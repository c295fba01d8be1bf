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

// Answers come as fast as they can: what streams, and what is stopped, is in playground-streams.test.ts.
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

test('a very long answer is shown whole, and is kept over a reload', async () => {
  const page = await openPlayground(dashboard)
  await page.getByLabel('Max tokens').fill('30000')
  const answer = await ask(page, 'Write a lot [sandbox:tokens 25000]')
  const words = (await answer.getByTestId('answer').innerText()).trim().split(/\s+/)
  assert.equal(words.length, 25_000)
  await page.reload()
  await answers(page).first().getByTestId('final').waitFor()
  assert.equal((await answers(page).first().getByTestId('answer').innerText()).trim().split(/\s+/).length, 25_000)
})

test('messages are edited, answered again and removed; the total counts every request that was paid', async () => {
  const page = await openPlayground(dashboard)
  const charges: bigint[] = []
  charges.push(await chargedOf(await ask(page, 'First [sandbox:tokens 10]')))
  charges.push(await chargedOf(await ask(page, 'Second [sandbox:tokens 20]')))
  assert.equal(await messages(page).count(), 4)

  // Saved and answered again: the later turn is gone, and the new words are what is sent.
  await messages(page).first().getByRole('button', { name: 'Edit message' }).click()
  await page.getByLabel('Edit your message').fill('Changed [sandbox:tokens 30]')
  const sent = page.waitForRequest((request) => request.url().endsWith('/api/playground'))
  await page.getByRole('button', { name: 'Save and answer again' }).click()
  assert.deepEqual(((await sent).postDataJSON() as { messages: unknown }).messages, [
    { role: 'user', content: 'Changed [sandbox:tokens 30]' },
  ])
  await answers(page).first().getByTestId('final').waitFor()
  assert.equal(await messages(page).count(), 2)
  charges.push(await chargedOf(answers(page).first()))

  await answers(page).first().getByRole('button', { name: 'Answer again' }).click()
  await page.locator('[data-testid=conversation-total][data-requests="4"]').waitFor()
  charges.push(await chargedOf(answers(page).first()))

  // An answer that was edited is sent as it is now.
  await answers(page).first().getByRole('button', { name: 'Edit answer' }).click()
  await page.getByLabel('Edit the answer').fill('My own words')
  await page.getByRole('button', { name: 'Save', exact: true }).click()
  const next = page.waitForRequest((request) => request.url().endsWith('/api/playground'))
  charges.push(await chargedOf(await ask(page, 'Third [sandbox:tokens 5]')))
  const history = ((await next).postDataJSON() as { messages: { content: string }[] }).messages
  assert.deepEqual(
    history.map(({ content }) => content),
    ['Changed [sandbox:tokens 30]', 'My own words', 'Third [sandbox:tokens 5]'],
  )

  await messages(page).first().getByRole('button', { name: 'Remove message' }).click()
  await answers(page).first().getByRole('button', { name: 'Remove answer' }).click()
  assert.equal(await messages(page).count(), 2)
  const total = page.locator('[data-testid=conversation-total][data-requests="5"]')
  await total.waitFor()
  assert.equal(await total.getAttribute('data-charged'), String(charges.reduce((sum, charge) => sum + charge)))
})

test('the code panel is exactly the call that is sent, with every setting in it', async () => {
  const page = await openPlayground(dashboard)
  await page.getByLabel('System prompt').fill('Answer in "one" word, it’s enough.')
  await page.getByLabel('Max tokens').fill('300')
  await page.getByLabel('Temperature').fill('0.5')
  await page.getByLabel('Reasoning effort').selectOption('high')
  await page.getByLabel('Web fetch').check()
  await page.getByText('Tools', { exact: true }).click()
  await page.getByLabel('Function definitions').fill('{"name": "get_time", "description": "The time"}')
  await composer(page).fill("It's `late` [sandbox:tokens 5]")
  await page.locator('[data-quote]').waitFor()
  await page.getByRole('button', { name: 'Code', exact: true }).click()
  const dialog = page.getByRole('dialog', { name: 'This request as code' })
  const code = dialog.locator('pre')
  const curl = (await code.textContent())!
  await dialog.getByRole('button', { name: 'Copy' }).click()
  await page.waitForFunction(async () => (await navigator.clipboard.readText()).startsWith('curl '))
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), curl)
  for (const [language, part] of [
    ['Python', 'os.environ["OPENAI_API_KEY"]'],
    ['Node', 'process.env.OPENAI_API_KEY'],
    ['Go', 'os.Getenv("OPENAI_API_KEY")'],
  ] as const) {
    await dialog.getByRole('tab', { name: language }).click()
    await code.getByText(part).waitFor()
  }
  await page.keyboard.press('Escape')
  await dialog.waitFor({ state: 'detached' })

  const sent = page.waitForRequest((request) => request.url().endsWith('/api/playground'))
  await page.getByRole('button', { name: 'Send' }).click()
  const { key_id, ...body } = (await sent).postDataJSON() as Record<string, unknown>
  assert.equal(typeof key_id, 'string')
  const shown = /-d '(.*)'$/s.exec(curl)![1]!.replaceAll(`'\\''`, "'")
  assert.deepEqual(JSON.parse(shown), body)
  assert.deepEqual(
    [body.temperature, body.max_tokens, body.reasoning_effort, body.web_fetch, body.web_search],
    [0.5, 300, 'high', true, false],
  )
  assert.match(curl, /Bearer \$OPENAI_API_KEY"/)
  await answers(page).first().getByTestId('final').waitFor()
  // Nothing is typed: the panel shows the call that was made, without its answer.
  await page.getByRole('button', { name: 'Code', exact: true }).click()
  const last = page.getByRole('dialog', { name: 'The last request as code' })
  assert.equal(await last.locator('pre').textContent(), curl)
})

test('a tool call of the model is answered by the user, and the conversation continues', async () => {
  const page = await openPlayground(dashboard)
  await page.getByText('Tools', { exact: true }).click()
  const tools = page.getByLabel('Function definitions')
  await tools.fill('[{"name": "get weather"}]')
  await page.getByRole('alert').getByText('Tool 1 needs a "name"').waitFor()
  await composer(page).fill('Hi')
  assert.ok(await page.getByRole('button', { name: 'Send' }).isDisabled())
  const parameters = { type: 'object', properties: { city: { type: 'string' } } }
  await tools.fill(JSON.stringify([{ type: 'function', function: { name: 'get_weather', parameters } }]))
  await ask(page, 'Oslo? [sandbox:call get_weather {"city":"Oslo"}]')
  const call = page.getByTestId('tool-calls')
  await call.getByText('get_weather').first().waitFor()
  await call.getByText('"city": "Oslo"').waitFor()
  await composer(page).fill('Next')
  assert.ok(await page.getByRole('button', { name: 'Send' }).isDisabled(), 'a call without its result cannot be sent')
  await composer(page).fill('')
  await page.getByLabel('Result of get_weather').fill('{"celsius": 4}')
  await page.reload()
  assert.equal(await page.getByLabel('Result of get_weather').inputValue(), '{"celsius": 4}')
  await page.getByRole('button', { name: 'Continue' }).click()
  await answers(page).nth(1).getByText('{"celsius": 4}').waitFor()
  await answers(page).nth(1).getByTestId('final').waitFor()
  assert.equal(await page.getByLabel('Result of get_weather').count(), 0, 'what was sent is no longer written')
})

test('a response format is checked before it is sent, and the answer follows it', async () => {
  const page = await openPlayground(dashboard)
  await page.getByLabel('Response format').selectOption('JSON schema')
  await composer(page).fill('A person')
  await page.getByRole('alert').getByText('Paste the JSON schema').waitFor()
  const field = page.getByRole('textbox', { name: 'JSON schema' })
  for (const [text, problem] of [
    ['{"type": "object",}', 'This is not valid JSON'],
    ['{"type": "dict"}', '"dict" is not a JSON schema type'],
  ] as const) {
    await field.fill(text)
    await page.getByRole('alert').getByText(problem).waitFor()
    assert.ok(await page.getByRole('button', { name: 'Send' }).isDisabled())
  }
  const schema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] }
  await field.fill(JSON.stringify(schema))
  const answer = await ask(page, 'A person')
  const given = JSON.parse(await answer.getByTestId('answer').innerText()) as { city: string }
  assert.equal(typeof given.city, 'string')
  await page.getByLabel('Response format').selectOption('JSON')
  const free = await ask(page, 'Again, as JSON')
  assert.ok(JSON.parse(await free.getByTestId('answer').innerText()))
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

test('an answer that is not streamed is shown when it is there', async () => {
  const page = await openPlayground(dashboard)
  await page.getByLabel('Stream the answer').uncheck()
  const answer = await ask(page, say('A **whole** answer'))
  await answer.locator('strong', { hasText: 'whole' }).waitFor()
})

test('the key that pays is named, and changes only by choice', async () => {
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
  await failure.getByText('Deposit USDC or lower max_tokens.').waitFor()

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
  await failed.getByRole('alert').getByText('You are not charged when there is no output.').waitFor()
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

test('two models answer the same conversation, each with its own cost', async () => {
  const page = await openPlayground(dashboard)
  await ask(page, 'Before [sandbox:tokens 5]')
  await page.getByRole('button', { name: 'Compare', exact: true }).click()
  await page.getByLabel('Second model').selectOption('gpt-6-astra')
  assert.equal(await page.getByTestId('lane').count(), 2)
  await composer(page).fill('Both [sandbox:tokens 40]')
  await page.locator('[data-quote][data-model="gpt-6-astra"]').waitFor()
  await page.locator('[data-quote][data-model="gpt-5.6-terra"]').waitFor()
  await page.getByRole('button', { name: 'Send' }).click()
  const lane = (model: string) => page.getByRole('region', { name: `Conversation with ${model}` })
  const finals = async (model: string) => {
    const final = lane(model).locator('[data-role=assistant]').nth(1)
    await final.getByTestId('final').waitFor()
    return chargedOf(final)
  }
  const [cheap, dear] = [await finals('gpt-5.6-terra'), await finals('gpt-6-astra')]
  assert.equal(dear, cheap * 5n, 'the same tokens at five times the price')
  const total = lane('gpt-6-astra').getByTestId('conversation-total')
  assert.equal(await total.getAttribute('data-charged'), String(dear), 'the copied answer is not charged again')

  await page.getByRole('button', { name: 'Close gpt-5.6-terra' }).click()
  assert.equal(await page.getByTestId('lane').count(), 1)
  const all = page.locator('[data-testid=composer] [data-testid=conversation-total]')
  assert.equal(await all.getAttribute('data-requests'), '3', 'what a closed lane cost is still counted')
  assert.equal(await page.getByLabel('Model', { exact: true }).inputValue(), 'gpt-6-astra')
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

test('on a telephone the settings fold away and everything fits', async () => {
  const page = await openPlayground(dashboard, { viewport: { width: 390, height: 844 } })
  assert.ok(await page.getByLabel('Pay with key').isHidden())
  await page.getByTestId('settings').locator('summary').first().click()
  await page.getByLabel('Max tokens').fill('400')
  await page.getByTestId('settings').locator('summary').first().click()
  await ask(page, say(`${document}\n\n${'wide'.repeat(80)}\n\n\`${'code'.repeat(60)}\``))
  await page.getByRole('button', { name: 'Compare', exact: true }).click()
  await send(
    page,
    say('| a | b | c | d | e | f |\n|---|---|---|---|---|---|\n| long cells | long cells | long cells | x | y | z |'),
  )
  await answers(page).last().getByTestId('final').waitFor()
  const spill = await page.evaluate(() => window.document.documentElement.scrollWidth - window.innerWidth)
  assert.ok(spill <= 0, `${spill} px wider than the screen`)
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
