import { type ReactNode, useEffect, useState } from 'react'
import { useAnnounce } from './announce.tsx'
import { Button, IconButton } from './button.tsx'
import { classNames } from './class-names.ts'

/** Long enough to be read. */
const outcomeMs = { copied: 1_600, blocked: 6_000 } as const
const blockedWords = 'Copying was blocked: select the text'

/** Copies the whole text, also where it is shown shortened, and reports success or that the browser blocked it. */
export function useCopy(text: string, onCopied?: () => void) {
  const announce = useAnnounce()
  const [outcome, setOutcome] = useState<'copied' | 'blocked'>()
  useEffect(() => {
    if (outcome === undefined) return
    const timer = setTimeout(() => setOutcome(undefined), outcomeMs[outcome])
    return () => clearTimeout(timer)
  }, [outcome])
  const copy = () => {
    void writeClipboard(text).then((done) => {
      setOutcome(done ? 'copied' : 'blocked')
      announce(done ? 'Copied' : 'The browser blocked copying. Select the text and copy it.')
      if (done) onCopied?.()
    })
  }
  return { copied: outcome === 'copied', blocked: outcome === 'blocked', copy }
}

async function writeClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    return false
  }
}

export function CopyIconButton({ text, label }: { text: string; label: string }) {
  const { copied, blocked, copy } = useCopy(text)
  const icon = copied ? 'check' : blocked ? 'warning' : 'copy'
  return <IconButton icon={icon} label={blocked ? blockedWords : label} onClick={copy} className="-my-1 size-7" />
}

type CopyButtonProps = {
  text: string
  children?: ReactNode
  onCopied?: () => void
  variant?: 'primary' | 'secondary' | 'quiet'
  small?: boolean
}

export function CopyButton({ text, children = 'Copy', onCopied, variant, small }: CopyButtonProps) {
  const { copied, blocked, copy } = useCopy(text, onCopied)
  const icon = copied ? 'check' : blocked ? 'warning' : 'copy'
  return (
    <Button icon={icon} onClick={copy} variant={variant} small={small}>
      {copied ? 'Copied' : blocked ? 'Copying was blocked' : children}
    </Button>
  )
}

/** An id or an address: shortened where there is no room, copied in full. */
export function CopyableId({ id, label, short }: { id: string; label: string; short?: boolean }) {
  return (
    <span className="inline-flex min-w-0 items-center gap-1">
      <code className={classNames('num truncate', short && 'max-w-48')} title={id}>
        {short ? shorten(id) : id}
      </code>
      <CopyIconButton text={id} label={`Copy ${label}`} />
    </span>
  )
}

/** The first and the last characters: enough to compare two, never enough to type one. */
export function shorten(id: string, head = 10, tail = 6): string {
  return id.length <= head + tail + 1 ? id : `${id.slice(0, head)}…${id.slice(-tail)}`
}
