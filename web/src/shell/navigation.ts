import type { IconName } from '../ui/icon.tsx'

/** The places of the dashboard, in the order of the rail. */
export const places = [
  { to: '/', label: 'Overview', icon: 'overview', key: 'o' },
  { to: '/requests', label: 'Requests', icon: 'requests', key: 'r' },
  { to: '/usage', label: 'Usage', icon: 'usage', key: 'u' },
  { to: '/keys', label: 'Keys', icon: 'keys', key: 'k' },
  { to: '/funds', label: 'Funds', icon: 'funds', key: 'f' },
  { to: '/playground', label: 'Playground', icon: 'playground', key: 'p' },
  { to: '/models', label: 'Models', icon: 'models', key: 'm' },
  { to: '/settings', label: 'Settings', icon: 'settings', key: 's' },
] as const satisfies readonly Place[]

export type Place = { readonly to: string; readonly label: string; readonly icon: IconName; readonly key: string }

/** Shown to an operator alone. */
export const operatorPlace = { to: '/operator', label: 'Operator', icon: 'operator' } as const satisfies Omit<
  Place,
  'key'
>

/** A narrow screen has room for four entries; the others are in a menu behind the fifth. */
export const narrowPlaces = ['/', '/requests', '/keys', '/funds'] as const
