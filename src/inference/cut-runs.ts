// 256 ASCII characters, 170 Chinese ones, 128 emoji.
const runWeightMax = 512

/**
 * Splits a text inside long runs that have no break between space and non-space. A tokenizer merges such a run in quadratic time:
 * 200 kB of one letter would keep it busy for a minute. Natural text has no such runs and is returned whole.
 */
export function cutRuns(text: string): string[] {
  const pieces: string[] = []
  let pieceStart = 0
  let weight = 0
  let inSpace = false
  for (let index = 0; index < text.length; index += 1) {
    const unit = text.charCodeAt(index)
    const isSpace = isSpaceUnit(unit)
    if (isSpace !== inSpace) weight = 0
    inSpace = isSpace
    // Never split a surrogate pair.
    if (weight >= runWeightMax && !isLowSurrogate(unit)) {
      pieces.push(text.slice(pieceStart, index))
      pieceStart = index
      weight = 0
    }
    weight += weightOf(unit)
  }
  if (pieceStart === 0) return [text]
  pieces.push(text.slice(pieceStart))
  return pieces
}

/**
 * Approximates UTF-8 bytes, which determine the time to merge. ASCII counts double, because its pieces would otherwise be the
 * longest.
 */
function weightOf(unit: number): number {
  if (unit < 0x800) return 2
  return unit >= 0xd800 && unit <= 0xdfff ? 2 : 3
}

// Equals `\s`, by which the tokenizer separates words.
export function isSpaceUnit(unit: number): boolean {
  if (unit <= 0x20) return unit === 0x20 || (unit >= 0x09 && unit <= 0x0d)
  if (unit < 0xa0) return false
  return unit === 0xa0 || unit === 0x1680 || (unit >= 0x2000 && unit <= 0x200a) || rareSpaces.has(unit)
}

const rareSpaces = new Set([0x2028, 0x2029, 0x202f, 0x205f, 0x3000, 0xfeff])

export function isLowSurrogate(unit: number): boolean {
  return unit >= 0xdc00 && unit <= 0xdfff
}
