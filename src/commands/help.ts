import type { CommandUsage } from './command.ts'

const width = 80
const margin = 34

/** The text of `--help`, in lines of at most 80 columns. */
export function helpText(summary: string, usage: CommandUsage): string {
  return `${summary}\n\n${usageText(usage)}\n`
}

/** Terms are on the left, options are indented below their form, and descriptions are in their own column. */
export function usageText(usage: CommandUsage): string {
  const lines = usage.flatMap(([term, description]) => {
    const head = `${term.startsWith('-') ? '      ' : '  '}${term}`
    const [first = '', ...rest] = wrap(description, width - margin).map((line) => `${' '.repeat(margin)}${line}`)
    return head.length < margin - 1 ? [head + first.slice(head.length), ...rest] : [head, first, ...rest]
  })
  return lines.join('\n')
}

function wrap(text: string, columns: number): string[] {
  const lines: string[] = []
  for (const word of text.split(' ')) {
    const line = lines.at(-1)
    if (line !== undefined && line.length + 1 + word.length <= columns) lines[lines.length - 1] = `${line} ${word}`
    else lines.push(word)
  }
  return lines
}
