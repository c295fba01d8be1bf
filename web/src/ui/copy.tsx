import { type ReactNode, useEffect, useState } from 'react'
import { useAnnounce } from './announce.tsx'
import { Button, IconButton } from './button.tsx'
import { classNames } from './class-names.ts'

const copiedMs = 1600

/** Copies the whole text, however short it is shown, and says so. */
export function useCopy(text: string, onCopied?: () => void): { copied: boolean; copy: () => void } {
  const announce = useAnnounce()
  const [copied, setCopied] = useState(false)
  useEffect(() => {
    if (!copied) return
    const timer = setTimeout(() => setCopied(false), copiedMs)
    return () => clearTimeout(timer)
  }, [copied])
  const copy = () => {
    void writeClipboard(text).then((done) => {
      setCopied(done)
      announce(done ? 'Copied' : 'The browser blocked copying. Select the text and copy it.')
      if (done) onCopied?.()
    })
  }
  return { copied, copy }
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
  const { copied, copy } = useCopy(text)
  return <IconButton icon={copied ? 'check' : 'copy'} label={label} onClick={copy} className="-my-1 size-7" />
}

export function CopyButton({
  text,
  children = 'Copy',
  onCopied,
  variant,
  small,
}: {
  text: string
  children?: ReactNode
  onCopied?: () => void
  variant?: 'primary' | 'secondary' | 'quiet'
  small?: boolean
}) {
  const { copied, copy } = useCopy(text, onCopied)
  return (
    <Button icon={copied ? 'check' : 'copy'} onClick={copy} variant={variant} small={small}>
      {copied ? 'Copied' : children}
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
