export const standings = ['unused', 'working', 'failing'] as const
export type Standing = (typeof standings)[number]

// A single failure may be caused by the request itself. This many in a row mean that the upstream is failing.
const failuresMax = 3

/** Whether the latest calls to an upstream succeeded. */
export class Outcomes {
  #isUsed = false
  #failures = 0

  record(isGood: boolean): void {
    this.#isUsed = true
    this.#failures = isGood ? 0 : this.#failures + 1
  }

  get standing(): Standing {
    if (!this.#isUsed) return 'unused'
    return this.#failures >= failuresMax ? 'failing' : 'working'
  }
}
