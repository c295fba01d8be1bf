import { test } from 'node:test'
import { dashboardSuite } from './dashboard.ts'
import { signInAsDeveloper } from './person.ts'

const dashboard = dashboardSuite()

test('whoever sets an amount to be warned below is warned at the bell, and Funds says what was set', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page)
  await page.getByRole('button', { name: 'Alerts: none' }).waitFor()
  await page.getByRole('link', { name: 'Funds', exact: true }).first().click()
  await page.getByText('We warn below 3 days left.').waitFor()
  await page.getByRole('link', { name: 'Change when we warn' }).click()

  const settings = page.getByTestId('alerts-settings')
  await settings.getByLabel('Warn below').fill('30.1234567')
  await settings.getByRole('button', { name: 'Save' }).click()
  await settings.getByRole('alert').filter({ hasText: 'at most six decimals' }).waitFor()
  await settings.getByLabel('Warn below').fill('30')
  await settings.getByLabel('Warn when it lasts less than').fill('')
  await settings.getByRole('button', { name: 'Save' }).click()
  await settings.getByText('We warn below 30 USDC.').waitFor()

  await page.getByRole('button', { name: 'Alerts: 1' }).click()
  await page.getByText('25 USDC is left. We warn below 30 USDC.').waitFor()
})
