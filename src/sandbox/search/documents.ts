import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** One page of the project's own documentation. */
export type Document = {
  /** `/docs/operations/hold`; the page of README.md is `/`. */
  readonly path: string
  readonly title: string
  readonly markdown: string
  /** Its sections, in order: what a search finds. */
  readonly sections: readonly Section[]
}

export type Section = { readonly heading: string; readonly text: string }

const topFiles = ['README.md', 'ARCHITECTURE.md', 'CHANGELOG.md']

/** Everything that is written about the project in Markdown, below the given folder. */
export function readDocuments(root: string): readonly Document[] {
  const folder = join(root, 'docs')
  // An image of the service may leave its documentation out: the sandbox then finds nothing, which is no reason to stop.
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

/** Links between the files become links between the pages; those to other files lead nowhere on the site and stay. */
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
