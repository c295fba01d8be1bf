export type Standing = 'unused' | 'working' | 'failing'

// One failure may be the request's own. As many in a row are whoever was asked.
const failuresMax = 3

/** How asking somebody has gone of late. */
export class Outcomes {
  #isUsed = false
  #failures = 0

  tell(isGood: boolean): void {
    this.#isUsed = true
    this.#failures = isGood ? 0 : this.#failures + 1
  }

  get standing(): Standing {
    if (!this.#isUsed) return 'unused'
    return this.#failures >= failuresMax ? 'failing' : 'working'
  }
}
