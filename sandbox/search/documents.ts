import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** One page of the project's own documentation. */
export type Document = {
  /** For example `/docs/operations/hold`; the page of README.md is `/`. */
  readonly path: string
  readonly title: string
  readonly markdown: string
  /** Its sections in order; searches return these. */
  readonly sections: readonly Section[]
}

export type Section = { readonly heading: string; readonly text: string }

const topFiles = ['README.md', 'ARCHITECTURE.md', 'CHANGELOG.md']

/** All Markdown documentation of the project below the given folder. */
export function readDocuments(root: string): readonly Document[] {
  const folder = join(root, 'docs')
  // An image of the service may omit the documentation. The sandbox's search then finds nothing, which must not fail the start.
  const below = existsSync(folder) ? readdirSync(folder, { recursive: true, encoding: 'utf8' }) : []
  const files = [
    ...topFiles.filter((file) => existsSync(join(root, file))),
    ...below.map((file) => `docs/${file.replaceAll('\\', '/')}`),
  ]
  return files
    .filter((file) => file.endsWith('.md'))
    .map((file) => toDocument(file, readFileSync(join(root, file), 'utf8')))
}

export function toDocument(file: string, source: string): Document {
  const markdown = withSitePaths(file, source)
  const sections = toSections(markdown)
  return { path: sitePath(file), title: sections[0]?.heading || file, markdown, sections }
}

function sitePath(file: string): string {
  return file === 'README.md' ? '/' : `/${file.replace(/\.md$/, '')}`
}

/** Rewrites links between the files into links between the pages. Links to other files have no page and stay as they are. */
function withSitePaths(file: string, source: string): string {
  return source.replaceAll(/\]\((?!\w+:|#|\/)([^()\s#]+\.md)(#[^()\s]*)?\)/g, (_, target: string, fragment = '') => {
    const { pathname } = new URL(target, `https://site.invalid/${file}`)
    return `](${sitePath(pathname.slice(1))}${fragment})`
  })
}

function toSections(markdown: string): readonly Section[] {
  const sections: { heading: string; lines: string[] }[] = []
  let fenced = false
  for (const line of markdown.split('\n')) {
    if (line.startsWith('```')) fenced = !fenced
    const heading = fenced ? undefined : /^#{1,6} +(.+)$/.exec(line)?.[1]
    if (heading !== undefined || sections.length === 0) sections.push({ heading: heading ?? '', lines: [] })
    if (heading === undefined) sections.at(-1)!.lines.push(line)
  }
  return sections.map(({ heading, lines }) => ({ heading, text: lines.join('\n').trim() }))
}
