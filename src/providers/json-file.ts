import { readFileSync, statSync } from 'node:fs'

const fileBytesMax = 1024 * 1024

/** Reads a JSON file of the operator. Throws one line that names the position and quotes nothing: the file may contain keys. */
export function readJsonFile(path: string): unknown {
  const text = readTextFile(path)
  if (text.trim() === '') throw new JsonFileError('the file is empty')
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

/** Reads a small regular file. A pipe would block the whole service. */
export function readTextFile(path: string): string {
  try {
    const stats = statSync(path)
    if (!stats.isFile()) throw new JsonFileError(`${path} is not a file`)
    if (stats.size > fileBytesMax) {
      throw new JsonFileError(`${path} has ${stats.size} bytes; the limit is ${fileBytesMax}`)
    }
    // Some editors write a byte order mark.
    return readFileSync(path, 'utf8').replace(/^\uFEFF/, '')
  } catch (error) {
    throw error instanceof JsonFileError ? error : new JsonFileError((error as Error).message)
  }
}

export class JsonFileError extends Error {}

/** V8 reports the position, or quotes the text around it. */
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

/** `JSON.parse` silently keeps the last of two members with the same name. The text is known to be valid JSON. */
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
