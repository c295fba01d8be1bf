// Where a conversation is kept: the session storage of its tab, under the account that has it.

const prefix = 'penny.playground.'

/** Dispatched on the window when the user signs out or closes the account. */
export const signedOut = 'penny:signed-out'

export function storageKey(accountId: string): string {
  return `${prefix}${accountId}`
}

/** Stops the answers that stream, and deletes what this tab keeps, of any account. */
export function forgetConversations(): void {
  window.dispatchEvent(new Event(signedOut))
  try {
    for (const key of Object.keys(sessionStorage)) if (key.startsWith(prefix)) sessionStorage.removeItem(key)
  } catch {
    // The browser forbids storage: nothing was kept.
  }
}
