import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import MiniSearch from 'minisearch'
import { type Heading, plainText, type Rendered, renderMarkdown, type Section } from './markdown.ts'

/** A group of links of `contents.md`, which is the navigation of the site. */
export type NavigationGroup = {
  readonly title: string
  readonly links: readonly { readonly title: string; readonly path: string; readonly about: string }[]
}

export type SearchHit = { readonly page: DocPage; readonly section: Section; readonly excerpt: string }

const frontFile = 'index.md'
const contentsFile = 'contents.md'
const hitsMax = 20
const wordsMax = 8
const excerptMax = 180
const excerptLead = 50
const emptyFront = '# Penny Router\n\nThis installation has no documentation.\n'

/** All pages of the documentation. Pages that the service generates are Markdown too. */
export class Documentation {
  readonly navigation: readonly NavigationGroup[]
  readonly #pages: ReadonlyMap<string, DocPage>
  #index: MiniSearch<Entry> | undefined

  private constructor(pages: readonly DocPage[], navigation: readonly NavigationGroup[]) {
    this.#pages = new Map(pages.map((page) => [page.path, page]))
    this.navigation = navigation
  }

  /** Reads the folder `docs/` of the installation, which may be missing. `generated`: more pages, by file name. */
  static load(folder: string, generated: Readonly<Record<string, string>> = {}): Documentation {
    const files = new Map(Object.entries(generated))
    const found = existsSync(folder) ? readdirSync(folder, { recursive: true, encoding: 'utf8' }) : []
    for (const name of found.filter((file) => file.endsWith('.md')).sort())
      files.set(name.replaceAll('\\', '/'), readFileSync(join(folder, name), 'utf8'))
    if (!files.has(frontFile)) files.set(frontFile, emptyFront)
    const names = new Set(files.keys())
    const pages = [...files].map(([file, markdown]) => new DocPage(file, markdown, names))
    return new Documentation(pages, readNavigation(files.get(contentsFile) ?? ''))
  }

  find(path: string): DocPage | undefined {
    return this.#pages.get(path)
  }

