/** The parts of the settings page: the id of each, for links, and its title. */
export const settingsSections = [
  ['profile', 'Profile'],
  ['browser', 'This browser'],
  ['passkeys', 'Passkeys'],
  ['wallets', 'Wallets'],
  ['owner', 'Owner address'],
  ['alerts', 'Low balance'],
  ['webhooks', 'Webhooks'],
  ['sessions', 'Sessions'],
  ['data', 'Your data'],
  ['close', 'Close account'],
] as const
