import { spawn } from 'node:child_process'
import { accessOptions, accessUsage, findAccess } from './client.ts'
import { type Command, CommandError } from './command.ts'
import { readRequestId } from './read-options.ts'

const pages = ['requests', 'usage', 'keys', 'funds', 'playground', 'settings', 'docs'] as const

export const openCommand: Command = {
  usage: [
    ['penny open', 'The dashboard. Prints the address, and opens it if there is a screen'],
    ['penny open req_…', 'One request: its charge, line by line'],
    ['penny open PAGE', `One of ${pages.join(', ')}`],
    ...accessUsage,
  ],
  options: accessOptions,
  wordsMax: 1,
  async run(invocation) {
    const { words, output } = invocation
    const url = `${new URL(findAccess(invocation).baseUrl).origin}${pathOf(words[0])}`
    output.write(output.json ? `${JSON.stringify({ url })}\n` : `${url}\n`)
    // A pipe or a server has no screen.
    if (output.width !== undefined && !output.json) openInBrowser(url)
    return 0
  },
}

function pathOf(word: string | undefined): string {
  if (word === undefined) return '/'
  if (pages.some((page) => page === word)) return `/${word}`
  if (!word.startsWith('req_'))
    throw new CommandError(`penny open has no page "${word}". It has: ${pages.join(', ')}.`, 2)
  readRequestId(word, 'penny open req_…')
  return `/requests/${word}`
}

function openInBrowser(url: string): void {
  const program = process.platform === 'darwin' ? 'open' : 'xdg-open'
  const child = spawn(program, [url], { stdio: 'ignore', detached: true })
  // Without the program, the printed address is enough.
  child.on('error', () => {})
  child.unref()
}
