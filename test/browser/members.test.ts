import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Page } from 'playwright-core'
import { dashboardSuite } from './dashboard.ts'
import { atOverview, createKey, openAccountWithPasskey, plugInPasskeyDevice } from './person.ts'

// The other windows learn of a switch when the service next looks at their sessions.
const dashboard = dashboardSuite({ STREAM_KEEPALIVE_MS: '1000' })

test('an invited person joins with a passkey, makes a key, cannot withdraw, and the owner reads all of it in the log', async () => {
  const owner = await dashboard.open()
  await openAccountWithPasskey(dashboard, owner)
  await owner.goto(`${dashboard.origin}/settings`)
  const members = owner.getByTestId('members')
  await members.getByRole('button', { name: 'Invite' }).click()
  const dialog = owner.getByRole('dialog', { name: 'Invite a member' })
  await dialog.getByLabel('Role').selectOption('developer')
  await dialog.getByLabel('Spending limit of the member').fill('2')
  await dialog.getByRole('button', { name: 'Create link' }).click()
  const link = (await owner.getByTestId('invitation-link').textContent())!.trim()
  assert.match(link, /\/login#invitation=[\w-]{43}$/)
  // A click beside the dialog loses no link.
  await owner.mouse.click(5, 5)
  await owner.getByText('You would have to create another invitation.').waitFor()
  await owner
    .getByRole('dialog', { name: 'Invitation link' })
    .getByRole('button', { name: 'Copy', exact: true })
    .click()
  await owner.getByRole('button', { name: 'Done' }).click()
  await members.getByText('Open invitations').waitFor()

  const guest = await dashboard.open()
  await plugInPasskeyDevice(guest)
  await guest.goto(link)
  await guest.getByText('invites you to join Passkey as developer').waitFor()
  await guest.getByRole('button', { name: 'Join with a new passkey' }).click()
  await atOverview(guest)
  await guest.goto(`${dashboard.origin}/settings`)
  await guest.getByLabel('Your name, for other members').fill('Grace')
  await guest.getByRole('button', { name: 'Save your name' }).click()
  await guest.getByTestId('member').filter({ hasText: 'Grace · you' }).getByText('Developer').waitFor()
  assert.equal(await guest.getByTestId('account-log').count(), 0, 'the log is for admins')

  await createKey(guest, 'Made by Grace', '1.5')
  await refusedKey(guest)
  await guest.goto(`${dashboard.origin}/funds`)
  await guest
    .getByTestId('withdraw')
    .getByText('Only owners of the account can withdraw. Your role is developer. Ask an owner.')
    .waitFor()
  const refusal = await guest.evaluate(async () => {
    const answer = await fetch('/api/withdrawals', {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'idempotency-key': 'x' },
      body: JSON.stringify({ amount: '1', recipient: `0x${'1'.repeat(40)}` }),
    })
    return [answer.status, ((await answer.json()) as { error: { message: string } }).error.message]
  })
  assert.deepEqual(refusal, [
    403,
    'Only owners of the account may do this. Your role in this account is developer. Ask an owner. Nothing was changed.',
  ])

  await owner.reload()
  await members.getByTestId('member').filter({ hasText: 'Grace' }).waitFor()
  const log = owner.getByTestId('account-log')
  await log.getByText('Grace created the key “Made by Grace”').waitFor()
  await log.getByText('Grace was refused a withdrawal, which needs the role owner').waitFor()
  await log.getByText(/joined as developer/).waitFor()

  // Requests of another member's key: the guest reads them, filters by the key, and gets no link to a page that is not found.
  await owner.evaluate(async () => {
    const made = await fetch('/api/keys', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ name: 'Of the owner' }),
    })
    const { secret } = (await made.json()) as { secret: string }
    await fetch('/v1/chat/completions', {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${secret}` },
      body: JSON.stringify({ model: 'gpt-5.6-terra', messages: [{ role: 'user', content: 'Hi' }] }),
    })
  })
  await guest.goto(`${dashboard.origin}/requests`)
  const row = guest.getByTestId('request-row')
  await row.waitFor()
  await guest.getByRole('button', { name: 'Key: any' }).click()
  await guest.getByRole('checkbox', { name: 'Of the owner' }).check()
  await guest.getByRole('button', { name: 'Key: Of the owner' }).click()
  await row.getByRole('link').click()
  const drawer = guest.getByTestId('request-drawer')
  await drawer.getByText('Of the owner').waitFor()
  assert.equal(await drawer.getByRole('link', { name: 'Of the owner' }).count(), 0)

  // The link was used; the guest who opens it again while signed in is led to the account.
  await guest.goto(link)
  await guest.getByRole('button', { name: 'Join as Grace' }).click()
  await atOverview(guest)
  await setRole(owner, 'viewer', { limit: '1.75' })
  const saved = await owner.evaluate(async () => {
    const { data } = (await (await fetch('/api/members')).json()) as {
      data: readonly { role: string; limit: string }[]
    }
    return data.map(({ role, limit }) => [role, limit])
  })
  assert.deepEqual(saved[1], ['viewer', '1.75'], 'a limit that another window has lowered stays')
  await guest.goto(`${dashboard.origin}/keys?create=1`)
  await guest.getByTestId('key-row').waitFor()
  assert.equal(await guest.getByRole('button', { name: /Create key|Actions for/ }).count(), 0, 'a viewer only looks')
  await guest.goto(`${dashboard.origin}/playground`)
  await guest.getByText('Your role cannot send requests').waitFor()

  await owner.getByRole('button', { name: 'Edit Grace' }).click()
  await owner.getByRole('dialog', { name: 'Grace' }).getByRole('button', { name: 'Remove member' }).click()
  const removal = owner.getByRole('dialog', { name: 'Remove Grace' })
  await removal.getByText('revokes the keys that the member created').waitFor()
  assert.ok(await removal.evaluate((element) => element.contains(document.activeElement)), 'it has the focus')
  await removal.getByRole('button', { name: 'Cancel' }).click()
  await owner.getByRole('dialog', { name: 'Grace' }).getByRole('button', { name: 'Remove member' }).click()
  await removal.getByRole('button', { name: 'Remove member' }).click()
  await log.getByText('removed the member “Grace”').waitFor()
  await guest.goto(`${dashboard.origin}/keys`)
  await guest.getByRole('heading', { name: 'Sign in', level: 1 }).waitFor()
})

test('leaving an account asks first, and Cancel leaves nothing', async () => {
  const owner = await dashboard.open()
  await openAccountWithPasskey(dashboard, owner)
  const link = await owner.evaluate(async () => {
    const headers = { 'content-type': 'application/json' }
    const answer = await fetch('/api/invitations', {
      method: 'POST',
      headers,
      body: JSON.stringify({ role: 'viewer' }),
    })
    return ((await answer.json()) as { url: string }).url
  })
  const guest = await dashboard.open()
  await plugInPasskeyDevice(guest)
  await guest.goto(link)
  await guest.getByRole('button', { name: 'Join with a new passkey' }).click()
  await atOverview(guest)
  await guest.goto(`${dashboard.origin}/settings`)
  const leave = guest.getByTestId('members').getByRole('button', { name: 'Leave Passkey' })
  const dialog = guest.getByRole('dialog', { name: 'Leave Passkey' })
  await leave.click()
  await dialog.getByText('Only a new invitation lets you come back').waitFor()
  await dialog.getByRole('button', { name: 'Cancel' }).click()
  await dialog.waitFor({ state: 'detached' })
  await guest.reload()
  await leave.click()
  await dialog.getByRole('button', { name: 'Leave account' }).click()
  await guest.getByRole('heading', { name: 'Sign in', level: 1 }).waitFor()
})

test('a switch of accounts in one window reaches the other windows of the browser', async () => {
  const owner = await dashboard.open()
  await openAccountWithPasskey(dashboard, owner)
  const link = await owner.evaluate(async () => {
    const send = (method: string, path: string, body: object) =>
      fetch(path, { method, headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) })
    await send('PATCH', '/api/account', { name: 'Shared account' })
    const answer = await send('POST', '/api/invitations', { role: 'admin' })
    return ((await answer.json()) as { url: string }).url
  })
  const first = await dashboard.open()
  await first.clock.install()
  await openAccountWithPasskey(dashboard, first)
  await first.goto(`${dashboard.origin}/keys`)
  await first.getByRole('heading', { name: 'Keys', level: 1 }).waitFor()
  // However long the page has been open, it knows which account it shows.
  await first.clock.fastForward('06:00')
  const second = await first.context().newPage()
  await second.goto(link)
  await second.getByRole('button', { name: 'Join as Passkey' }).click()
  await atOverview(second)
  // It is loaded anew: nothing of the other account stays on it.
  await atOverview(first)
  await first.getByText('Shared account').first().waitFor()
  await createKey(first, 'Made in the shared account')
  await owner.goto(`${dashboard.origin}/keys`)
  await owner.getByText('Made in the shared account').waitFor()
})

/** `elsewhere`: what another window changes while the dialog is open. */
async function setRole(owner: Page, role: string, elsewhere: object): Promise<void> {
  await owner.getByRole('button', { name: 'Edit Grace' }).click()
  const dialog = owner.getByRole('dialog', { name: 'Grace' })
  const changed = await owner.evaluate(async (body) => {
    const { data } = (await (await fetch('/api/members')).json()) as { data: readonly { id: string; name: string }[] }
    const { id } = data.find(({ name }) => name === 'Grace')!
    const answer = await fetch(`/api/members/${id}`, {
      method: 'PATCH',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
    return answer.ok
  }, elsewhere)
  assert.ok(changed)
  await dialog.getByLabel('Role').selectOption(role)
  await dialog.getByRole('button', { name: 'Save' }).click()
  await dialog.waitFor({ state: 'detached' })
}

/** The member's limit is 2 USDC, and 1.5 of it is given to the first key. */
async function refusedKey(page: Page): Promise<void> {
  await page.getByRole('button', { name: 'Create key' }).first().click()
  const dialog = page.getByRole('dialog', { name: 'Create a key' })
  await dialog.getByLabel('Name').fill('Too much')
  await dialog.getByLabel('Limit').fill('1')
  await dialog.getByRole('button', { name: 'Create key' }).click()
  await dialog.getByText(/could spend 2.5 USDC together; the member’s limit is 2 USDC/).waitFor()
  await page.keyboard.press('Escape')
}
