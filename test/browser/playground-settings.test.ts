import assert from 'node:assert/strict'
import { test } from 'node:test'
import { dashboardSuite } from './dashboard.ts'
import { answers, ask, chargedOf, composer, messages, openPlayground, say, send } from './playground.ts'

const dashboard = dashboardSuite({ SANDBOX_TOKENS_PER_SECOND: '0' })

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

  // Without valid settings nothing is paid for, by any button.
  await page.getByLabel('Max tokens').fill('many')
  const again = messages(page).getByRole('button', { name: 'Answer again' })
  await page.locator('button:disabled[title="Enter a whole number above 0."]').first().waitFor()
  for (const button of await again.all()) assert.ok(await button.isDisabled())
  await messages(page).first().getByRole('button', { name: 'Edit message' }).click()
  assert.ok(await page.getByRole('button', { name: 'Save and answer again' }).isDisabled())
  await page.getByRole('button', { name: 'Cancel' }).click()
  await page.getByLabel('Max tokens').fill('1024')

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

test('an answer that is not streamed is shown when it is there', async () => {
  const page = await openPlayground(dashboard)
  await page.getByLabel('Stream the answer').uncheck()
  const answer = await ask(page, say('A **whole** answer'))
  await answer.locator('strong', { hasText: 'whole' }).waitFor()
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

test('on a telephone the settings fold away and everything fits', async () => {
  const page = await openPlayground(dashboard, { viewport: { width: 390, height: 844 } })
  assert.ok(await page.getByLabel('Pay with key').isHidden())
  await page.getByTestId('settings').locator('summary').first().click()
  await page.getByLabel('Max tokens').fill('400')
  await page.getByTestId('settings').locator('summary').first().click()
  await ask(
    page,
    say(`# Title\n\n| left | right |\n|---|--:|\n| a | 1 |\n\n${'wide'.repeat(80)}\n\n\`${'code'.repeat(60)}\``),
  )
  await page.getByRole('button', { name: 'Compare', exact: true }).click()
  await send(
    page,
    say('| a | b | c | d | e | f |\n|---|---|---|---|---|---|\n| long cells | long cells | long cells | x | y | z |'),
  )
  await answers(page).last().getByTestId('final').waitFor()
  const spill = await page.evaluate(() => window.document.documentElement.scrollWidth - window.innerWidth)
  assert.ok(spill <= 0, `${spill} px wider than the screen`)
})
