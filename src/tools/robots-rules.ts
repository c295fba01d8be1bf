/** What a host's robots.txt asks of one robot. */
export type RobotsRules = readonly RobotsRule[]

type RobotsRule = { readonly allow: boolean; readonly pattern: string }

/** Rules are matched on the event loop: all patterns of a host together are no longer than this. The rest is not read. */
const patternCharactersMax = 32 * 1024
const linesMax = 20_000

/** The rules of RFC 9309 for one robot: those of the groups that name it, else those for all. */
export function parseRobots(text: string, robot: string): RobotsRules {
  const own: RobotsRule[] = []
  const general: RobotsRule[] = []
  let agents: string[] = []
  let inRules = false
  for (const { field, value } of fieldsOf(text)) {
    if (field === 'user-agent') {
      if (inRules) agents = []
      inRules = false
      agents.push(value.toLowerCase())
    } else if (field === 'allow' || field === 'disallow') {
      inRules = true
      // An empty pattern matches nothing: "disallow nothing".
      if (value === '') continue
      const rule = { allow: field === 'allow', pattern: value }
      if (agents.includes(robot.toLowerCase())) own.push(rule)
      if (agents.includes('*')) general.push(rule)
    }
  }
  // A group that names the robot and forbids nothing still takes it out of the general one.
  return bounded(own.length > 0 || names(text, robot) ? own : general)
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

function fieldsOf(text: string): { readonly field: string; readonly value: string }[] {
  return text
    .split(/\r\n|\r|\n/, linesMax)
    .map((line) => line.split('#')[0]!)
    .filter((line) => line.includes(':'))
    .map((line) => {
      const at = line.indexOf(':')
      return { field: line.slice(0, at).trim().toLowerCase(), value: line.slice(at + 1).trim() }
    })
}

function names(text: string, robot: string): boolean {
  return fieldsOf(text).some(
    ({ field, value }) => field === 'user-agent' && value.toLowerCase() === robot.toLowerCase(),
  )
}

function bounded(rules: readonly RobotsRule[]): RobotsRules {
  let characters = 0
  return rules.filter(({ pattern }) => (characters += pattern.length) <= patternCharactersMax)
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
