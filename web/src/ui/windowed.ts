import { type RefObject, useEffect, useState } from 'react'

const overscan = 12

/** Which rows of a long list are near the screen. All rows are equally high; the page itself scrolls. */
export function useWindow(
  list: RefObject<HTMLElement | null>,
  count: number,
  rowHeight: number,
): readonly [number, number] {
  const [shown, setShown] = useState<readonly [number, number]>([0, 60])
  useEffect(() => {
    let frame = 0
    const measure = () => {
      frame = 0
      const element = list.current
      if (element === null) return
      const top = -element.getBoundingClientRect().top
      const first = Math.max(0, Math.floor(top / rowHeight) - overscan)
      const last = Math.ceil((top + window.innerHeight) / rowHeight) + overscan
      setShown((now) => (now[0] === first && now[1] === last ? now : [first, last]))
    }
    const schedule = () => {
      frame ||= requestAnimationFrame(measure)
    }
    measure()
    window.addEventListener('scroll', schedule, { passive: true })
    window.addEventListener('resize', schedule)
    return () => {
      cancelAnimationFrame(frame)
      window.removeEventListener('scroll', schedule)
      window.removeEventListener('resize', schedule)
    }
  }, [list, rowHeight])
  return [Math.min(shown[0], Math.max(count - 1, 0)), Math.min(shown[1], count)]
}
