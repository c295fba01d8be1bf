import { type DefaultTreeAdapterTypes, parse } from 'parse5'

export type HtmlElement = DefaultTreeAdapterTypes.Element
export type HtmlNode = DefaultTreeAdapterTypes.ChildNode

/** The readable part of a page. */
export type HtmlContent = {
  readonly title: string | undefined
  readonly base: string
  readonly root: HtmlElement | undefined
}

/** Deeper than any real page. Elements below this depth are dropped. */
export const depthMax = 300
const mainShareMin = 0.25
const noiseShareMax = 0.4

/** Elements that never contain article text. */
const droppedTags = new Set(
  'script style noscript template svg canvas iframe object embed audio video button input select textarea nav footer aside dialog menu head link meta map'.split(
    ' ',
  ),
)
const droppedRoles = new Set(
  'navigation banner contentinfo complementary dialog alertdialog search menu menubar toolbar'.split(' '),
)
/** Words in class names and ids that mark page furniture around an article. */
const noise =
  /(?:^|[\s_-])(?:cookies?|consent|gdpr|newsletter|subscribe|breadcrumbs?|sidebar|advert(?:s|isement)?|ads?|promo|share|sharing|social|popup|modal|skip-?(?:link|nav|to-content)|pagination|comments-form)(?:$|[\s_-])/i

export function findContent(html: string, url: string): HtmlContent {
  const document = parse(html)
  const elements = elementsBelow(document)
  const title = elements.find((element) => element.tagName === 'title' && element.namespaceURI.endsWith('xhtml'))
  const baseHref = elements.find((element) => element.tagName === 'base')
  return {
    title: title === undefined ? undefined : squeeze(textOf(title)) || undefined,
    base: URL.parse((baseHref && attribute(baseHref, 'href')) ?? '', url)?.href ?? url,
    root: pickRoot(elements),
  }
}

function pickRoot(elements: readonly HtmlElement[]): HtmlElement | undefined {
  const body = elements.find((element) => element.tagName === 'body')
  if (body === undefined) return undefined
  const enough = textOf(body).length * mainShareMin
  const mains = elements.filter((element) => element.tagName === 'main' || attribute(element, 'role') === 'main')
  const articles = elements.filter((element) => element.tagName === 'article')
  const candidates = mains.length > 0 ? mains.slice(0, 1) : articles.length === 1 ? articles : []
  return candidates.find((element) => textOf(element).length >= enough) ?? body
}

/** Whether an element is left out. `share` is its fraction of the whole text: a page is never dropped entirely. */
export function isDropped(element: HtmlElement, share: () => number): boolean {
  if (droppedTags.has(element.tagName) || droppedRoles.has(attribute(element, 'role') ?? '')) return true
  if (attribute(element, 'hidden') !== undefined || attribute(element, 'aria-hidden') === 'true') return true
  if (/display\s*:\s*none|visibility\s*:\s*hidden/i.test(attribute(element, 'style') ?? '')) return true
  const names = `${attribute(element, 'class') ?? ''} ${attribute(element, 'id') ?? ''}`
  return noise.test(names.slice(0, 500)) && share() < noiseShareMax
}

export function isElement(node: { readonly nodeName: string }): node is HtmlElement {
  return 'tagName' in node
}

export function attribute(element: HtmlElement, name: string): string | undefined {
  return element.attrs.find((one) => one.name === name)?.value
}

/** All text, verbatim. Iterative, because a hostile page could nest deep enough to overflow the stack. */
export function textOf(element: HtmlElement): string {
  const parts: string[] = []
  const waiting: HtmlNode[] = [element]
  for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) {
    if (node.nodeName === '#text') parts.push((node as DefaultTreeAdapterTypes.TextNode).value)
    else if (isElement(node) && node.tagName !== 'script' && node.tagName !== 'style') {
      for (let index = node.childNodes.length - 1; index >= 0; index -= 1) waiting.push(node.childNodes[index]!)
    }
  }
  return parts.join('')
}

export function squeeze(text: string): string {
  return text.replaceAll(/[\s ]+/g, ' ').trim()
}

/** In document order. */
function elementsBelow(document: DefaultTreeAdapterTypes.Document): HtmlElement[] {
  const found: HtmlElement[] = []
  const waiting: HtmlNode[] = document.childNodes.toReversed()
  for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) {
    if (!isElement(node)) continue
    found.push(node)
    for (let index = node.childNodes.length - 1; index >= 0; index -= 1) waiting.push(node.childNodes[index]!)
  }
  return found
}
