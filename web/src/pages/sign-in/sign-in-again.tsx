import { useQuery } from '@tanstack/react-query'
import { sessionQuery } from '../../api/queries.ts'
import type { Session } from '../../api/shapes.ts'
import { Dialog } from '../../ui/dialog.tsx'
import { WaysIn } from './sign-in.tsx'

const words = {
  expired: ['Your session has ended', 'Sign in again to continue. Your input is kept.'],
  recent: ['Confirm it is you', 'Please sign in again: this moves money or changes account access.'],
} as const

/** A dialog over the page: form input is not lost. */
export function SignInAgain({
  reason,
  onDone,
  onClose,
}: {
  reason: 'expired' | 'recent'
  onDone: (session: Session) => void
  onClose: () => void
}) {
  const { data: session } = useQuery(sessionQuery)
  const [title, text] = words[reason]
  return (
    <Dialog title={title} onClose={onClose} testId="sign-in-again">
      <p className="mb-4 text-muted">{text}</p>
      {session !== undefined && <WaysIn session={session} again onSignedIn={onDone} />}
    </Dialog>
  )
}
