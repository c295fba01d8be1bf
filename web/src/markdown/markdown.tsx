import { memo, type ReactNode, useRef } from 'react'
import { CopyButton } from '../ui/copy.tsx'
import { highlightRuns } from './highlight.ts'
import { type Block, nothingParsed, type Parsed, parseGrowing, type Token } from './parse.ts'

/**
 * Markdown that a model wrote, as React elements. No HTML string reaches the page, so there is nothing to sanitise: what is not
 * one of the elements below cannot appear. Loaded on demand: parser and highlighter are larger than the rest of the page.
 */
export default function Markdown({ text }: { text: string }) {
  const parsed = useRef<Parsed>(nothingParsed)
  if (parsed.current.text !== text) parsed.current = parseGrowing(text, parsed.current)
  return (
    <div className="prose">
      {parsed.current.blocks.map((block) => (
        <BlockView key={block.key} block={block} />
      ))}
    </div>
  )
}

/** Finished blocks keep their identity while the text grows, so React does not render them again. */
const BlockView = memo(function BlockView({ block }: { block: Block }) {
  return <>{renderAll(block.tokens)}</>
})

/** Elements without attributes. The page has its h1, and its panels have h2: headings of the text begin at h3. */
const plainTags = {
  h1: 'h3',
  h2: 'h4',
  h3: 'h5',
  h4: 'h6',
  h5: 'h6',
  h6: 'h6',
  p: 'p',
  ul: 'ul',
  li: 'li',
  blockquote: 'blockquote',
  thead: 'thead',
  tbody: 'tbody',
  tr: 'tr',
  strong: 'strong',
  em: 'em',
  s: 's',
} as const

function renderAll(tokens: readonly Token[]): ReactNode[] {
  const nodes: ReactNode[] = []
  for (let at = 0; at < tokens.length; at += 1) {
    const token = tokens[at]!
    if (token.nesting !== 1) {
      nodes.push(renderLeaf(token, at))
      continue
    }
    const end = closingOf(tokens, at)
    nodes.push(renderElement(token, renderAll(tokens.slice(at + 1, end)), at))
    at = end
  }
  return nodes
}

function closingOf(tokens: readonly Token[], from: number): number {
  let depth = 0
  for (let at = from; at < tokens.length; at += 1) {
    depth += tokens[at]!.nesting
    if (depth === 0) return at
  }
  return tokens.length
}

function renderElement(token: Token, children: ReactNode[], key: number): ReactNode {
  const { tag, type, hidden } = token
  // Paragraphs of tight lists.
  if (hidden) return children
  if (type === 'link_open') return link(String(token.attrGet('href')), children, key)
  if (tag === 'ol') {
    const start = Number(token.attrGet('start') ?? 1)
    return (
      <ol key={key} start={start}>
        {children}
      </ol>
    )
  }
  if (tag === 'table') {
    return (
      // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard that scrolls it.
      <section key={key} className="overflow-x-auto" aria-label="Table" tabIndex={0}>
        <table>{children}</table>
      </section>
    )
  }
  if (tag === 'th' || tag === 'td') {
    const Cell = tag
    const align = /text-align:(right|center)/.exec(String(token.attrGet('style')))?.[1]
    return (
      <Cell key={key} className={align === undefined ? undefined : align === 'right' ? 'text-right' : 'text-center'}>
        {children}
      </Cell>
    )
  }
  const Tag = plainTags[tag as keyof typeof plainTags]
  return Tag === undefined ? children : <Tag key={key}>{children}</Tag>
}

function renderLeaf(token: Token, key: number): ReactNode {
  switch (token.type) {
    case 'inline':
      return renderAll(token.children ?? [])
    case 'fence':
    case 'code_block':
      return (
        <Code key={key} code={token.content.replace(/\n$/, '')} language={token.info.trim().split(/\s/)[0] ?? ''} />
      )
    case 'code_inline':
      return <code key={key}>{token.content}</code>
    case 'hr':
      return <hr key={key} />
    case 'hardbreak':
      return <br key={key} />
    case 'softbreak':
      return '\n'
    // Loading a picture would reveal the reader to its host, and our policy forbids it: its address is shown as a link.
    case 'image':
      return link(String(token.attrGet('src')), [`Image: ${token.content || 'untitled'}`], key)
    default:
      return token.content
  }
}

function link(href: string, children: ReactNode[], key: number): ReactNode {
  return (
    <a key={key} href={href} target="_blank" rel="noopener noreferrer nofollow" className="link">
      {children}
    </a>
  )
}

function Code({ code, language }: { code: string; language: string }) {
  return (
    <figure className="my-3 overflow-hidden rounded-md border border-rule bg-sunken">
      <figcaption className="flex items-center justify-between border-b border-rule py-1 pr-1 pl-3 text-xs text-muted">
        {language || 'code'}
        <CopyButton text={code} small variant="quiet" />
      </figcaption>
      <section
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard that scrolls it.
        tabIndex={0}
        aria-label={`Code${language === '' ? '' : `: ${language}`}`}
        className="overflow-x-auto p-3"
      >
        <pre className="num text-sm">
          <code data-language={language}>
            {highlightRuns(code, language.toLowerCase()).map(({ text, className }, at) =>
              className === '' ? (
                text
              ) : (
                // biome-ignore lint/suspicious/noArrayIndexKey: runs are created again with the code and never move.
                <span key={at} className={className}>
                  {text}
                </span>
              ),
            )}
          </code>
        </pre>
      </section>
    </figure>
  )
}
