import { Turns } from '../../db/turns.ts'

const atOnceMax = 2
/** A program may ask at once for each of its running requests. */
const waitingMax = 2_000

/** Two answers of an account are worked on at once, the others wait: no account can occupy the dashboard's connections. */
export class AccountTurns {
  readonly #turns = new Map<string, { readonly turns: Turns; users: number }>()

  async take<Result>(accountId: string, work: () => Promise<Result>): Promise<Result> {
    const entry = this.#turns.get(accountId) ?? { turns: new Turns(atOnceMax, waitingMax), users: 0 }
    this.#turns.set(accountId, entry)
    entry.users += 1
    try {
      return await entry.turns.take(work)
    } finally {
      entry.users -= 1
      if (entry.users === 0) this.#turns.delete(accountId)
    }
  }
}
