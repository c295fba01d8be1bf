import { useQueryClient } from '@tanstack/react-query'
import { useEffect, useMemo, useSyncExternalStore } from 'react'
import { ConversationStore, type PlaygroundState, type Storage } from './conversation-store.ts'
import { signedOut } from './kept-conversations.ts'

/** The conversation of this tab. It is outside the query cache, so that answers continue while another page is open. */
export function useConversation(
  accountId: string,
  defaults: { readonly model: string; readonly keyId: string },
): { readonly store: ConversationStore; readonly state: PlaygroundState } {
  const client = useQueryClient()
  const { model, keyId } = defaults
  const store = useMemo(() => {
    const queryKey = ['playground', accountId]
    const known = client.getQueryData<ConversationStore>(queryKey)
    if (known !== undefined) return known
    const made = new ConversationStore(tabStorage(), accountId, { model, keyId })
    client.setQueryDefaults(queryKey, { gcTime: Number.POSITIVE_INFINITY })
    client.setQueryData(queryKey, made)
    window.addEventListener('pagehide', () => made.save())
    window.addEventListener(signedOut, () => made.close(), { once: true })
    return made
  }, [accountId, client, keyId, model])
  useEffect(() => () => store.save(), [store])
  return { store, state: useSyncExternalStore(store.subscribe, store.snapshot) }
}

/** Some browsers forbid storage: the conversation then lasts until the page is reloaded. */
function tabStorage(): Storage {
  try {
    return sessionStorage
  } catch {
    return { getItem: () => null, setItem: () => {}, removeItem: () => {} }
  }
}
