/** Whether a name was typed as it is read: a page shows several spaces as one, and signs without a shape not at all. */
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
