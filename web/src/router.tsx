import { useQuery } from '@tanstack/react-query'
import {
  type AnyRoute,
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Outlet,
} from '@tanstack/react-router'
import { sessionQuery } from './api/queries.ts'
import { NotFoundPage } from './pages/not-found.tsx'
import { AppShell } from './shell/app-shell.tsx'
import { PageError } from './shell/page-error.tsx'
import { PublicShell } from './shell/public-shell.tsx'

// Addresses are written plainly (`?status=failed,refused`), so that people can read, keep and send them. Each page turns its
// part of the address into its own types.
type Search = Record<string, string>

// A new route is also listed in `src/site/page-paths.ts`: the server answers 404 for every other address.
const root = createRootRoute({ component: Outlet, notFoundComponent: NotFoundPage })

const app = createRoute({ getParentRoute: () => root, id: 'app', component: AppShell })
const open = createRoute({ getParentRoute: () => root, id: 'open', component: PublicShell })

const operator = createRoute({ getParentRoute: () => root, id: 'operator', component: OperatorShell })

/** Pages for operators only: everyone else sees the not-found page. The shell says when the session could not be read. */
function OperatorShell() {
  const { data: session } = useQuery(sessionQuery)
  return session === undefined || session.operator ? <AppShell /> : <NotFoundPage />
}

/** A page of the parent at the path; `component` is loaded when it is first opened. */
const page = <Parent extends AnyRoute, Path extends string>(
  parent: Parent,
  path: Path,
  component: ReturnType<typeof lazyRouteComponent>,
) => createRoute({ getParentRoute: () => parent, path, component })

const requests = page(
  app,
  '/requests',
  lazyRouteComponent(() => import('./pages/requests/requests-page.tsx'), 'RequestsPage'),
)

const routeTree = root.addChildren([
  app.addChildren([
    requests.addChildren([
      page(
        requests,
        '$id',
        lazyRouteComponent(() => import('./pages/requests/request-drawer.tsx'), 'RequestDrawer'),
      ),
    ]),
    page(
      app,
      '/',
      lazyRouteComponent(() => import('./pages/overview/overview-page.tsx'), 'OverviewPage'),
    ),
    page(
      app,
      '/usage',
      lazyRouteComponent(() => import('./pages/usage/usage-page.tsx'), 'UsagePage'),
    ),
    page(
      app,
      '/keys',
      lazyRouteComponent(() => import('./pages/keys/keys-page.tsx'), 'KeysPage'),
    ),
    page(
      app,
      '/keys/$id',
      lazyRouteComponent(() => import('./pages/keys/key-page.tsx'), 'KeyPage'),
    ),
    page(
      app,
      '/device',
      lazyRouteComponent(() => import('./pages/device/device-page.tsx'), 'DevicePage'),
    ),
    page(
      app,
      '/funds',
      lazyRouteComponent(() => import('./pages/funds/funds-page.tsx'), 'FundsPage'),
    ),
    page(
      app,
      '/funds/statement',
      lazyRouteComponent(() => import('./pages/funds/statement-page.tsx'), 'StatementPage'),
    ),
    page(
      app,
      '/playground',
      lazyRouteComponent(() => import('./pages/playground/playground-page.tsx'), 'PlaygroundPage'),
    ),
    page(
      app,
      '/models',
      lazyRouteComponent(() => import('./pages/models/models-page.tsx'), 'ModelsPage'),
    ),
    page(
      app,
      '/settings',
      lazyRouteComponent(() => import('./pages/settings/settings-page.tsx'), 'SettingsPage'),
    ),
  ]),
  operator.addChildren([
    page(
      operator,
      '/operator',
      lazyRouteComponent(() => import('./pages/operator/health-page.tsx'), 'HealthPage'),
    ),
    page(
      operator,
      '/operator/accounts',
      lazyRouteComponent(() => import('./pages/operator/accounts-page.tsx'), 'AccountsPage'),
    ),
    page(
      operator,
      '/operator/revenue',
      lazyRouteComponent(() => import('./pages/operator/revenue-page.tsx'), 'RevenuePage'),
    ),
  ]),
  open.addChildren([
    page(
      open,
      '/login',
      lazyRouteComponent(() => import('./pages/sign-in/sign-in-page.tsx'), 'SignInPage'),
    ),
    page(
      open,
      '/r/$id',
      lazyRouteComponent(() => import('./pages/receipt/receipt-page.tsx'), 'ReceiptPage'),
    ),
    page(
      open,
      '/status',
      lazyRouteComponent(() => import('./pages/status/status-page.tsx'), 'StatusPage'),
    ),
  ]),
])

export function createAppRouter() {
  return createRouter({
    routeTree,
    defaultPreload: 'intent',
    defaultErrorComponent: PageError,
    parseSearch: (text): Search => Object.fromEntries(new URLSearchParams(text)),
    stringifySearch: (search) => {
      const kept = Object.entries(search).filter(([, value]) => value !== undefined && value !== '')
      const text = new URLSearchParams(kept as [string, string][]).toString()
      // Commas and colons are plain enough to be read as they are.
      return text === '' ? '' : `?${text.replaceAll('%2C', ',').replaceAll('%3A', ':')}`
    },
  })
}
