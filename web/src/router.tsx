import { useQuery } from '@tanstack/react-query'
import { createRootRoute, createRoute, createRouter, lazyRouteComponent, Outlet } from '@tanstack/react-router'
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

const requests = createRoute({
  getParentRoute: () => app,
  path: '/requests',
  component: lazyRouteComponent(() => import('./pages/requests/requests-page.tsx'), 'RequestsPage'),
})

const routeTree = root.addChildren([
  app.addChildren([
    createRoute({
      getParentRoute: () => app,
      path: '/',
      component: lazyRouteComponent(() => import('./pages/overview/overview-page.tsx'), 'OverviewPage'),
    }),
    requests.addChildren([
      createRoute({
        getParentRoute: () => requests,
        path: '$id',
        component: lazyRouteComponent(() => import('./pages/requests/request-drawer.tsx'), 'RequestDrawer'),
      }),
    ]),
    createRoute({
      getParentRoute: () => app,
      path: '/usage',
      component: lazyRouteComponent(() => import('./pages/usage/usage-page.tsx'), 'UsagePage'),
    }),
    createRoute({
      getParentRoute: () => app,
      path: '/keys',
      component: lazyRouteComponent(() => import('./pages/keys/keys-page.tsx'), 'KeysPage'),
    }),
    createRoute({
      getParentRoute: () => app,
      path: '/keys/$id',
      component: lazyRouteComponent(() => import('./pages/keys/key-page.tsx'), 'KeyPage'),
    }),
    createRoute({
      getParentRoute: () => app,
      path: '/device',
      component: lazyRouteComponent(() => import('./pages/device/device-page.tsx'), 'DevicePage'),
    }),
    createRoute({
      getParentRoute: () => app,
      path: '/funds',
      component: lazyRouteComponent(() => import('./pages/funds/funds-page.tsx'), 'FundsPage'),
    }),
    createRoute({
      getParentRoute: () => app,
      path: '/funds/statement',
      component: lazyRouteComponent(() => import('./pages/funds/statement-page.tsx'), 'StatementPage'),
    }),
    createRoute({
      getParentRoute: () => app,
      path: '/playground',
      component: lazyRouteComponent(() => import('./pages/playground/playground-page.tsx'), 'PlaygroundPage'),
    }),
    createRoute({
      getParentRoute: () => app,
      path: '/models',
      component: lazyRouteComponent(() => import('./pages/models/models-page.tsx'), 'ModelsPage'),
    }),
    createRoute({
      getParentRoute: () => app,
      path: '/settings',
      component: lazyRouteComponent(() => import('./pages/settings/settings-page.tsx'), 'SettingsPage'),
    }),
  ]),
  operator.addChildren([
    createRoute({
      getParentRoute: () => operator,
      path: '/operator',
      component: lazyRouteComponent(() => import('./pages/operator/health-page.tsx'), 'HealthPage'),
    }),
    createRoute({
      getParentRoute: () => operator,
      path: '/operator/accounts',
      component: lazyRouteComponent(() => import('./pages/operator/accounts-page.tsx'), 'AccountsPage'),
    }),
    createRoute({
      getParentRoute: () => operator,
      path: '/operator/revenue',
      component: lazyRouteComponent(() => import('./pages/operator/revenue-page.tsx'), 'RevenuePage'),
    }),
  ]),
  open.addChildren([
    createRoute({
      getParentRoute: () => open,
      path: '/login',
      component: lazyRouteComponent(() => import('./pages/sign-in/sign-in-page.tsx'), 'SignInPage'),
    }),
    createRoute({
      getParentRoute: () => open,
      path: '/r/$id',
      component: lazyRouteComponent(() => import('./pages/receipt/receipt-page.tsx'), 'ReceiptPage'),
    }),
    createRoute({
      getParentRoute: () => open,
      path: '/status',
      component: lazyRouteComponent(() => import('./pages/status/status-page.tsx'), 'StatusPage'),
    }),
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
