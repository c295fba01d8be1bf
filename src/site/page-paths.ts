/**
 * The addresses of the dashboard. `test/browser/routes.test.ts` compares them with the routes of its router. All other paths get a 404.
 */
export const pagePaths = [
  '/',
  '/login',
  '/requests',
  '/requests/$id',
  '/usage',
  '/keys',
  '/keys/$id',
  '/device',
  '/funds',
  '/funds/statement',
  '/playground',
  '/models',
  '/settings',
  '/operator',
  '/operator/accounts',
  '/operator/revenue',
  '/r/$id',
  '/status',
] as const

const pattern = new RegExp(`^(?:${pagePaths.map((path) => path.replace(/\$\w+/g, '[^/]+')).join('|')})$`)

export function isPagePath(path: string): boolean {
  return pattern.test(path === '/' ? path : path.replace(/\/$/, ''))
}

/** Pages that only operators can open. */
export function isOperatorPath(path: string): boolean {
  return /^\/operator(\/|$)/.test(path)
}
