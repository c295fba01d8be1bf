import { ServiceError } from '../errors.ts'

/** Invalid proof of a sign-in. Messages may be precise: they help honest customers and tell an attacker nothing new. */
export class SignInFailedError extends ServiceError {
  constructor(message: string) {
    super('sign_in_failed', message)
  }
}
