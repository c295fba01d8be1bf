import { useLocation } from '@tanstack/react-router'
import { useEffect } from 'react'

/** Follows a link to one part of a page: the part is there only once its data is. */
export function useScrollToHash(ready: boolean): void {
  const { hash } = useLocation()
  useEffect(() => {
    if (ready && hash !== '') document.getElementById(hash)?.scrollIntoView()
  }, [ready, hash])
}
