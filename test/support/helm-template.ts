import { createHash } from 'node:crypto'
import { parse } from 'yaml'

type Values = Readonly<Record<string, unknown>>

// Each takes what is piped into it last, as Helm's do.
const functions: Readonly<Record<string, (...values: never[]) => unknown>> = {
  quote: (value: unknown) => JSON.stringify(typeof value === 'number' ? asGoPrints(value) : String(value)),
  kindIs: (kind: string, value: unknown) => kind === (typeof value === 'number' ? 'float64' : typeof value),
  toJson: (value: unknown) => JSON.stringify(value, inGoOrder),
  fromYaml: (text: string) => parse(text) as unknown,
  sha256sum: (text: string) => createHash('sha256').update(text).digest('hex'),
  add: (a: string, b: string) => Number(a) + Number(b),
  div: (a: string, b: string) => Math.trunc(Number(a) / Number(b)),
}

/** Go writes the members of a map in the order of their names. */
function inGoOrder(_: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
}

/** Every number of a values file is a float64, and Go prints one of a million or more with an exponent. */
function asGoPrints(value: number): string {
  return Math.abs(value) < 1e6 ? String(value) : value.toExponential().replace(/e\+(\d)$/, 'e+0$1')
}

/**
 * As much of Helm's language as our chart uses: values by path, calls of the functions above and of `.Files.Get`, `if` with `else`,
 * and `range` over a map. Anything else is an error: then either the chart has become too clever, or this has to learn it.
 */
export function renderTemplate(source: string, values: Values): string {
  const parts = source.split(/(\{\{-? ?.*? ?-?\}\})/)
  for (const [index, part] of parts.entries()) {
    if (part.startsWith('{{-')) parts[index - 1] = parts[index - 1]!.trimEnd()
    if (part.startsWith('{{') && part.endsWith('-}}')) parts[index + 1] = parts[index + 1]!.trimStart()
  }
  const { text, rest } = render(parts, values)
  if (rest.length > 0) throw new Error('an end without its beginning')
  return text
}

type Rendered = { readonly text: string; readonly rest: readonly string[]; readonly isElse?: boolean }

function render(parts: readonly string[], scope: Values): Rendered {
  let text = ''
  for (let at = 0; at < parts.length; at += 1) {
    const part = parts[at]!
    const action = /^\{\{-? ?(.*?) ?-?\}\}$/s.exec(part)?.[1]
    if (action === undefined) text += part
    else if (action === 'end' || action === 'else')
      return { text, rest: parts.slice(at + 1), isElse: action === 'else' }
    else if (/^(if|range) /.test(action)) {
      const inside = parts.slice(at + 1)
      const scopes = scopesOf(action, scope)
      text += scopes.map((inner) => render(inside, inner).text).join('')
      const skipped = render(inside, scope)
      const otherwise = skipped.isElse ? render(skipped.rest, scope) : undefined
      if (scopes.length === 0) text += otherwise?.text ?? ''
      at = parts.length - (otherwise ?? skipped).rest.length - 1
    } else text += format(action, scope)
  }
  return { text, rest: [] }
}

/** Under which values the inside of a block is rendered, as often as there are. */
function scopesOf(action: string, scope: Values): readonly Values[] {
  const [, condition] = /^if (.+)$/.exec(action) ?? []
  if (condition !== undefined) return evaluate(condition, scope) ? [scope] : []
  const [, key, value, map] = /^range (\$\w+), (\$\w+) := (\S+)$/.exec(action) ?? []
  if (map === undefined) throw new Error(`what is {{ ${action} }}?`)
  const entries = Object.entries(lookUp(map, scope) as Values).sort(([a], [b]) => (a < b ? -1 : 1))
  return entries.map(([name, member]) => ({ ...scope, [key!]: name, [value!]: member }))
}

function format(action: string, scope: Values): string {
  const value = evaluate(action, scope)
  if (value === undefined || value === null || typeof value === 'object') throw new Error(`what is {{ ${action} }}?`)
  return String(value)
}

function evaluate(action: string, scope: Values): unknown {
  return action.split(' | ').reduce<unknown>((piped, call, index) => {
    const [name = '', ...given] = call.split(' ')
    const method = functions[name] ?? lookUp(name, scope)
    if (typeof method !== 'function') return index === 0 && given.length === 0 ? method : undefined
    const args = given.map((word) => (/^[.$]/.test(word) ? lookUp(word, scope) : JSON.parse(word)))
    return method(...args, ...(index === 0 ? [] : [piped]))
  }, undefined)
}

function lookUp(path: string, scope: Values): unknown {
  if (path.startsWith('$')) return Object.hasOwn(scope, path) ? scope[path] : '' // Not yet bound while its block is skipped.
  const names = path.split('.').slice(1)
  return names.reduce<unknown>((value, name) => (value as Values | undefined)?.[name], scope)
}
