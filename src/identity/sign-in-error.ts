import { ServiceError } from '../errors.ts'

/** A sign-in that does not prove what it should. What exactly was wrong helps an honest customer, and nobody else. */
export class SignInFailedError extends ServiceError {
  readonly code = 'sign_in_failed'
}
