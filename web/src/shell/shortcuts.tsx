import { useNavigate } from '@tanstack/react-router'
import { useEffect, useRef } from 'react'
import { Dialog } from '../ui/dialog.tsx'
import { places } from './navigation.ts'
import { useShortcutsEnabled } from './preferences.ts'

type Actions = { readonly onPalette: () => void; readonly onHelp: () => void }

const sequenceMs = 1_200

/** ⌘K always; single keys only when they are on, and never while the user types. */
export function useShortcuts({ onPalette, onHelp }: Actions): void {
  const navigate = useNavigate()
  const [enabled] = useShortcutsEnabled()
  const started = useRef(0)
  useEffect(() => {
    const listen = (event: KeyboardEvent) => {
      if (event.key.toLowerCase() === 'k' && (event.metaKey || event.ctrlKey)) {
        event.preventDefault()
        onPalette()
        return
      }
      if (!enabled || event.metaKey || event.ctrlKey || event.altKey || isBusy(event.target)) return
      if (event.key === '?') onHelp()
      const going = Date.now() - started.current < sequenceMs
      started.current = event.key === 'g' && !going ? Date.now() : 0
      const place = going ? places.find(({ key }) => key === event.key) : undefined
      if (place !== undefined) void navigate({ to: place.to })
    }
    window.addEventListener('keydown', listen)
    return () => window.removeEventListener('keydown', listen)
  }, [enabled, navigate, onHelp, onPalette])
}

/** Shortcuts are off while a field has the focus or a dialog is open. */
export function isBusy(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false
  return target.closest('input, textarea, select, [contenteditable], dialog') !== null
}

const other: readonly (readonly [string, string])[] = [
  ['⌘K or Ctrl K', 'Search or run a command'],
  ['?', 'Show this list'],
  ['j, k', 'Requests: next row, previous row'],
  ['Enter', 'Requests: open the row'],
  ['Ctrl or ⌘ Enter', 'Playground: send'],
  ['Esc', 'Close the open panel, or stop the answer'],
]

export function ShortcutsDialog({ onClose }: { onClose: () => void }) {
  const rows = [...other, ...places.map(({ key, label }) => [`g ${key}`, `Go to ${label}`] as const)]
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose}>
      <dl className="grid grid-cols-[max-content_1fr] gap-x-6 gap-y-2">
        {rows.map(([keys, meaning]) => (
          <div key={keys} className="contents">
            <dt>
              <kbd className="num rounded-sm border border-rule bg-sunken px-1.5 py-0.5 text-sm">{keys}</kbd>
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
      <p className="mt-4 text-sm text-muted">You can turn off single-key shortcuts in Settings.</p>
    </Dialog>
  )
}
