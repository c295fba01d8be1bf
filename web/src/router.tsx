import { useQuery } from '@tanstack/react-query'
import {
  type AnyRoute,
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Outlet,
} from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { sessionQuery } from './api/queries.ts'
import { NotFoundPage } from './pages/not-found.tsx'
import { AppShell } from './shell/app-shell.tsx'
import { PublicShell } from './shell/public-shell.tsx'
import { Button } from './ui/button.tsx'
import { Notice } from './ui/panel.tsx'

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

type Load = () => Promise<Record<string, () => ReactNode>>

/** The page at a path below the parent: what the file exports by this name, loaded when it is first opened. */
const page = <Parent extends AnyRoute, Path extends string, Name extends string>(
  parent: Parent,
  path: Path,
  load: () => Promise<Readonly<Record<Name, () => ReactNode>>>,
  name: Name,
) => createRoute({ getParentRoute: () => parent, path, component: lazyRouteComponent(load as Load, name as string) })

const requests = page(app, '/requests', () => import('./pages/requests/requests-page.tsx'), 'RequestsPage')

const routeTree = root.addChildren([
  app.addChildren([
    requests.addChildren([page(requests, '$id', () => import('./pages/requests/request-drawer.tsx'), 'RequestDrawer')]),
    page(app, '/', () => import('./pages/overview/overview-page.tsx'), 'OverviewPage'),
    page(app, '/usage', () => import('./pages/usage/usage-page.tsx'), 'UsagePage'),
    page(app, '/keys', () => import('./pages/keys/keys-page.tsx'), 'KeysPage'),
    page(app, '/keys/$id', () => import('./pages/keys/key-page.tsx'), 'KeyPage'),
    page(app, '/device', () => import('./pages/device/device-page.tsx'), 'DevicePage'),
    page(app, '/funds', () => import('./pages/funds/funds-page.tsx'), 'FundsPage'),
    page(app, '/funds/statement', () => import('./pages/funds/statement-page.tsx'), 'StatementPage'),
    page(app, '/playground', () => import('./pages/playground/playground-page.tsx'), 'PlaygroundPage'),
    page(app, '/models', () => import('./pages/models/models-page.tsx'), 'ModelsPage'),
    page(app, '/settings', () => import('./pages/settings/settings-page.tsx'), 'SettingsPage'),
  ]),
  operator.addChildren([
    page(operator, '/operator', () => import('./pages/operator/health-page.tsx'), 'HealthPage'),
    page(operator, '/operator/accounts', () => import('./pages/operator/accounts-page.tsx'), 'AccountsPage'),
    page(operator, '/operator/revenue', () => import('./pages/operator/revenue-page.tsx'), 'RevenuePage'),
  ]),
  open.addChildren([
    page(open, '/login', () => import('./pages/sign-in/sign-in-page.tsx'), 'SignInPage'),
    page(open, '/r/$id', () => import('./pages/receipt/receipt-page.tsx'), 'ReceiptPage'),
    page(open, '/status', () => import('./pages/status/status-page.tsx'), 'StatusPage'),
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

/** In place of a page that could not be loaded or drawn. */
function PageError({ error }: { error: unknown }) {
  return (
    <div className="mx-auto max-w-lg p-6">
      <Notice tone="error" role="alert">
        <p className="font-medium">This page could not be shown.</p>
        <p className="mt-1">
          The service cannot be reached, it was updated while this page was open, or the page has a fault.
        </p>
        <p className="num mt-1 text-sm wrap-anywhere text-muted">
          {error instanceof Error ? error.message : String(error)}
        </p>
        <Button small className="mt-2" onClick={() => window.location.reload()}>
          Reload the page
        </Button>
      </Notice>
    </div>
  )
}
