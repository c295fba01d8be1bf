import { randomBytes } from 'node:crypto'
import type { Database } from '../db/database.ts'
import { SignInFailedError } from './sign-in-error.ts'

export const challengePurposes = ['wallet', 'register', 'sign_in', 'owner'] as const
export type ChallengePurpose = (typeof challengePurposes)[number]

const challengeSecondsMax = 5 * 60
const noncePattern = /^[0-9a-f]{40}$/

/** Hexadecimal: EIP-4361 allows only letters and digits. */
export function createNonce(): string {
  return randomBytes(20).toString('hex')
}

/** Stores a challenge. It can be answered once, within five minutes. */
export async function storeChallenge(
  database: Database,
  nonce: string,
  purpose: ChallengePurpose,
  message?: string,
): Promise<Date> {
  const [row] = await database.query<{ expires_at: Date }>(
    `insert into sign_in_challenges (nonce, purpose, message, expires_at)
     values ($1, $2, $3, clock_timestamp() + interval '${challengeSecondsMax} seconds') returning expires_at`,
    [nonce, purpose, message ?? null],
  )
  return row!.expires_at
}

/**
 * Consumes a challenge before its answer is verified: of concurrent identical answers only one is verified. Returns the message to be
 * signed, if there is one.
 */
export async function takeChallenge(
  database: Database,
  nonce: string,
  purpose: ChallengePurpose,
): Promise<string | undefined> {
  if (!noncePattern.test(nonce)) throw new ChallengeGoneError()
  const [row] = await database.query<{ message: string | null }>(
    `delete from sign_in_challenges where nonce = $1 and purpose = $2 and expires_at > now() returning message`,
    [nonce, purpose],
  )
  if (row === undefined) throw new ChallengeGoneError()
  return row.message ?? undefined
}

export class ChallengeGoneError extends SignInFailedError {
  constructor() {
    super('This sign-in was already used or is older than five minutes. Start again.')
  }
}
