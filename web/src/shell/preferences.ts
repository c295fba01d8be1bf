import { useCallback, useSyncExternalStore } from 'react'
import { keep, readKept } from '../ui/kept.ts'

// Small choices that stay in this browser: they are no part of the account.

export type Theme = 'auto' | 'light' | 'dark'

const changed = 'penny:preference'

function write(name: string, value: string): void {
  keep('localStorage', `penny.${name}`, value)
  window.dispatchEvent(new Event(changed))
  if (name === 'theme') window.dispatchEvent(new Event('penny:theme'))
}

/** A text kept in this browser, the same in all its tabs. */
export function usePreference(name: string, fallback: string): [string, (value: string) => void] {
  const subscribe = useCallback((notify: () => void) => {
    window.addEventListener(changed, notify)
    window.addEventListener('storage', notify)
    return () => {
      window.removeEventListener(changed, notify)
      window.removeEventListener('storage', notify)
    }
  }, [])
  const value = useSyncExternalStore(subscribe, () => readKept('localStorage', `penny.${name}`) ?? fallback)
  return [value, useCallback((next: string) => write(name, next), [name])]
}

export function useTheme(): [Theme, (theme: Theme) => void] {
  const [theme, setTheme] = usePreference('theme', 'auto')
  return [theme === 'light' || theme === 'dark' ? theme : 'auto', setTheme]
}

/** Whether single keys act. Off for those whose dictation or assistive software types them. */
export function useShortcutsEnabled(): [boolean, (enabled: boolean) => void] {
  const [value, setValue] = usePreference('shortcuts', 'on')
  return [value !== 'off', useCallback((enabled: boolean) => setValue(enabled ? 'on' : 'off'), [setValue])]
}
