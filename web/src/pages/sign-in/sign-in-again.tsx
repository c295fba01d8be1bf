import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { sessionQuery } from '../../api/queries.ts'
import type { Session } from '../../api/shapes.ts'
import { Dialog } from '../../ui/dialog.tsx'
import { Notice } from '../../ui/panel.tsx'
import { WaysIn } from './sign-in.tsx'
import { waysToConfirm } from './ways.ts'

const words = {
  expired: ['Your session has ended', 'Sign in again to continue. Your input is kept.'],
  recent: ['Confirm it is you', 'Please sign in again: this moves money or changes account access.'],
} as const

type SignInAgainProps = { reason: 'expired' | 'recent'; onDone: (session: Session) => void; onClose: () => void }

/** A dialog over the page: form input is not lost. The service refuses the sign-in of another person. */
export function SignInAgain({ reason, onDone, onClose }: SignInAgainProps) {
  const { data: session } = useQuery(sessionQuery)
  const [title, text] = words[reason]
  const ways = session && waysToConfirm(session)
  return (
    <Dialog title={title} onClose={onClose} testId="sign-in-again">
      <p className="mb-4 text-muted">{text}</p>
      {ways !== undefined && Object.values(ways).includes(true) && (
        <WaysIn session={session!} ways={ways} onSignedIn={onDone} />
      )}
      {ways !== undefined && !Object.values(ways).includes(true) && (
        <Notice>
          You signed in with a link, and have no wallet or passkey to confirm with. Ask the operator for a new link,
          open it, and add a passkey in <Link to="/settings">Settings</Link> within 15 minutes.
        </Notice>
      )}
    </Dialog>
  )
}
