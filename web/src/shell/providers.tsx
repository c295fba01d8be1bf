import { MutationCache, QueryCache, QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { createContext, type ReactNode, Suspense, useContext, useEffect, useState } from 'react'
import { ApiError, isShown, shownAccount } from '../api/call.ts'
import { setSession } from '../api/queries.ts'
import type { Session } from '../api/shapes.ts'
import { Announcer } from '../ui/announce.tsx'
import { lazyDialog } from '../ui/lazy-dialog.tsx'

const loadSignInAgain = () => import('../pages/sign-in/sign-in-again.tsx').then((module) => module.SignInAgain)
const SignInAgain = lazyDialog(loadSignInAgain)

type Prompt = { readonly reason: 'expired' | 'recent'; readonly onDone?: (() => void) | undefined }

const SignInContext = createContext<(prompt: Prompt) => void>(() => {})

/** Opens a sign-in dialog over the page. Form input stays; `onDone` continues the action. */
export function useAskSignIn(): (prompt: Prompt) => void {
  return useContext(SignInContext)
}

export function Providers({ children }: { children: ReactNode }) {
  const [prompt, setPrompt] = useState<Prompt>()
  const [client] = useState(() => createQueryClient(() => setPrompt((open) => open ?? { reason: 'expired' })))
  // Loaded early: an update of the service may have removed its file by the time it is needed, and a reload would lose form input.
  useEffect(() => void loadSignInAgain().catch(() => {}), [])
  const done = (session: Session) => {
    // Another account's or person's pages, and a half-finished payment of theirs, are nothing to go on with.
    if (!isShown(session)) return window.location.assign('/')
    setPrompt(undefined)
    void setSession(client, session).then(() => client.invalidateQueries())
    prompt?.onDone?.()
  }
  return (
    <QueryClientProvider client={client}>
      <Announcer>
        <SignInContext value={setPrompt}>
          {children}
          {prompt !== undefined && (
            <Suspense>
              <SignInAgain reason={prompt.reason} onDone={done} onClose={() => setPrompt(undefined)} />
            </Suspense>
          )}
        </SignInContext>
      </Announcer>
    </QueryClientProvider>
  )
}

const retriesMax = 2

function createQueryClient(onExpired: () => void): QueryClient {
  // By its code: a refused wallet or passkey is 401 too, and the session goes on.
  const notice = (error: unknown) => {
    const isExpired = error instanceof ApiError && error.code === 'session_required'
    if (isExpired && shownAccount() !== undefined) onExpired()
  }
  const client = new QueryClient({
    queryCache: new QueryCache({ onError: notice }),
    mutationCache: new MutationCache({ onError: notice }),
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
