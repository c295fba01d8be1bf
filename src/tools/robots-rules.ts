/** The robots.txt rules of a host that apply to one robot. */
export type RobotsRules = readonly RobotsRule[]

type RobotsRule = { readonly allow: boolean; readonly pattern: string }

/** Total length of a host's patterns. Matching runs on the event loop, and the rules are cached for an hour. */
const patternCharactersMax = 32 * 1024
const patternLengthMax = 1_024
const rulesMax = 1_000
// A pattern with a star may search the whole path, and the search for a long text can take time quadratic in its length. Other patterns
// are compared with the beginning of the path only.
const starPatternLengthMax = 256
const starRulesMax = 200
const linesMax = 20_000

/**
 * The rules of RFC 9309 for one robot: those of the groups that name it, otherwise those of the `*` groups. The file is untrusted,
 * so it is read in a single pass, however many robots and rules it names.
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
  // A group that names the robot and disallows nothing still overrides the general group.
  return isNamed ? own.rules : general.rules
}

/** The rules kept for one host, up to the limits. Rules beyond them are ignored. */
class KeptRules {
  readonly rules: RobotsRule[] = []
  #characters = 0
  #starRules = 0

  add(allow: boolean, value: string): void {
    // An empty pattern matches nothing: an empty `Disallow` allows everything.
    if (value === '' || value.length > patternLengthMax || this.rules.length === rulesMax) return
    if (this.#characters + value.length > patternCharactersMax) return
    const hasStar = value.includes('*')
    if (hasStar && (value.length > starPatternLengthMax || this.#starRules === starRulesMax)) return
    if (hasStar) this.#starRules += 1
    this.#characters += value.length
    // Copied: a slice keeps its whole source string in memory, here half a megabyte per host.
    this.rules.push({ allow, pattern: Buffer.from(value).toString() })
  }
}

/** Whether a path (with its query) may be fetched. The longest matching pattern decides; on a tie, `Allow` wins. */
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

/**
 * `*` matches anything; a final `$` matches the end. Taking the leftmost match of each part is enough, so there is no backtracking.
 */
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
