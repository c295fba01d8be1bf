const distanceMax = 2

/** The known word that is most similar to a mistyped one; undefined when none is similar. */
export function didYouMean(typed: string, known: readonly string[]): string | undefined {
  const near = known
    .map((word) => ({ word, distance: word.startsWith(typed) && typed.length > 1 ? 1 : distanceOf(typed, word) }))
    .filter(({ distance, word }) => distance <= distanceMax && distance < word.length)
  return near.toSorted((left, right) => left.distance - right.distance)[0]?.word
}

/** The edit distance: letters to add, drop, replace or swap with their neighbour. */
function distanceOf(left: string, right: string): number {
  const rows = Array.from({ length: left.length + 1 }, (_, row) => Array<number>(right.length + 1).fill(row))
  for (let column = 0; column <= right.length; column += 1) rows[0]![column] = column
  for (let row = 1; row <= left.length; row += 1) {
    for (let column = 1; column <= right.length; column += 1) {
      const isSame = left[row - 1] === right[column - 1]
      const isSwapped = left[row - 1] === right[column - 2] && left[row - 2] === right[column - 1]
      rows[row]![column] = Math.min(
        rows[row - 1]![column]! + 1,
        rows[row]![column - 1]! + 1,
        rows[row - 1]![column - 1]! + (isSame ? 0 : 1),
        isSwapped ? rows[row - 2]![column - 2]! + 1 : Number.POSITIVE_INFINITY,
      )
    }
  }
  return rows[left.length]![right.length]!
}
