import { useCallback, useSyncExternalStore } from 'react'

/** Where tables become lists and drawers become pages. */
export function useNarrow(): boolean {
  return useMedia('(width < 900px)')
}

export function useSystemIsDark(): boolean {
  return useMedia('(prefers-color-scheme: dark)')
}

function useMedia(query: string): boolean {
  const subscribe = useCallback(
    (notify: () => void) => {
      const media = matchMedia(query)
      media.addEventListener('change', notify)
      return () => media.removeEventListener('change', notify)
    },
    [query],
  )
  return useSyncExternalStore(subscribe, () => matchMedia(query).matches)
}
