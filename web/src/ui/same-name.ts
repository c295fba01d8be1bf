/** Whether a name was typed as it looks: HTML collapses spaces, and zero-width characters are invisible. */
export function isSameName(typed: string, name: string): boolean {
  return asRead(typed) === asRead(name)
}

function asRead(name: string): string {
  return name
    .normalize('NFC')
    .replace(/\p{Cf}/gu, '')
    .replace(/\s+/g, ' ')
    .trim()
}
