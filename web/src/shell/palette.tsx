import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { type KeyboardEvent, useDeferredValue, useId, useLayoutEffect, useMemo, useRef, useState } from 'react'
import { docsSearchQuery, keysQuery, modelsQuery } from '../api/queries.ts'
import { useX402Wallet } from '../api/session.ts'
import { classNames } from '../ui/class-names.ts'
import { Icon, type IconName } from '../ui/icon.tsx'
import { useSystemIsDark } from '../ui/media.ts'
import { places } from './navigation.ts'
import { useTheme } from './preferences.ts'
import { settingsSections } from './settings-sections.ts'

const docsMax = 6

type Choice = { readonly id: string; readonly label: string; readonly icon: IconName; readonly run: () => void }

const choicesMax = 24

/** Finds pages, keys, models, settings, actions and documentation by name, and a request by its pasted id. */
export function Palette({ onClose }: { onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null)
  const [text, setText] = useState('')
  const [at, setAt] = useState(0)
  const listId = useId()
  const { choices, isSearching } = useChoices(text)
  const chosen = choices[Math.min(at, choices.length - 1)]

  // A layout effect, as in `ui/dialog.tsx`: the browser restores the focus.
  useLayoutEffect(() => {
    const element = dialog.current!
    if (!element.open) element.showModal()
    return () => element.close()
  }, [])

  const run = (choice: Choice | undefined) => {
    if (choice === undefined) return
    onClose()
    choice.run()
  }
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (step !== undefined && choices.length > 0) {
      event.preventDefault()
      const next = (Math.min(at, choices.length - 1) + step + choices.length) % choices.length
      setAt(next)
      document.getElementById(`${listId}-${choices[next]!.id}`)?.scrollIntoView({ block: 'nearest' })
    }
    if (event.key === 'Enter') {
      event.preventDefault()
      run(chosen)
    }
  }
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: `<dialog>` handles Escape itself.
    <dialog
      ref={dialog}
      aria-label="Search or run a command"
      data-testid="palette"
      onCancel={onClose}
      onClick={(event) => {
        if (event.target === dialog.current) onClose()
      }}
      className="fade-in mx-auto mt-[12vh] w-[calc(100vw-32px)] max-w-lg overflow-hidden rounded-md border border-edge bg-surface p-0"
    >
      <div className="flex items-center gap-2 border-b border-rule px-4">
        <Icon name="search" className="shrink-0 text-muted" />
        <input
          role="combobox"
          aria-label="Search or run a command"
          aria-expanded="true"
          aria-controls={listId}
          aria-activedescendant={chosen === undefined ? undefined : `${listId}-${chosen.id}`}
          aria-autocomplete="list"
          placeholder="Pages, keys, docs, models, request ids, actions"
          className="h-12 flex-1 bg-transparent outline-none"
          value={text}
          onChange={(event) => {
            setText(event.target.value)
            setAt(0)
          }}
          onKeyDown={onKeyDown}
        />
      </div>
      {choices.length === 0 && <p className="px-4 py-4 text-muted">{isSearching ? 'Searching…' : 'No matches.'}</p>}
      <div id={listId} role="listbox" aria-label="Choices" className="max-h-96 overflow-y-auto p-1.5">
        {choices.map((choice) => (
          <div
            key={choice.id}
            id={`${listId}-${choice.id}`}
            role="option"
            tabIndex={-1}
            aria-selected={choice === chosen}
            onPointerMove={() => setAt(choices.indexOf(choice))}
            onClick={() => run(choice)}
            onKeyDown={onKeyDown}
            className={classNames(
              'flex h-9 cursor-pointer items-center gap-2.5 rounded-sm px-2.5',
              choice === chosen && 'bg-sunken',
            )}
          >
            <Icon name={choice.icon} />
            <span className="truncate">{choice.label}</span>
          </div>
        ))}
      </div>
    </dialog>
  )
}

function useChoices(text: string): { choices: readonly Choice[]; isSearching: boolean } {
  const navigate = useNavigate()
  const [theme, setTheme] = useTheme()
  const systemIsDark = useSystemIsDark()
  const isDark = theme === 'auto' ? systemIsDark : theme === 'dark'
  const { data: keys } = useQuery(keysQuery)
  const { data: models } = useQuery(modelsQuery)
  const isWalletAccount = useX402Wallet() !== undefined
  const asked = useDeferredValue(text.trim())
  const { data: docs, isFetching } = useQuery(docsSearchQuery(asked))
  const choices = useMemo(() => {
    const go = (to: string, search: Record<string, string> = {}) => void navigate({ to, search } as never)
    const id = /(?:req_|chatcmpl-)[0-9a-f]{32}/.exec(text)?.[0].replace('chatcmpl-', 'req_')
    const all: Choice[] = [
      ...places.map(({ to, label, icon }) => ({ id: `page-${label}`, label, icon, run: () => go(to) })),
      { id: 'docs', label: 'Docs', icon: 'docs', run: () => window.location.assign('/docs') },
      { id: 'create-key', label: 'Create a key', icon: 'plus', run: () => go('/keys', { create: '1' }) },
      ...(isWalletAccount
        ? []
        : [{ id: 'deposit', label: 'Deposit', icon: 'download' as const, run: () => go('/funds') }]),
      { id: 'statement', label: 'Monthly statement', icon: 'funds', run: () => go('/funds/statement') },
      {
        id: 'theme',
        label: isDark ? 'Switch to the light theme' : 'Switch to the dark theme',
        icon: isDark ? 'sun' : 'moon',
        run: () => setTheme(isDark ? 'light' : 'dark'),
      },
      ...(keys?.data ?? []).map(
        (key): Choice => ({ id: key.id, label: `Key: ${key.name}`, icon: 'keys', run: () => go(`/keys/${key.id}`) }),
      ),
    ]
    for (const { id: model } of models?.data ?? [])
      all.push({
        id: `model-${model}`,
        label: `Model: ${model}`,
        icon: 'playground',
        run: () => go('/playground', { model }),
      })
    for (const [section, label] of settingsSections)
      all.push({
        id: `settings-${section}`,
        label: `Settings: ${label}`,
        icon: 'settings',
        run: () => void navigate({ to: '/settings', hash: section }),
      })
    const words = text.toLowerCase().split(/\s+/).filter(Boolean)
    const matching = all.filter(({ label }) => words.every((word) => label.toLowerCase().includes(word)))
    const pasted: Choice[] =
      id === undefined ? [] : [{ id, label: `Request ${id}`, icon: 'requests', run: () => go(`/requests/${id}`) }]
    const found = (docs ?? []).map(
      ({ title, heading, path }): Choice => ({
        id: `docs-${path.replace(/[^\w-]/g, '_')}`,
        label: `Docs: ${heading === title || heading === '' ? title : `${title} › ${heading}`}`,
        icon: 'docs',
        run: () => window.location.assign(path),
      }),
    )
    return [...pasted, ...matching.slice(0, choicesMax - Math.min(found.length, docsMax)), ...found.slice(0, docsMax)]
  }, [docs, isDark, isWalletAccount, keys, models, navigate, setTheme, text])
  return { choices, isSearching: isFetching || asked !== text.trim() }
}
