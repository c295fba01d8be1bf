import { getDocumentProxy, getMeta } from 'unpdf'

const pagesMax = 300

/** Extracts the text page by page, and stops once there is enough. */
export async function pdfText(
  body: Uint8Array,
  charactersMax: number,
): Promise<{ readonly title: string | undefined; readonly text: string; readonly more: boolean }> {
  const document = await getDocumentProxy(body, {
    // Nothing is drawn, so fonts and images are not loaded.
    disableFontFace: true,
    useSystemFonts: false,
    maxImageSize: 1,
    verbosity: 0,
  })
  const pages: string[] = []
  let characters = 0
  let number = 1
  for (; number <= Math.min(document.numPages, pagesMax) && characters <= charactersMax; number += 1) {
    const page = await document.getPage(number)
    const { items } = await page.getTextContent()
    const text = items
      .map((item) => ('str' in item ? item.str + (item.hasEOL ? '\n' : '') : ''))
      .join('')
      .trim()
    if (text !== '') pages.push(text)
    characters += text.length
    page.cleanup()
  }
  const { info } = await getMeta(document)
  const title = typeof info?.Title === 'string' ? info.Title.trim() || undefined : undefined
  return { title, text: pages.join('\n\n'), more: number <= document.numPages }
}
