import { useMutation, useQueryClient } from '@tanstack/react-query'
import { ApiError } from '../api/call.ts'
import { useAnnounce } from '../ui/announce.tsx'
import { useAskSignIn } from './providers.tsx'

/** The queries that a change may make out of date. */
const changed = [
  'session',
  'sessions',
  'overview',
  'alerts',
  'keys',
  'members',
  'invitations',
  'management-keys',
  'webhooks',
  'account-log',
  'balance',
  'withdrawals',
]

/**
 * Makes a change to the account and announces `said`; leave it out when a dialog says it. If the change needs a recent sign-in, opens the sign-in and then
 * continues.
 */
export function useChange<Input = void, Made = unknown>(
  change: (input: Input) => Promise<Made>,
  said?: string | ((made: Made) => string),
) {
  const client = useQueryClient()
  const announce = useAnnounce()
  const askSignIn = useAskSignIn()
  const mutation = useMutation({
    mutationFn: change,
    onSuccess: (made) => {
      if (said !== undefined) announce(typeof said === 'string' ? said : said(made))
    },
    onError: (error, input) => {
      if (error instanceof ApiError && error.code === 'recent_sign_in_required')
        askSignIn({ reason: 'recent', onDone: () => mutation.mutate(input) })
    },
    // Also after an error: the answer may have been lost after the change was made.
    onSettled: () => {
      for (const name of changed) void client.invalidateQueries({ queryKey: [name] })
    },
  })
  return mutation
}
