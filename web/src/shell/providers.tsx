import { MutationCache, QueryCache, QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { createContext, type ReactNode, Suspense, useCallback, useContext, useEffect, useState } from 'react'
import { ApiError, isShown, shownAccount } from '../api/call.ts'
import { sessionQuery, setSession } from '../api/queries.ts'
import type { Session } from '../api/shapes.ts'
import { Announcer } from '../ui/announce.tsx'
import { lazyDialog } from '../ui/lazy-dialog.tsx'

const loadSignInAgain = () => import('../pages/sign-in/sign-in-again.tsx').then((module) => module.SignInAgain)
const SignInAgain = lazyDialog(loadSignInAgain)

type Prompt = { readonly reason: 'expired' | 'recent'; readonly onDone?: (() => void) | undefined }

/** `isSignedOut`: the session of the account that this page shows has ended. */
type State = { readonly prompt: Prompt | undefined; readonly isSignedOut: boolean }

const SignedOutContext = createContext(false)

/** Whether the session of this page's account has ended. Then the page is no longer updated. */
export function useIsSignedOut(): boolean {
  return useContext(SignedOutContext)
}

const SignInContext = createContext<(prompt: Prompt) => void>(() => {})

/** Opens a sign-in dialog over the page. Form input stays; `onDone` continues the action. */
export function useAskSignIn(): (prompt: Prompt) => void {
  return useContext(SignInContext)
}

export function Providers({ children }: { children: ReactNode }) {
  const [{ prompt, isSignedOut }, setState] = useState<State>({ prompt: undefined, isSignedOut: false })
  const setPrompt = useCallback((next?: Prompt) => setState((state) => ({ ...state, prompt: next })), [])
  const [client] = useState(() =>
    createQueryClient((isChange) =>
      setState((state) => ({
        // Polls of an open page are refused each time. Once the prompt was closed, only a change opens it again.
        prompt: state.prompt ?? (isChange || !state.isSignedOut ? { reason: 'expired' } : undefined),
        isSignedOut: true,
      })),
    ),
  )
  // Also after a sign-in in another window, once this window has fetched its session.
  useEffect(() => onSession(client, () => setState((state) => ({ ...state, isSignedOut: false }))), [client])
  // Loaded early: an update of the service may have removed its file by the time it is needed, and a reload would lose form input.
  useEffect(() => void loadSignInAgain().catch(() => {}), [])
  const done = (session: Session) => {
    // Clear caches and pending payments when account or person changes.
    if (!isShown(session)) return window.location.assign('/')
    setPrompt()
    void setSession(client, session).then(() => client.invalidateQueries())
    prompt?.onDone?.()
  }
  return (
    <QueryClientProvider client={client}>
      <Announcer>
        <SignInContext value={setPrompt}>
          <SignedOutContext value={isSignedOut}>{children}</SignedOutContext>
          {prompt !== undefined && (
            <Suspense>
              <SignInAgain reason={prompt.reason} onDone={done} onClose={() => setPrompt()} />
            </Suspense>
          )}
        </SignInContext>
      </Announcer>
    </QueryClientProvider>
  )
}

const retriesMax = 2

function createQueryClient(onExpired: (isChange: boolean) => void): QueryClient {
  // By its code: a refused wallet or passkey is 401 too, and the session goes on.
  const notice = (isChange: boolean) => (error: unknown) => {
    const isExpired = error instanceof ApiError && error.code === 'session_required'
    if (isExpired && shownAccount() !== undefined) onExpired(isChange)
  }
  const client = new QueryClient({
    queryCache: new QueryCache({ onError: notice(false) }),
    mutationCache: new MutationCache({ onError: notice(true) }),
    defaultOptions: {
      queries: {
        staleTime: 2_000,
        // Retry only network errors and server errors, not refusals.
        retry: (failures, error) => failures < retriesMax && !(error instanceof ApiError && error.status < 500),
      },
    },
  })
  return client
}

/** Calls the listener whenever a session was read or set. */
function onSession(client: QueryClient, listener: () => void): () => void {
  return client.getQueryCache().subscribe((event) => {
    const isSession = event.query.queryKey[0] === sessionQuery.queryKey[0]
    if (isSession && event.type === 'updated' && event.action.type === 'success') listener()
  })
}
