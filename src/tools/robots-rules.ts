/** What a host's robots.txt asks of one robot. */
export type RobotsRules = readonly RobotsRule[]

type RobotsRule = { readonly allow: boolean; readonly pattern: string }

/** Rules are matched on the event loop, and kept for an hour: all patterns of a host together are no longer than this. */
const patternCharactersMax = 32 * 1024
const patternLengthMax = 1_024
const rulesMax = 1_000
const linesMax = 20_000

/**
 * The rules of RFC 9309 for one robot: those of the groups that name it, else those for all. The file is a stranger's: it is
 * read once from its start to its end, however many robots and rules it names.
 */
export function parseRobots(text: string, robot: string): RobotsRules {
  const name = robot.toLowerCase()
  const own = new KeptRules()
  const general = new KeptRules()
  let isNamed = false
  let group = { isOwn: false, isGeneral: false, inRules: false }
  for (const { field, value } of fieldsOf(text)) {
    if (field === 'user-agent') {
      if (group.inRules) group = { isOwn: false, isGeneral: false, inRules: false }
      const agent = value.toLowerCase()
      if (agent === name) group.isOwn = isNamed = true
      if (agent === '*') group.isGeneral = true
    } else if (field === 'allow' || field === 'disallow') {
      group.inRules = true
      if (group.isOwn) own.add(field === 'allow', value)
      if (group.isGeneral) general.add(field === 'allow', value)
    }
  }
  // A group that names the robot and forbids nothing still takes it out of the general one.
  return isNamed ? own.rules : general.rules
}

/** As many rules as are kept of one host. What is beyond that is not obeyed. */
class KeptRules {
  readonly rules: RobotsRule[] = []
  #characters = 0

  add(allow: boolean, value: string): void {
    // An empty pattern matches nothing: "disallow nothing".
    if (value === '' || value.length > patternLengthMax || this.rules.length === rulesMax) return
    if (this.#characters + value.length > patternCharactersMax) return
    this.#characters += value.length
    this.rules.push({ allow, pattern: copied(value) })
  }
}

/** A part of a string keeps the whole of it in memory, here half a megabyte for each host. */
function copied(text: string): string {
  return Buffer.from(text).toString()
}

/** Whether a path (with its query) may be fetched: the longest pattern that matches decides, at a tie the friendlier one. */
export function isAllowed(rules: RobotsRules, path: string): boolean {
  let best: RobotsRule | undefined
  for (const rule of rules) {
    if (!matches(rule.pattern, path)) continue
    const longer = rule.pattern.length - (best?.pattern.length ?? -1)
    if (longer > 0 || (longer === 0 && rule.allow)) best = rule
  }
  return best?.allow ?? true
}

function* fieldsOf(text: string): Generator<{ readonly field: string; readonly value: string }> {
  for (const line of text.split(/\r\n|\r|\n/, linesMax)) {
    const comment = line.indexOf('#')
    const statement = comment === -1 ? line : line.slice(0, comment)
    const colon = statement.indexOf(':')
    if (colon === -1) continue
    yield { field: statement.slice(0, colon).trim().toLowerCase(), value: statement.slice(colon + 1).trim() }
  }
}

/** `*` stands for anything, `$` at the end for the end. The leftmost place of each part is enough: no going back. */
function matches(pattern: string, path: string): boolean {
  const anchored = pattern.endsWith('$')
  const [first = '', ...parts] = (anchored ? pattern.slice(0, -1) : pattern).split('*')
  if (!path.startsWith(first)) return false
  let at = first.length
  const last = anchored ? parts.pop() : undefined
  for (const part of parts) {
    const found = path.indexOf(part, at)
    if (found === -1) return false
    at = found + part.length
  }
  if (!anchored) return true
  return last === undefined ? path.length === at : path.length - last.length >= at && path.endsWith(last)
}
