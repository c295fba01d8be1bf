import { type FocusEvent, type RefObject, useEffect, useState } from 'react'

const overscan = 12

/** From the first row to the one after the last. */
export type Range = readonly [number, number]

type Row = { readonly id: string }

/**
 * Which rows of a long list are rendered: those near the screen, and the focused one with its
 * neighbours, so that scrolling does not remove the focused row, and Tab leads to its neighbour. All rows are
 * equally high and carry `data-id`; the page itself scrolls.
 */
export function useWindowedRows(list: RefObject<HTMLElement | null>, rows: readonly Row[], rowHeight: number) {
  const near = useWindow(list, rows.length, rowHeight)
  const [focusedId, setFocusedId] = useState<string>()
  const focused = focusedId === undefined ? -1 : rows.findIndex(({ id }) => id === focusedId)
  const focusProps = {
    onFocus: ({ target }: FocusEvent<HTMLElement>) =>
      setFocusedId(target.closest<HTMLElement>('[data-id]')?.dataset.id),
    onBlur: () => setFocusedId(undefined),
  }
  return [rangesOf(near, focused, rows.length), focusProps] as const
}

/** In order, apart from each other. A focus of -1 is none. */
export function rangesOf(near: Range, focused: number, count: number): readonly Range[] {
  if (focused === -1) return [near]
  const kept: Range = [Math.max(0, focused - 1), Math.min(count, focused + 2)]
  if (kept[1] < near[0]) return [kept, near]
  if (kept[0] > near[1]) return [near, kept]
  return [[Math.min(kept[0], near[0]), Math.max(kept[1], near[1])]]
}

function useWindow(list: RefObject<HTMLElement | null>, count: number, rowHeight: number): Range {
  const [shown, setShown] = useState<Range>([0, 60])
  useEffect(() => {
    let frame = 0
    const measure = () => {
      frame = 0
      const element = list.current
      if (element === null) return
      const top = -element.getBoundingClientRect().top
      const first = Math.max(0, Math.floor(top / rowHeight) - overscan)
      const last = Math.max(0, Math.ceil((top + window.innerHeight) / rowHeight)) + overscan
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
