// In the order in which they must be looked for: most browsers also call themselves by the names of others.
const browsers = [
  ['Edge', /\bEdg\//],
  ['Opera', /\bOPR\//],
  ['Firefox', /\bFirefox\//],
  ['Chrome', /\b(Headless)?Chrome\//],
  ['Safari', /\bSafari\//],
  ['curl', /^curl\//],
] as const

const systems = [
  ['Android', /Android/],
  ['iPhone', /iPhone/],
  ['iPad', /iPad/],
  ['Windows', /Windows/],
  ['macOS', /Mac OS X/],
  ['Linux', /Linux/],
] as const

/** `Chrome on Linux`: enough to recognise your own sessions. The full text is in the title. */
export function browserName(userAgent: string | null): string {
  if (userAgent === null) return 'Unknown browser'
  const find = (names: typeof browsers | typeof systems) => names.find(([, mark]) => mark.test(userAgent))?.[0]
  const [browser, system] = [find(browsers), find(systems)]
  if (browser === undefined) return userAgent
  return system === undefined ? browser : `${browser} on ${system}`
}
