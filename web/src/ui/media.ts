import { useSyncExternalStore } from 'react'

const narrow = '(width < 900px)'

/** Where tables become lists and drawers become pages. */
export function useNarrow(): boolean {
  return useSyncExternalStore(
    (notify) => {
      const media = matchMedia(narrow)
      media.addEventListener('change', notify)
      return () => media.removeEventListener('change', notify)
    },
    () => matchMedia(narrow).matches,
  )
}
