/** A fenced block of a guide that something is done with. */
export type Block = {
  /** Of its opening fence, from 1. */
  readonly line: number
  /** The words behind the fence: a language, then how the block is meant. */
  readonly language: string
  readonly mark: string
  readonly text: string
}

/** What a guide's block does: run it, take what follows as its output, let the service read it, or nothing. */
export type Purpose = 'run' | 'output' | 'config' | 'models' | 'providers' | 'not-run'

const purposes: Readonly<Record<string, Purpose>> = {
  sh: 'run',
  python: 'run',
  js: 'run',
  'sh not-run': 'not-run',
  'python not-run': 'not-run',
  'js not-run': 'not-run',
  'text output': 'output',
  'ini config': 'config',
  'json models': 'models',
  'json providers': 'providers',
}

/** Undefined when the block is marked in a way that nobody knows: it would be neither run nor known not to be. */
export function purposeOf({ language, mark }: Block): Purpose | undefined {
  return purposes[`${language} ${mark}`.trim()]
}

export function readBlocks(markdown: string): readonly Block[] {
  const blocks: Block[] = []
  let open: { line: number; info: string; lines: string[] } | undefined
  for (const [index, line] of markdown.split('\n').entries()) {
    if (!line.startsWith('```')) open?.lines.push(line)
    else if (open === undefined) open = { line: index + 1, info: line.slice(3).trim(), lines: [] }
    else {
      const [language = '', ...marks] = open.info.split(' ')
      blocks.push({ line: open.line, language, mark: marks.join(' '), text: `${open.lines.join('\n')}\n` })
      open = undefined
    }
  }
  return blocks
}

/** Whether it was printed as the guide shows it. `…` stands for what differs from run to run; alone on a line, for any lines. */
export function isOutput(shown: string, printed: string): boolean {
  const lines = shown
    .trimEnd()
    .split('\n')
    .map((line) => (line === '…' ? '(?:.*\n)*?' : `${line.split('…').map(escapeRegExp).join('.*')}\n`))
  return new RegExp(`^${lines.join('')}$`).test(`${printed.trimEnd()}\n`)
}

function escapeRegExp(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
}
