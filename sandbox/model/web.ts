import type { FunctionTool } from './request.ts'

/** Unscripted use of the tools named `web_search` and `web_fetch`, as a real model would use them. */

export type Finding = { readonly title: string; readonly url: string }

const webToolNames = new Set(['web_search', 'web_fetch'])
const searching = /^\s*search the web for\s+(.+?)[\s.?!]*$/is
const reading = /\b(?:fetch|read|open|visit|summari[sz]e)\b/i
const address = /https?:\/\/[^\s"'<>)\]}]+/
// A result or a page: the line of its title, followed by the line of its address.
const described = /^(?:\d{1,3}\. |Title: )(.{1,300})\nURL: (\S{1,2000})$/gm

export function isWebTool({ name }: FunctionTool): boolean {
  return webToolNames.has(name)
}

/** Whether the text asks for that tool. */
export function isWanted(text: string, { name }: FunctionTool): boolean {
  return name === 'web_search' ? /\bsearch\b/i.test(text) : reading.test(text) && address.test(text)
}

/** The query to search for. */
export function queryIn(text: string): string {
  return searching.exec(text)?.[1] ?? text
}

/** Pages that were found or read. */
export function findingsIn(outputs: readonly string[]): readonly Finding[] {
  const found = outputs.flatMap((output) =>
    Array.from(output.matchAll(described), ([, title, url]) => ({ title: title!, url: url! })),
  )
  return [...new Map(found.map((finding) => [finding.url, finding])).values()]
}

/** An answer from a web search should use more than headlines: the first page found is read as well. */
export function pageToRead(text: string, findings: readonly Finding[]): string | undefined {
  return searching.test(text) ? findings[0]?.url : undefined
}

/** Sentences that link to the pages. */
export function citeFindings(findings: readonly Finding[]): readonly string[] {
  return findings.map(({ title, url }) => `I looked at [${title.replace(/[[\]]/g, '')}](${url}).`)
}
