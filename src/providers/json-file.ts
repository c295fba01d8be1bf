import { readFileSync } from 'node:fs'

/** Reads a JSON file that an operator wrote. Throws one line that names the place and quotes nothing: the file can have keys in it. */
export function readJsonFile(path: string): unknown {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    throw new JsonFileError((error as Error).message)
  }
  let content: unknown
  try {
    content = JSON.parse(text)
  } catch (error) {
    throw new JsonFileError(describeSyntaxError(text, (error as Error).message))
  }
  const duplicate = findDuplicateName(text)
  if (duplicate !== undefined) {
    throw new JsonFileError(`"${duplicate.name}" is given twice in one object, again in line ${duplicate.line}`)
  }
  return content
}

export class JsonFileError extends Error {}

/** V8 says where, or quotes what is around the place. */
function describeSyntaxError(text: string, message: string): string {
  const [, quoted] =
    /^Unexpected token .*?, (?:\.\.\.)?"([\s\S]*?)"(?:\.\.\. )? ?is not valid JSON$/.exec(message) ?? []
  const told = /\bline (\d+)/.exec(message)?.[1]
  const start = quoted === undefined ? -1 : text.indexOf(quoted)
  const [token] = /^Unexpected token '[^']*'/.exec(message) ?? []
  const reason = token ?? message.replace(/ in JSON at position.*$/s, '').replace(/".*$/s, '')
  if (told !== undefined) return `not valid JSON: ${reason} in line ${told}`
  if (start === -1) return `not valid JSON: ${reason}`
  const sign = /'(.)'/su.exec(token ?? '')?.[1] ?? ''
  const place = Math.max(start, text.indexOf(sign, start + Math.min(10, start)))
  return `not valid JSON: ${reason} in line ${lineAt(text, place)}`
}

function lineAt(text: string, index: number): number {
  return text.slice(0, index).split('\n').length
}

/** `JSON.parse` keeps the last of two members of one name without a word. The text is known to be valid. */
function findDuplicateName(text: string): { readonly name: string; readonly line: number } | undefined {
  const objects: (Set<string> | undefined)[] = []
  for (const match of text.matchAll(/("(?:[^"\\]|\\.)*")(\s*:)?|[{}[\]]/gs)) {
    const [token, string, colon] = match
    if (token === '{') objects.push(new Set())
    else if (token === '[') objects.push(undefined)
    else if (token === '}' || token === ']') objects.pop()
    else if (string !== undefined && colon !== undefined) {
      const name = JSON.parse(string) as string
      const names = objects.at(-1)!
      if (names.has(name)) return { name, line: lineAt(text, match.index) }
      names.add(name)
    }
  }
  return undefined
}
