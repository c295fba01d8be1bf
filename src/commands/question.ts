import { CommandError, type CommandUsage, type Invocation } from './command.ts'

export const questionOptions = {
  model: { type: 'string' },
  'max-tokens': { type: 'string' },
  'no-web': { type: 'boolean' },
} as const

export const questionUsage: CommandUsage = [
  ['--model NAME', 'Model to use instead of the default'],
  ['--max-tokens N', 'Maximum length of the answer'],
  ['--no-web', 'Turn off web search and web fetch'],
]

/** The body of a completion, from the words of the command line or, for a single dash, from standard input. */
export async function readQuestion({ words, options }: Invocation): Promise<Record<string, unknown>> {
  const content = words.length === 1 && words[0] === '-' ? (await process.stdin.toArray()).join('') : words.join(' ')
  if (content.trim() === '')
    throw new CommandError('Give a message after the command, or - to read it from standard input.', 2)
  const maxTokens = options['max-tokens']
  if (maxTokens !== undefined && !/^[1-9]\d{0,8}$/.test(String(maxTokens)))
    throw new CommandError(`--max-tokens must be a whole number above 0, got "${maxTokens}".`, 2)
  return {
    messages: [{ role: 'user', content }],
    ...(typeof options.model === 'string' && { model: options.model }),
    ...(maxTokens !== undefined && { max_tokens: Number(maxTokens) }),
    ...(options['no-web'] === true && { web_search: false, web_fetch: false }),
  }
}
