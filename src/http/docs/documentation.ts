import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Heading, plainText, renderMarkdown } from './markdown.ts'

type Section = { readonly heading: string; readonly id: string; readonly text: string }

/** The front page's own lists are the way through the documentation. */
export type NavigationGroup = {
  readonly title: string
  readonly links: readonly { readonly title: string; readonly path: string; readonly about: string }[]
}

export type Hit = { readonly page: DocPage; readonly section: Section; readonly excerpt: string }

const frontFile = 'index.md'
const hitsMax = 20
const wordsMax = 8
const excerptMax = 220
const emptyFront = '# Penny Router\n\nThis installation has no documentation on board.\n'

/** Everything that is written about the service. Pages that the service makes itself come in as Markdown too. */
export class Documentation {
  readonly navigation: readonly NavigationGroup[]
  readonly #pages: ReadonlyMap<string, DocPage>

  private constructor(pages: readonly DocPage[], navigation: readonly NavigationGroup[]) {
    this.#pages = new Map(pages.map((page) => [page.path, page]))
    this.navigation = navigation
  }

  /** From the folder `docs/` of the installation, which may have been left out, and pages made elsewhere, by file name. */
  static load(folder: string, made: Readonly<Record<string, string>> = {}): Documentation {
    const files = new Map(Object.entries(made))
    const found = existsSync(folder) ? readdirSync(folder, { recursive: true, encoding: 'utf8' }) : []
    for (const name of found.filter((file) => file.endsWith('.md')).sort())
      files.set(name.replaceAll('\\', '/'), readFileSync(join(folder, name), 'utf8'))
    if (!files.has(frontFile)) files.set(frontFile, emptyFront)
    const names = new Set(files.keys())
    const pages = [...files].map(([file, markdown]) => new DocPage(file, markdown, names))
    return new Documentation(pages, withTheRest(readNavigation(files.get(frontFile)!), pages))
  }

  find(path: string): DocPage | undefined {
    return this.#pages.get(path)
  }

