import type { Role } from '../api/session.ts'

/** The parts of the settings page: the id of each, for links, its title, and the lowest role that it is for. */
export const settingsSections = [
  ['profile', 'Profile', 'viewer'],
  ['browser', 'This browser', 'viewer'],
  ['passkeys', 'Passkeys', 'viewer'],
  ['wallets', 'Wallets', 'viewer'],
  ['members', 'Members', 'viewer'],
  ['log', 'Account log', 'admin'],
  ['owner', 'Owner address', 'owner'],
  ['alerts', 'Alerts', 'admin'],
  ['webhooks', 'Webhooks', 'admin'],
  ['management-keys', 'Management keys', 'admin'],
  ['sessions', 'Sessions', 'viewer'],
  ['data', 'Your data', 'admin'],
  ['close', 'Close account', 'owner'],
] as const satisfies readonly (readonly [string, string, Role])[]