  /** In the order of the navigation; pages that it does not name come last. */
  get pages(): readonly DocPage[] {
    const named = this.navigation.flatMap(({ links }) => links.map(({ path }) => path))
    const order = [...new Set(['/docs', ...named, ...this.#pages.keys()])]
    return order.flatMap((path) => this.#pages.get(path) ?? [])
  }

  /** Sections that contain all words, or words that begin with them or differ in a letter; best matches first. */
  search(query: string): readonly SearchHit[] {
    // Repeated words find nothing new, and many words begin with any single letter: a search for "a" eight times took 20 ms.
    const given = [...new Set(query.toLowerCase().split(/\s+/).filter(Boolean))]
    const longer = given.filter(({ length }) => length > 1)
    const telling = longer.filter((word) => !fillers.has(word))
    const words = [telling, longer, given.slice(0, 1)].find(({ length }) => length > 0) ?? []
    if (words.length === 0) return []
    this.#index ??= indexOf(this.pages)
    const queries = words.slice(0, wordsMax).map((word) => ({
      combineWith: 'OR' as const,
      queries: [word, ...(synonyms[word] ?? [])],
    }))
    return this.#index
      .search({ combineWith: 'AND', queries })
      .slice(0, hitsMax)
      .map(({ path, number, terms }) => {
        const page = this.find(path)!
        const section = page.sections[number]!
        return { page, section, excerpt: excerptOf(section.text, terms) }
      })
  }

  /** https://llmstxt.org: a summary, then every page with one line about it. */
  llms(publicUrl: string): string {
    const front = this.find('/docs')!.markdown
    const [, about = ''] = /^(# .+?)\n## /s.exec(front) ?? []
    const absolute = (path: string) => `${publicUrl}${this.find(path) === undefined ? path : markdownPath(path)}`
    const groups = this.navigation.map(({ title, links }) => {
      const lines = links.map((link) => `- [${link.title}](${absolute(link.path)}): ${link.about}`)
      return `## ${title}\n\n${lines.join('\n')}\n`
    })
    return `${about.trim()}\n\n${groups.join('\n')}`
  }

  llmsFull(): string {
    return this.pages.map(({ path, markdown }) => `<!-- ${path} -->\n\n${markdown.trim()}\n`).join('\n\n')
  }
}

/** One page, rendered when it is first read: a start must not wait for a hundred pages. */
export class DocPage {
  /** `/docs/guides/billing`; the front page is `/docs`. */
  readonly path: string
  readonly markdown: string
  readonly #file: string
  readonly #files: ReadonlySet<string>
  #rendered: Rendered | undefined

  /** `files`: the files that the page may link to. */
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
    return this.#render().sections
  }

  #render(): Rendered {
    this.#rendered ??= renderMarkdown(this.markdown, (target) => resolveLink(this.#file, target, this.#files))
    return this.#rendered
  }
}

/** The path at which a page is served as Markdown. */
export function markdownPath(path: string): string {
  return `${path === '/docs' ? '/docs/index' : path}.md`
}

function pathOf(file: string): string {
  return file === frontFile ? '/docs' : `/docs/${file.replace(/\.md$/, '')}`
}

/** Links between the files become links between the pages. Other files of the project are not on the site. */
function resolveLink(file: string, target: string, files: ReadonlySet<string>): string | undefined {
  if (/^(\w+:|#|\/)/.test(target)) return target
  const { pathname, hash } = new URL(target, `https://site.invalid/project/docs/${file}`)
  const inDocs = pathname.startsWith('/project/docs/') ? pathname.slice('/project/docs/'.length) : undefined
  if (inDocs === undefined) return undefined
  return files.has(inDocs) ? `${pathOf(inDocs)}${hash}` : undefined
}

function readNavigation(contents: string): readonly NavigationGroup[] {
  const groups: { title: string; links: { title: string; path: string; about: string }[] }[] = []
  for (const line of contents.split('\n')) {
    const [, title] = /^## (.+)$/.exec(line) ?? []
    if (title !== undefined) groups.push({ title, links: [] })
    const [, name, target, about] = /^- \[([^\]]+)\]\(([^()\s]+)\)(?:: (.*))?$/.exec(line) ?? []
    if (name === undefined || groups.length === 0) continue
    const path = target!.startsWith('/') ? target! : pathOf(target!)
    groups.at(-1)!.links.push({ title: plainText(name), path, about: plainText(about ?? '') })
  }
  return groups
}

type Entry = Section & { readonly key: string; readonly path: string; readonly number: number; readonly title: string }

/** Most readers are customers: guides come before pages for operators and contributors that use the same words. */
const audienceBoosts: readonly (readonly [prefix: string, boost: number])[] = [
  ['/docs/guides/failover', 0.8],
  ['/docs/guides/members', 1.5],
  ['/docs/guides/', 2],
  ['/docs/operations/', 0.7],
  ['/docs/commands', 0.5],
  ['/docs/x402', 3],
  ['/docs/errors', 0.8],
  ['/docs/models', 2],
  ['/docs/decisions/', 0.2],
  ['/docs/proof', 0.1],
  ['/docs/attacks', 0.1],
  ['/docs/promises', 0.1],
  ['/docs/faults', 0.1],
  ['/docs/performance', 0.2],
  ['/docs/scaling', 0.3],
  ['/docs/contents', 0.01],
]

/** Words of a question that say nothing about its subject. */
const fillers = new Set(
  'a an and are be can do does for from get how i in is it me much my of on or the to what with'.split(' '),
)

/** Words that readers bring, and the words of our pages. */
const synonyms: Readonly<Record<string, readonly string[]>> = {
  cost: ['prices'],
  pricing: ['prices'],
  price: ['prices'],
  json: ['structured'],
  mode: ['output'],
  schema: ['structured'],
  failover: ['providers'],
  fallback: ['providers'],
  invoice: ['statement'],
  tax: ['statement'],
  bill: ['statement', 'billing'],
  retry: ['retries'],
  safely: ['idempotency'],
  budget: ['limits'],
  team: ['members', 'people'],
  stop: ['cancel'],
  abort: ['cancel'],
  kubernetes: ['helm'],
  k8s: ['helm'],
  install: ['self-hosting'],
  topup: ['deposits'],
  scale: ['scaling'],
}

function indexOf(pages: readonly DocPage[]): MiniSearch<Entry> {
  const index = new MiniSearch<Entry>({
    idField: 'key',
    fields: ['title', 'heading', 'text', 'code'],
    storeFields: ['path', 'number'],
    searchOptions: {
      boost: { title: 8, heading: 5, code: 0.5 },
      combineWith: 'AND',
      prefix: true,
      // Short words are similar to too many others.
      fuzzy: (word) => (word.length > 4 ? 0.2 : false),
      boostDocument: (_key, _term, fields) =>
        audienceBoosts.find(([prefix]) => String(fields?.path).startsWith(prefix))?.[1] ?? 1,
    },
  })
  for (const { path, title, sections } of pages)
    index.addAll(sections.map((section, number) => ({ ...section, key: `${path}#${number}`, path, number, title })))
  return index
}

function excerptOf(text: string, terms: readonly string[]): string {
  const lower = text.toLowerCase()
  const first = Math.min(...terms.map((term) => lower.indexOf(term)).filter((at) => at >= 0), lower.length)
  const start = first === lower.length ? 0 : Math.max(0, first - excerptLead)
  const cut = text.slice(start, start + excerptMax)
  return `${start > 0 ? '… ' : ''}${cut}${start + excerptMax < text.length ? ' …' : ''}`
}
