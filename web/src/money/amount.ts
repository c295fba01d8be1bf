/** Whether this is an amount of USDC above zero that the token can have, as people type it. */
export function isAmount(text: string): boolean {
  return /^\d{1,12}(\.\d{1,6})?$/.test(text) && /[1-9]/.test(text)
}

export const amountError = 'Enter an amount above 0 USDC with at most six decimals, such as 2.50.'
