import { useQuery } from '@tanstack/react-query'
import { sessionQuery } from '../../api/queries.ts'
import type { KeyWithSecret } from '../../api/shapes.ts'
import { firstCall } from '../../snippets/code.ts'
import { SnippetTabs } from '../../snippets/snippet-tabs.tsx'
import { Button } from '../../ui/button.tsx'
import { download } from '../../ui/csv.ts'
import { ShownOnceDialog } from '../../ui/shown-once-dialog.tsx'

/** A key that was created or rotated. The page keeps it until its secret was seen: dialogs and rows come and go. */
export type IssuedKey = { readonly title: 'Key created' | 'Key rotated'; readonly apiKey: KeyWithSecret }

/** The one time that a secret is seen. */
export function SecretDialog({ issued: { title, apiKey }, onClose }: { issued: IssuedKey; onClose: () => void }) {
  const { data: session } = useQuery(sessionQuery)
  const downloadEnv = () => {
    const baseUrl = session?.base_url ?? `${window.location.origin}/v1`
    download('.env', 'text/plain', `OPENAI_BASE_URL=${baseUrl}\nOPENAI_API_KEY=${apiKey.secret}\n`)
  }
  return (
    <ShownOnceDialog
      wide
      title={title}
      lead={
        <>
          This is the secret of <strong className="font-medium">{apiKey.name}</strong>. Copy it now: we store only a
          hash and cannot show it again.
        </>
      }
      value={apiKey.secret}
      copyLabel="Copy key"
      whenLost="You would have to rotate the key to get a new secret."
      otherWay={(onKept) => (
        <Button
          icon="download"
          onClick={() => {
            downloadEnv()
            onKept()
          }}
        >
          Download .env
        </Button>
      )}
      onClose={onClose}
    >
      {session !== undefined && <SnippetTabs call={firstCall(session, apiKey.secret)} />}
    </ShownOnceDialog>
  )
}
