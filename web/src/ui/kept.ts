type Where = 'localStorage' | 'sessionStorage'

/** A text that this browser or tab keeps. Storage may be forbidden: then nothing is kept. */
export function readKept(where: Where, name: string): string | null {
  try {
    return window[where].getItem(name)
  } catch {
    return null
  }
}

/** Keeps a text, or with null deletes it. Storage may be full or forbidden: the text then lasts until the page is left. */
export function keep(where: Where, name: string, text: string | null): void {
  try {
    if (text === null) window[where].removeItem(name)
    else window[where].setItem(name, text)
  } catch {}
}
