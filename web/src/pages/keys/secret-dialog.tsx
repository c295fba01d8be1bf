import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { sessionQuery } from '../../api/queries.ts'
import type { KeyWithSecret } from '../../api/shapes.ts'
import { firstCall } from '../../snippets/code.ts'
import { SnippetTabs } from '../../snippets/snippet-tabs.tsx'
import { Button } from '../../ui/button.tsx'
import { CopyButton } from '../../ui/copy.tsx'
import { download } from '../../ui/csv.ts'
import { Dialog } from '../../ui/dialog.tsx'
import { Notice } from '../../ui/panel.tsx'

/** A key that was created or rotated. The page keeps it until its secret was seen: dialogs and rows come and go. */
export type IssuedKey = { readonly title: 'Key created' | 'Key rotated'; readonly apiKey: KeyWithSecret }

/** The one time that a secret is seen. */
export function SecretDialog({ issued: { title, apiKey }, onClose }: { issued: IssuedKey; onClose: () => void }) {
  const { data: session } = useQuery(sessionQuery)
  const [kept, setKept] = useState(false)
  const [asked, setAsked] = useState(false)
  const close = () => {
    if (kept || asked) onClose()
    else setAsked(true)
  }
  const downloadEnv = () => {
    const baseUrl = session?.base_url ?? `${window.location.origin}/v1`
    download('.env', 'text/plain', `OPENAI_BASE_URL=${baseUrl}\nOPENAI_API_KEY=${apiKey.secret}\n`)
    setKept(true)
  }
  return (
    <Dialog
      wide
      title={title}
      onClose={close}
      footer={
        <Button variant={kept ? 'primary' : 'secondary'} onClick={close}>
          {asked && !kept ? 'Close without copying' : 'Done'}
        </Button>
      }
    >
      <div className="flex flex-col gap-4" data-testid="secret-once">
        <p>
          This is the secret of <strong className="font-medium">{apiKey.name}</strong>. Copy it now: we store only a
          hash and cannot show it again.
        </p>
        <output className="num block rounded-md border border-edge bg-sunken p-3 break-all" data-testid="secret">
          {apiKey.secret}
        </output>
        <div className="flex flex-wrap gap-2">
          <CopyButton text={apiKey.secret} variant="primary" onCopied={() => setKept(true)}>
            Copy key
          </CopyButton>
          <Button icon="download" onClick={downloadEnv}>
            Download .env
          </Button>
        </div>
        {asked && !kept && (
          <Notice tone="held" role="alert">
            You have not copied this key. It cannot be shown again after you close this window; you would have to rotate
            the key to get a new secret.
          </Notice>
        )}
        {session !== undefined && <SnippetTabs call={firstCall(session, apiKey.secret)} />}
      </div>
    </Dialog>
  )
}