  /** In the order of the navigation, then what it does not name. */
  get pages(): readonly DocPage[] {
    const named = this.navigation.flatMap(({ links }) => links.map(({ path }) => path))
    const order = [...new Set(['/docs', ...named, ...this.#pages.keys()])]
    return order.flatMap((path) => this.#pages.get(path) ?? [])
  }

  /** Sections that have all the words, those with a word in their title or heading first. */
  search(query: string): readonly Hit[] {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean).slice(0, wordsMax)
    if (words.length === 0) return []
    const hits = this.pages.flatMap((page) =>
      page.sections.flatMap((section) => {
        const score = scoreOf(page, section, words)
        return score === 0 ? [] : [{ page, section, score, excerpt: excerptOf(section.text, words) }]
      }),
    )
    return hits.sort((a, b) => b.score - a.score).slice(0, hitsMax)
  }

  /** https://llmstxt.org: the front page is written in that form; its links become absolute and lead to the Markdown. */
  llms(publicUrl: string): string {
    const absolute = (_: string, target: string) => `](${new URL(target, `${publicUrl}/docs/`)})`
    return this.find('/docs')!.markdown.replaceAll(/\]\(([^()\s]+)\)/g, absolute)
  }

  llmsFull(): string {
    return this.pages.map(({ path, markdown }) => `<!-- ${path} -->\n\n${markdown.trim()}\n`).join('\n\n')
  }
}

/** One page, rendered when it is first asked for: a start does not wait for a hundred of them. */
export class DocPage {
  /** `/docs/guides/billing`; the front page is `/docs`. */
  readonly path: string
  readonly markdown: string
  readonly #file: string
  readonly #files: ReadonlySet<string>
  #rendered: ReturnType<typeof renderMarkdown> | undefined
  #sections: readonly Section[] | undefined

  /** `files` are those that it may link to. */
  constructor(file: string, markdown: string, files: ReadonlySet<string>) {
    this.path = pathOf(file)
    this.markdown = markdown
    this.#file = file
    this.#files = files
  }

  get title(): string {
    return this.headings[0]?.text ?? this.#file
  }

  get html(): string {
    return this.#render().html
  }

  get headings(): readonly Heading[] {
    return this.#render().headings
  }

  get sections(): readonly Section[] {
    this.#sections ??= sectionsOf(this.markdown, this.headings)
    return this.#sections
  }

  #render(): ReturnType<typeof renderMarkdown> {
    this.#rendered ??= renderMarkdown(this.markdown, (target) => resolveLink(this.#file, target, this.#files))
    return this.#rendered
  }
}

function pathOf(file: string): string {
  return file === frontFile ? '/docs' : `/docs/${file.replace(/\.md$/, '')}`
}

/** Links between the files become links between the pages; those to other files of the project lead nowhere on the site. */
function resolveLink(file: string, target: string, files: ReadonlySet<string>): string | undefined {
  if (/^(\w+:|#|\/)/.test(target)) return target
  const { pathname, hash } = new URL(target, `https://site.invalid/project/docs/${file}`)
  const inDocs = pathname.startsWith('/project/docs/') ? pathname.slice('/project/docs/'.length) : undefined
  if (inDocs === undefined) return undefined
  return files.has(inDocs) ? `${pathOf(inDocs)}${hash}` : undefined
}

function readNavigation(front: string): readonly NavigationGroup[] {
  const groups: { title: string; links: { title: string; path: string; about: string }[] }[] = []
  for (const line of front.split('\n')) {
    const [, title] = /^## (.+)$/.exec(line) ?? []
    if (title !== undefined) groups.push({ title, links: [] })
    const [, name, target, about] = /^- \[([^\]]+)\]\(([^()\s]+)\)(?:: (.*))?$/.exec(line) ?? []
    if (name === undefined || groups.length === 0) continue
    const path = target!.startsWith('/') ? target! : pathOf(target!)
    groups.at(-1)!.links.push({ title: plainText(name), path, about: plainText(about ?? '') })
  }
  return groups
}

/** A page that the front page forgot can still be found. */
function withTheRest(groups: readonly NavigationGroup[], pages: readonly DocPage[]): readonly NavigationGroup[] {
  const listed = new Set(['/docs', ...groups.flatMap(({ links }) => links.map(({ path }) => path))])
  const links = pages.filter(({ path }) => !listed.has(path)).map(({ title, path }) => ({ title, path, about: '' }))
  return links.length === 0 ? groups : [...groups, { title: 'More', links }]
}

function sectionsOf(markdown: string, headings: readonly Heading[]): readonly Section[] {
  const sections: { heading: string; id: string; lines: string[] }[] = []
  let fenced = false
  for (const line of markdown.split('\n')) {
    if (line.startsWith('```')) fenced = !fenced
    if (!fenced && /^#{1,6} /.test(line)) {
      const { text, id } = headings[sections.length]!
      sections.push({ heading: text, id, lines: [] })
    } else sections.at(-1)?.lines.push(line)
  }
  return sections.map(({ heading, id, lines }) => ({
    heading,
    id,
    text: plainText(lines.join(' ')).replaceAll(/\s+/g, ' '),
  }))
}

function scoreOf({ title }: DocPage, { heading, text }: Section, words: readonly string[]): number {
  let score = 0
  for (const word of words) {
    const inTitle = title.toLowerCase().includes(word)
    const inHeading = heading.toLowerCase().includes(word)
    const inText = text.toLowerCase().split(word).length - 1
    if (!inHeading && inText === 0 && !(inTitle && heading === title)) return 0
    score += (inTitle ? 20 : 0) + (inHeading ? 10 : 0) + Math.min(inText, 5)
  }
  return score
}

function excerptOf(text: string, words: readonly string[]): string {
  const first = Math.min(...words.map((word) => text.toLowerCase().indexOf(word)).filter((at) => at >= 0), text.length)
  const start = Math.max(0, first - 60)
  const cut = text.slice(start, start + excerptMax)
  return `${start > 0 ? '… ' : ''}${cut}${start + excerptMax < text.length ? ' …' : ''}`
}
