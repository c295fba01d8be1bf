/** Only a page of our own: an address from a link must not lead somewhere else. */
export function safeNext(next: string | undefined): string {
  return next !== undefined && /^\/(?![/\\])/.test(next) && !next.startsWith('/login') ? next : '/'
}
